//! The settings that every program has, typed.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ccm_base::duration;
use serde::Serialize;

use super::{Problems, RawSettings, SettingValue, value::redact};
use crate::{
    options::{Catalogue, controllers},
    program::Identity,
};

/// The settings that every program has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommonSettings {
    /// Whether `--controllers` switches this program's controller on.
    pub enabled: bool,
    /// Whether it acts or only observes.
    pub mode: Mode,
    /// How long work that was begun may take to end at shutdown.
    #[serde(serialize_with = "duration::serialize")]
    pub drain_timeout: Duration,
    /// Accepted and shown by `/configz`, without effect: see its text in the table.
    #[serde(serialize_with = "duration::serialize")]
    pub min_resync: Duration,
    /// How the API server is reached.
    pub kube: KubeSettings,
    /// The cloud provider.
    pub cloud: CloudSettings,
    /// Leader election.
    pub election: ElectionSettings,
    /// The HTTP pages; `None` for none.
    pub pages: Option<PageSettings>,
    /// Logging.
    pub logging: LogSettings,
}

/// Whether a program acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Stands for election and, as the leader, writes.
    Control,
    /// Reads and decides as the leader does, takes no Lease and writes nothing.
    Observe,
}

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateSettings {
    /// Per second; `None` for no limit.
    pub per_second: Option<f64>,
    /// How many may go at once.
    pub burst: u32,
}

/// How the API server is reached.
#[derive(Clone, PartialEq, Serialize)]
pub struct KubeSettings {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`. Not shown: a URL may hold a password.
    #[serde(skip)]
    pub master: Option<String>,
    /// One request, retries included.
    #[serde(serialize_with = "duration::serialize")]
    pub timeout: Duration,
    /// Reads and writes, each.
    pub requests: RateSettings,
    /// Events.
    pub events: RateSettings,
}

impl fmt::Debug for KubeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kubeconfig, master, timeout, requests, events } = self;
        f.debug_struct("KubeSettings")
            .field("kubeconfig", kubeconfig)
            .field("master", &master.as_deref().map(redact))
            .field("timeout", timeout)
            .field("requests", requests)
            .field("events", events)
            .finish()
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
    /// `--user-agent`: what the cloud is told in front of the program's own name.
    pub user_agents: Vec<String>,
    /// Reads of each service.
    pub reads: RateSettings,
    /// Writes to each service.
    pub writes: RateSettings,
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ElectionSettings {
    /// Whether there is one.
    pub enabled: bool,
    /// The Lease's name.
    pub lease: String,
    /// The Lease's namespace.
    pub namespace: String,
    /// How long an unchanged Lease is respected.
    #[serde(serialize_with = "duration::serialize")]
    pub lease_duration: Duration,
    /// How long a leader may fail to renew.
    #[serde(serialize_with = "duration::serialize")]
    pub renew_deadline: Duration,
    /// Between two attempts.
    #[serde(serialize_with = "duration::serialize")]
    pub retry_period: Duration,
}

/// The HTTP pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSettings {
    /// Where they are served.
    pub address: SocketAddr,
    /// With which certificate; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Those of [`LOCAL_PAGES`] that answer to any peer.
    pub open: Vec<String>,
}

/// The pages that answer to loopback peers only, unless `--open-pages` names them.
pub const LOCAL_PAGES: [&str; 2] = ["configz", "plan"];

/// The certificate of the HTTP pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsSettings {
    /// The chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Whether TLS 1.2 is refused.
    pub only_tls13: bool,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSettings {
    /// `-v`.
    pub verbosity: u8,
    /// `--log-filter`.
    pub filter: Option<String>,
    /// `--logging-format`.
    pub format: LogFormat,
}

/// Converts the merged layers. Records every problem.
pub(crate) fn common(
    raw: &RawSettings,
    catalogue: &Catalogue,
    problems: &mut Problems,
) -> Option<CommonSettings> {
    // Each part is read before the first `?`, so that all problems are found at once.
    let enabled = enabled(raw, catalogue.identity(), problems);
    let mode = raw.get("mode", problems);
    let drain_timeout = raw.get("drain-timeout", problems);
    let min_resync = positive(raw, "min-resync-period", problems);
    let kube = kube(raw, problems);
    let cloud = cloud(raw, catalogue.providers(), problems);
    let election = election(raw, problems);
    let pages = pages(raw, problems);
    let logging = logging(raw, problems);
    Some(CommonSettings {
        enabled: enabled?,
        mode: mode?,
        drain_timeout: drain_timeout?,
        min_resync: min_resync?,
        kube: kube?,
        cloud: cloud?,
        election: election?,
        pages: pages?,
        logging: logging?,
    })
}

fn enabled(raw: &RawSettings, identity: &Identity, problems: &mut Problems) -> Option<bool> {
    let list: Vec<String> = raw.get("controllers", problems)?;
    let unknown = controllers::unknown(&list, identity);
    for item in &unknown {
        raw.reject("controllers", item.to_string(), problems);
    }
    unknown.is_empty().then(|| controllers::enabled(&list, identity))
}

/// A length of time above zero.
fn positive(raw: &RawSettings, name: &str, problems: &mut Problems) -> Option<Duration> {
    raw.checked(name, "must be longer than 0s", problems, |duration: &Duration| !duration.is_zero())
}

fn kube(raw: &RawSettings, problems: &mut Problems) -> Option<KubeSettings> {
    let kubeconfig = raw.optional("kubeconfig", problems);
    let master = raw.optional("master", problems);
    let timeout = positive(raw, "kube-api-timeout", problems);
    let requests = rate(raw, "kube-api-qps", "kube-api-burst", (1000.0, 2000), problems);
    let events = rate(raw, "event-qps", "event-burst", (20.0, 100), problems);
    let settings = KubeSettings {
        kubeconfig: kubeconfig?,
        master: master?,
        timeout: timeout?,
        requests: requests?,
        events: events?,
    };
    Some(settings)
}

/// A rate as client-go reads it: 0 means the default, a negative number no limit.
fn rate(
    raw: &RawSettings,
    qps: &str,
    burst: &str,
    (default_qps, default_burst): (f64, u32),
    problems: &mut Problems,
) -> Option<RateSettings> {
    let per_second: Option<f64> = raw.get(qps, problems);
    let burst: Option<u32> = raw.get(burst, problems);
    let per_second = match per_second? {
        number if number < 0.0 => None,
        0.0 => Some(default_qps),
        number => Some(number),
    };
    let burst = if burst? == 0 { default_burst } else { burst? };
    Some(RateSettings { per_second, burst })
}

fn cloud(raw: &RawSettings, known: &[String], problems: &mut Problems) -> Option<CloudSettings> {
    let filled = |text: &String| !text.trim().is_empty();
    let rule = match known {
        [] => "must be the name of a cloud provider".to_owned(),
        names => format!("must be the name of a cloud provider; known are: {}", names.join(", ")),
    };
    let provider = raw.checked("cloud-provider", &rule, problems, |name: &String| {
        if known.is_empty() { filled(name) } else { known.contains(name) }
    });
    let config = raw.optional("cloud-config", problems);
    let cluster_name = raw.checked("cluster-name", "must not be empty", problems, filled);
    let ascii = "must be printable ASCII, as a header of HTTP is";
    let user_agents = raw.checked("user-agent", ascii, problems, |names: &Vec<String>| {
        names.iter().flat_map(|name| name.bytes()).all(|byte| matches!(byte, b' '..=b'~'))
    });
    let reads = rate(raw, "cloud-read-qps", "cloud-read-burst", (50.0, 100), problems);
    let writes = rate(raw, "cloud-write-qps", "cloud-write-burst", (10.0, 20), problems);
    let settings = CloudSettings {
        provider: provider?,
        config: config?,
        cluster_name: cluster_name?,
        user_agents: user_agents?,
        reads: reads?,
        writes: writes?,
    };
    Some(settings)
}

fn election(raw: &RawSettings, problems: &mut Problems) -> Option<ElectionSettings> {
    let enabled = raw.get("leader-elect", problems);
    let lock = "must be leases, the only kind of lock there is";
    let lock =
        raw.checked("leader-elect-resource-lock", lock, problems, |lock: &String| lock == "leases");
    let migration = "must be false; to hand over from another controller manager, give the name of its Lease to \
                     --leader-elect-resource-name";
    let migration = raw.checked("enable-leader-migration", migration, problems, |on: &bool| !on);
    let lease =
        raw.checked("leader-elect-resource-name", OBJECT_NAME, problems, |name: &String| {
            is_object_name(name)
        });
    let namespace =
        raw.checked("leader-elect-resource-namespace", OBJECT_NAME, problems, |name: &String| {
            is_object_name(name)
        });
    // A Lease holds its duration as a signed number of 32 bits.
    let whole = |duration: &Duration| {
        duration.subsec_nanos() == 0
            && !duration.is_zero()
            && i32::try_from(duration.as_secs()).is_ok()
    };
    let whole_seconds = "must be whole seconds, at least 1s and at most 2147483647s";
    let lease_duration = raw.checked("leader-elect-lease-duration", whole_seconds, problems, whole);
    let renew_deadline = positive(raw, "leader-elect-renew-deadline", problems);
    let retry_period = positive(raw, "leader-elect-retry-period", problems);
    let _: ((), bool) = (lock.map(|_| ())?, migration?);
    let settings = ElectionSettings {
        enabled: enabled?,
        lease: lease?,
        namespace: namespace?,
        lease_duration: lease_duration?,
        renew_deadline: renew_deadline?,
        retry_period: retry_period?,
    };
    ordered(raw, &settings, problems).then_some(settings)
}

/// client-go's rule: lease duration > renew deadline > 1.2 x retry period.
fn ordered(raw: &RawSettings, election: &ElectionSettings, problems: &mut Problems) -> bool {
    let before = problems.iter().count();
    if election.renew_deadline >= election.lease_duration {
        let lease = duration::format(election.lease_duration);
        let rule = format!("must be shorter than --leader-elect-lease-duration, which is {lease}");
        raw.reject("leader-elect-renew-deadline", rule, problems);
    }
    if election.retry_period.mul_f64(1.2) >= election.renew_deadline {
        let deadline = duration::format(election.renew_deadline);
        let rule = format!(
            "times 1.2 must be shorter than --leader-elect-renew-deadline, which is {deadline}"
        );
        raw.reject("leader-elect-retry-period", rule, problems);
    }
    problems.iter().count() == before
}

const OBJECT_NAME: &str = "must be a Kubernetes object name: lower-case letters, digits, '-' and '.', at most 253 characters";

fn is_object_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && name.chars().all(inner)
        && edge(name.chars().next())
        && edge(name.chars().last())
}

#[allow(clippy::option_option, reason = "the outer level says whether it could be read")]
fn pages(raw: &RawSettings, problems: &mut Problems) -> Option<Option<PageSettings>> {
    let address: Option<IpAddr> = raw.get("bind-address", problems);
    let port: Option<u16> = raw.get("secure-port", problems);
    let tls = tls(raw, problems);
    let rule = format!("must name pages out of {}", LOCAL_PAGES.join(", "));
    let open = raw.checked("open-pages", &rule, problems, |names: &Vec<String>| {
        names.iter().all(|name| LOCAL_PAGES.contains(&name.as_str()))
    });
    let (address, port, tls, open) = (address?, port?, tls?, open?);
    Some((port != 0).then(|| PageSettings { address: SocketAddr::new(address, port), tls, open }))
}

#[allow(clippy::option_option, reason = "the outer level says whether it could be read")]
fn tls(raw: &RawSettings, problems: &mut Problems) -> Option<Option<TlsSettings>> {
    let certificate: Option<Option<PathBuf>> = raw.optional("tls-cert-file", problems);
    let key: Option<Option<PathBuf>> = raw.optional("tls-private-key-file", problems);
    let version: Option<String> = raw.checked(
        "tls-min-version",
        "must be VersionTLS12 or VersionTLS13",
        problems,
        |text: &String| matches!(text.as_str(), "" | "VersionTLS12" | "VersionTLS13"),
    );
    let (certificate, key, version) = (certificate?, key?, version?);
    match (certificate, key) {
        (None, None) => Some(None),
        (Some(certificate), Some(key)) => {
            Some(Some(TlsSettings { certificate, key, only_tls13: version == "VersionTLS13" }))
        }
        (Some(_), None) => {
            raw.reject("tls-cert-file", "needs --tls-private-key-file beside it", problems);
            None
        }
        (None, Some(_)) => {
            raw.reject("tls-private-key-file", "needs --tls-cert-file beside it", problems);
            None
        }
    }
}

fn logging(raw: &RawSettings, problems: &mut Problems) -> Option<LogSettings> {
    let verbosity = raw.get("v", problems);
    let filter: Option<Option<String>> = raw.optional("log-filter", problems);
    let filter =
        filter.and_then(|filter| match filter.as_deref().map(crate::logging::check_filter) {
            Some(Err(rule)) => {
                raw.reject("log-filter", rule, problems);
                None
            }
            _ => Some(filter),
        });
    let format = raw.get("logging-format", problems);
    Some(LogSettings { verbosity: verbosity?, filter: filter?, format: format? })
}

impl SettingValue for Mode {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "control" => Ok(Self::Control),
            "observe" => Ok(Self::Observe),
            _ => Err("must be control or observe".to_owned()),
        }
    }
}

impl SettingValue for LogFormat {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("must be text or json".to_owned()),
        }
    }
}
