//! The settings common to all programs.

use std::{path::PathBuf, time::Duration};

use ccm_base::duration;
use ccm_settings::{
    Problems, RawSettings, Schema as _, Setting, SettingValue as _, at_least, checked, one_of,
    positive,
};
use serde::Serialize;

use super::{
    controllers,
    rates::{per_second, zero_is_default},
};
use crate::{
    http::{PageSettings, Served},
    identity::Identity,
    limits::{Rate, Rates},
    logging::LogSettings,
    plans::Mode,
};

/// The common settings in the order of `--help` and the reference pages, with the heading of
/// each section.
pub(super) const SECTIONS: [(&str, &[Setting]); 6] = [
    ("Process", Process::TABLE),
    ("Kubernetes API", KubeSettings::TABLE),
    ("Cloud", CloudSettings::TABLE),
    ("Leader election", ElectionSettings::TABLE),
    ("HTTP pages", Served::TABLE),
    ("Logging", LogSettings::TABLE),
];

/// The settings common to all programs.
#[derive(Clone, PartialEq, Serialize)]
pub struct CommonSettings {
    /// True if `--controllers` enables this program's controller.
    pub enabled: bool,
    /// The mode: makes changes, or only observes.
    pub mode: Mode,
    /// Time limit at shutdown for work in progress.
    #[serde(serialize_with = "duration::serialize")]
    pub drain_timeout: Duration,
    /// Accepted and shown by `/configz`, without effect: see its text.
    #[serde(serialize_with = "duration::serialize")]
    pub min_resync: Duration,
    /// The memory for the records of the last events; 0 keeps no records.
    pub record_bytes: usize,
    /// `--node-name`.
    pub node_name: Option<String>,
    /// The connection to the API server.
    pub kube: KubeSettings,
    /// The cloud provider.
    pub cloud: CloudSettings,
    /// Leader election.
    pub election: ElectionSettings,
    /// The HTTP pages, if enabled.
    pub pages: Option<PageSettings>,
    /// Logging.
    pub logging: LogSettings,
}

impl CommonSettings {
    /// Converts the merged layers for a process with these cloud providers. Records all problems.
    pub(super) fn read(
        raw: &RawSettings,
        identity: &Identity,
        providers: &[String],
        problems: &mut Problems,
    ) -> Option<Self> {
        // Each part is read before the first `?`, so that all problems are reported at once.
        let enabled = enabled(raw, identity, problems);
        let process = Process::read(raw, problems);
        let kube = KubeSettings::read(raw, problems);
        check_provider(raw, providers, problems);
        let cloud = CloudSettings::read(raw, problems);
        let election = ElectionSettings::read(raw, problems);
        let pages = Served::read(raw, problems);
        let logging = LogSettings::read(raw, problems);
        let process = process?;
        Some(Self {
            enabled: enabled?,
            mode: process.mode,
            drain_timeout: process.drain_timeout,
            min_resync: process.min_resync,
            record_bytes: process.record_bytes,
            node_name: process.node_name,
            kube: kube?,
            cloud: cloud?,
            election: election?,
            pages: pages?.0,
            logging: logging?,
        })
    }

    /// Returns the rates of all requests.
    pub(crate) fn rates(&self) -> Rates {
        Rates {
            requests: self.kube.requests,
            events: self.kube.events,
            cloud_reads: self.cloud.reads,
            cloud_writes: self.cloud.writes,
        }
    }
}

ccm_settings::settings! {
    /// The process as a whole.
    struct Process {
        /// Configuration file (.yaml, .yml, .json or .toml) with the settings of this page under their keys. The
        /// program reads it every 5 s: changes of settings marked "live" take effect without a restart; an invalid new
        /// version is rejected and reported, and the old one stays in use. It must hold at least one setting, each
        /// with a value, in at most 256 KiB.
        _config: Option<PathBuf> = fixed(Path, "config", "");
        /// Enabled controllers: names, -names and * as in cloud-controller-manager; the first item that matches a
        /// controller decides. Names of controllers of the other programs are accepted. A program whose controller is
        /// disabled keeps running, idle and healthy, without a Lease.
        _controllers: Vec<String> = fixed(List, "controllers", "*");
        /// control or observe. With observe the program reads and decides like the leader, but takes no Lease and
        /// writes nothing, neither to the API server (including events) nor to the cloud; it needs no write
        /// permissions. /plan, the log and ccm_plan_* show what it would do.
        mode: Mode = fixed(Text, "mode", "control"),
            one_of(&[("control", Mode::Control), ("observe", Mode::Observe)]);
        /// Time limit after SIGTERM for running work to finish before the Lease is released. The pod's
        /// terminationGracePeriodSeconds must be at least 25 s more than this and --cloud-call-timeout together.
        drain_timeout: Duration = live(Duration, "drain-timeout", "20s");
        /// Accepted and validated for compatibility with cloud-controller-manager; no effect. No resync is needed: a
        /// watch that cannot continue lists all objects again, and each controller compares its objects with the cloud
        /// periodically.
        min_resync: Duration = fixed(Duration, "min-resync-period", "12h0m0s"), positive;
        /// Memory for the record of the last events and of the decisions on each, in bytes. The
        /// page /record shows it, for reports of problems. It is compressed; 2 MB hold minutes of a
        /// busy cluster, and hours or days of a quiet one. With 0 it keeps no record and costs
        /// nothing. Otherwise at least 2000000.
        record_bytes: usize = fixed(Count, "record-bytes", "2000000"), record_bytes;
        /// Name of the node that runs this program; the manifests set it by the downward API. The
        /// line own-node of /readyz?verbose shows problems of this node, for instance a missing
        /// address or serving certificate.
        node_name: Option<String> = fixed(Text, "node-name", "");
    }
}

/// Parses the size of the record. A smaller record would hold little more than the memory that
/// writing it takes.
fn record_bytes(text: &str, _: &str) -> Result<usize, String> {
    const BOUNDS: std::ops::RangeInclusive<usize> = 2_000_000..=1_000_000_000;
    let bytes = text.parse().ok().filter(|bytes| *bytes == 0 || BOUNDS.contains(bytes));
    bytes.ok_or_else(|| "must be 0, or a whole number from 2000000 to 1000000000".to_owned())
}

fn enabled(raw: &RawSettings, identity: &Identity, problems: &mut Problems) -> Option<bool> {
    let list = raw.read("controllers", Vec::<String>::parse, problems)?;
    let unknown = controllers::unknown(&list, identity);
    for item in &unknown {
        raw.reject("controllers", item.to_string(), problems);
    }
    unknown.is_empty().then(|| controllers::enabled(&list, identity))
}

/// Checks the provider's name: an empty list accepts any name.
fn check_provider(raw: &RawSettings, known: &[String], problems: &mut Problems) {
    let rule = match known {
        [] => "must be the name of a cloud provider".to_owned(),
        names => format!("must be the name of a cloud provider; known are: {}", names.join(", ")),
    };
    let is_known = |name: &str| match known {
        [] => !name.is_empty(),
        names => names.iter().any(|known| known == name),
    };
    raw.read("cloud-provider", |name| is_known(name).then_some(()).ok_or(rule), problems);
}

/// The connection to the API server.
#[derive(Clone, PartialEq, Serialize)]
pub struct KubeSettings {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`. Not serialised: a URL may contain a password.
    #[serde(skip)]
    pub master: Option<String>,
    /// True if credentials may go to an API server without TLS.
    pub credentials_over_http: bool,
    /// Time limit for one request, retries included.
    #[serde(serialize_with = "duration::serialize")]
    pub timeout: Duration,
    /// True if lists are streamed where the API server offers it.
    pub streams_lists: bool,
    /// The rate of reads and of writes, each.
    pub requests: Rate,
    /// The rate of events.
    pub events: Rate,
}

ccm_settings::settings! {
    impl KubeSettings {
        /// Kubeconfig file. Without it: the pod's service account. The variable KUBECONFIG and ~/.kube/config are not
        /// read.
        kubeconfig: Option<PathBuf> = fixed(Path, "kubeconfig", "");
        /// URL of the API server; overrides the one in the kubeconfig.
        master: Option<String> = fixed(Text, "master", "");
        /// Send the credentials, such as the token of the service account, also to an API server whose URL begins with
        /// http://, where everybody on the way can read and use them. Without this such a start is refused.
        credentials_over_http: bool = fixed(Switch, "kube-api-credentials-over-http", "false");
        /// Time limit of one request to the API server, including retries, and waiting for the rate limit unless it
        /// writes an object.
        timeout: Duration = fixed(Duration, "kube-api-timeout", "30s"), at_least("1s");
        /// List by a watch that begins with all objects (WatchList) instead of in pages: the API
        /// server answers from its memory instead of etcd, and neither side holds a page. For
        /// Kubernetes 1.34 or newer; an API server that does not offer it is asked for pages.
        streams_lists: bool = fixed(Switch, "kube-api-streaming-lists", "false");
        /// Requests per second to the API server, separately for reads and writes; watches, Lease requests and events
        /// do not count. 0 means the default, a negative number no limit. The default is high on purpose: a new node
        /// takes two writes, so with upstream's 20 requests per second 5000 new nodes would wait for many minutes. The
        /// API server is protected by its own Priority and Fairness; after a 429 the rate is halved and then restored
        /// gradually.
        request_rate: Option<f64> = live(Number, "kube-api-qps", "1000"), per_second;
        /// Burst of --kube-api-qps. 0 means the default.
        request_burst: u32 = live(Count, "kube-api-burst", "2000"), zero_is_default;
        /// Events per second. Separate from the other requests, so that events never delay work; excess events are
        /// queued, and dropped when the queue is full. 0 means the default, a negative number no limit.
        event_rate: Option<f64> = live(Number, "event-qps", "20"), per_second;
        /// Burst of --event-qps. 0 means the default.
        event_burst: u32 = live(Count, "event-burst", "100"), zero_is_default;
    } => |_, _| {
        let requests = Rate { per_second: request_rate, burst: request_burst };
        let events = Rate { per_second: event_rate, burst: event_burst };
        Some(Self { kubeconfig, master, credentials_over_http, timeout, streams_lists, requests, events })
    }
}

/// The cloud provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloudSettings {
    /// `--cloud-provider`.
    pub provider: String,
    /// `--cloud-config`.
    pub config: Option<PathBuf>,
    /// `--cluster-name`.
    pub cluster_name: String,
    /// `--user-agent`: precedes the program's name in the user agent for the cloud.
    pub user_agents: Vec<String>,
    /// The rate of reads of each service.
    pub reads: Rate,
    /// The rate of writes to each service.
    pub writes: Rate,
}

ccm_settings::settings! {
    impl CloudSettings {
        /// Name of the cloud provider. Required.
        provider: String = fixed(Text, "cloud-provider", "");
        /// Configuration file of the provider. The provider reads it, also when it changes.
        config: Option<PathBuf> = fixed(Path, "cloud-config", "");
        /// Name of the cluster, a part of names and descriptions in the cloud. It should be unique
        /// per project. Ownership is by UID, but the name must be unique while load balancers of a
        /// Go controller wait for adoption.
        cluster_name: String = fixed(Text, "cluster-name", "kubernetes"),
            checked("must not be empty, and must not have a comma, which separates tags", |name: &String| {
                !name.is_empty() && !name.contains(',')
            });
        /// Prefix of the User-Agent header of requests to the cloud, for instance the cluster's name, so that the
        /// operator of the cloud can identify the client. Printable ASCII. May be repeated; the values are used in
        /// order.
        user_agents: Vec<String> = fixed(List, "user-agent", ""),
            checked("must be printable ASCII, as in HTTP headers", |names: &Vec<String>| {
                names.iter().flat_map(|name| name.bytes()).all(|byte| matches!(byte, b' '..=b'~'))
            });
        /// Read requests per second to each service of the cloud. 0 means the default, a negative number no limit.
        /// One lookup covers many nodes, so this only guards against many single reads; a 429 lowers it temporarily.
        read_rate: Option<f64> = live(Number, "cloud-read-qps", "50"), per_second;
        /// Burst of --cloud-read-qps. 0 means the default.
        read_burst: u32 = live(Count, "cloud-read-burst", "100"), zero_is_default;
        /// Write requests per second to each service of the cloud. 0 means the default, a negative number no limit.
        write_rate: Option<f64> = live(Number, "cloud-write-qps", "10"), per_second;
        /// Burst of --cloud-write-qps. 0 means the default.
        write_burst: u32 = live(Count, "cloud-write-burst", "20"), zero_is_default;
    } => |_, _| {
        let reads = Rate { per_second: read_rate, burst: read_burst };
        let writes = Rate { per_second: write_rate, burst: write_burst };
        Some(Self { provider, config, cluster_name, user_agents, reads, writes })
    }
}

/// The longest `--leader-elect-lease-duration`. A candidate never respects a record for longer.
pub const LONGEST_LEASE: Duration = Duration::from_mins(10);

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElectionSettings {
    /// True if election is enabled.
    pub enabled: bool,
    /// The Lease's name.
    pub lease: String,
    /// The Lease's namespace.
    pub namespace: String,
    /// How long an unchanged Lease is respected.
    #[serde(serialize_with = "duration::serialize")]
    pub lease_duration: Duration,
    /// How long a leader may fail to renew the Lease.
    #[serde(serialize_with = "duration::serialize")]
    pub renew_deadline: Duration,
    /// Time between two attempts.
    #[serde(serialize_with = "duration::serialize")]
    pub retry_period: Duration,
    /// True if other instances of this program may lead at the same time by other Leases.
    pub allows_others: bool,
}

ccm_settings::settings! {
    impl ElectionSettings {
        /// Elect a leader among the replicas. If false, run only one replica.
        enabled: bool = fixed(Switch, "leader-elect", "true");
        /// How long a Lease must be unchanged before a standby takes over. Whole seconds, longer than the renew
        /// deadline, at most 10 minutes.
        lease_duration: Duration = fixed(Duration, "leader-elect-lease-duration", "15s"),
            checked("must be whole seconds, from 1s to 10m0s", |time: &Duration| {
                time.subsec_nanos() == 0 && !time.is_zero() && *time <= LONGEST_LEASE
            });
        /// How long a leader retries to renew its Lease before it stops. More than 1.2 times the retry period.
        renew_deadline: Duration = fixed(Duration, "leader-elect-renew-deadline", "10s"), positive;
        /// Interval between two attempts to renew or acquire the Lease.
        retry_period: Duration = fixed(Duration, "leader-elect-retry-period", "2s"), at_least("100ms");
        /// Kind of the lock; must be leases.
        _lock: String = fixed(Text, "leader-elect-resource-lock", "leases"),
            checked("must be leases, the only supported lock", |lock: &String| lock == "leases");
        /// Name of the Lease. Each program needs its own Lease: two programs with one Lease exclude
        /// each other. The program's Role names the Lease, so change both.
        lease: String = fixed(Text, "leader-elect-resource-name", ""), object_name;
        /// Namespace of the Lease.
        namespace: String = fixed(Text, "leader-elect-resource-namespace", "kube-system"), object_name;
        /// Allow the same program to lead by another Lease at the same time, because the two
        /// divide nodes or classes. If false, this one does not lead while it sees such a Lease
        /// renewed in kube-system.
        allows_others: bool = fixed(Switch, "allow-other-leaders", "false");
    } => |raw, problems| {
        let settings = Self {
            enabled,
            lease,
            namespace,
            lease_duration,
            renew_deadline,
            retry_period,
            allows_others,
        };
        settings.is_ordered(raw, problems).then_some(settings)
    }
}

impl ElectionSettings {
    /// Checks the durations by client-go's rule: lease duration > renew deadline > 1.2 x retry
    /// period.
    fn is_ordered(&self, raw: &RawSettings, problems: &mut Problems) -> bool {
        let before = problems.iter().count();
        if self.renew_deadline >= self.lease_duration {
            let lease = duration::format(self.lease_duration);
            let rule =
                format!("must be shorter than --leader-elect-lease-duration, which is {lease}");
            raw.reject("leader-elect-renew-deadline", rule, problems);
        }
        if self.retry_period.mul_f64(1.2) >= self.renew_deadline {
            let deadline = duration::format(self.renew_deadline);
            let rule = format!(
                "times 1.2 must be shorter than --leader-elect-renew-deadline, which is {deadline}"
            );
            raw.reject("leader-elect-retry-period", rule, problems);
        }
        problems.iter().count() == before
    }
}

/// Reads the name of a Kubernetes object.
fn object_name(text: &str, default: &str) -> Result<String, String> {
    const RULE: &str = "must be a Kubernetes object name: lower-case letters, digits, '-' and '.', at most 253 characters";
    checked(RULE, |name: &String| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        name.len() <= 253
            && name.chars().all(|c| plain(c) || c == '-' || c == '.')
            && name.starts_with(plain)
            && name.ends_with(plain)
    })(text, default)
}
