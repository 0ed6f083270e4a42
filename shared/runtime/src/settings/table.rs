//! The settings that every program has, as data.

use super::{Kind, SettingDoc};

/// Settings that belong together, with the heading above them.
pub(crate) type Section = (&'static str, &'static [SettingDoc]);

/// The common settings in the order of `--help` and `docs/options-<binary>.md`.
pub(crate) const SECTIONS: [Section; 6] = [
    ("Process", PROCESS),
    ("Kubernetes API", KUBERNETES),
    ("Cloud", CLOUD),
    ("Leader election", ELECTION),
    ("HTTP pages", PAGES),
    ("Logging", LOGGING),
];

const fn fixed(
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> SettingDoc {
    SettingDoc { flag, kind, default, meaning, live: false }
}

const fn live(
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> SettingDoc {
    SettingDoc { flag, kind, default, meaning, live: true }
}

const PROCESS: &[SettingDoc] = &[
    fixed(
        "config",
        Kind::Path,
        "",
        "Configuration file (.yaml, .yml, .json or .toml) with the settings of this page under their keys. Its content \
         is looked at every 5 s: settings marked \"live\" change while the program runs, an invalid new version is \
         refused and reported, and the old one stays.",
    ),
    fixed(
        "controllers",
        Kind::List,
        "*",
        "Which controllers run: names, -names and * as in cloud-controller-manager; the first item that names a \
         controller decides. The list may name controllers of the sibling programs. A program whose controller is \
         switched off stays up, idle and healthy, without a Lease.",
    ),
    live(
        "drain-timeout",
        Kind::Duration,
        "20s",
        "After SIGTERM: how long work that was begun may take to end before the Lease is given back. Keep it below the \
         pod's terminationGracePeriodSeconds (30 s unless set).",
    ),
    fixed(
        "min-resync-period",
        Kind::Duration,
        "12h0m0s",
        "Accepted and checked, so that command lines written for cloud-controller-manager keep working; without effect. \
         No resync is needed: a watch that cannot go on lists everything anew, and each controller compares its objects \
         with the cloud by a period of its own.",
    ),
];

const KUBERNETES: &[SettingDoc] = &[
    fixed(
        "kubeconfig",
        Kind::Path,
        "",
        "Kubeconfig file. Without it and --master: KUBECONFIG, else the pod's service account.",
    ),
    fixed("master", Kind::Text, "", "URL of the API server; overrides the kubeconfig's."),
    fixed(
        "kube-api-timeout",
        Kind::Duration,
        "30s",
        "How long one request to the API server may take, retries and waiting for its rate limit included.",
    ),
    live(
        "kube-api-qps",
        Kind::Number,
        "1000",
        "Requests per second to the API server, reads and writes each; watches, Lease requests and events do not count. \
         0 means the default, a negative number no limit. The default is not meant to be reached: a new node costs two \
         writes, so upstream's 20 requests per second hold a wave of 5000 nodes back for many minutes. What protects \
         the API server is its own Priority and Fairness; when it answers 429, the rate is halved at once and restored \
         step by step.",
    ),
    live(
        "kube-api-burst",
        Kind::Count,
        "2000",
        "Requests that may be sent at once before --kube-api-qps holds. 0 means the default.",
    ),
    live(
        "event-qps",
        Kind::Number,
        "20",
        "Events per second. Apart from the other requests, so that events never delay work; events beyond it wait, and \
         are dropped when too many do. 0 means the default, a negative number no limit.",
    ),
    live(
        "event-burst",
        Kind::Count,
        "100",
        "Events that may be sent at once. 0 means the default.",
    ),
];

const CLOUD: &[SettingDoc] = &[
    fixed("cloud-provider", Kind::Text, "", "Name of the cloud provider. Required."),
    fixed(
        "cloud-config",
        Kind::Path,
        "",
        "The provider's own configuration file. The provider reads it, also when it changes.",
    ),
    fixed(
        "cluster-name",
        Kind::Text,
        "kubernetes",
        "The cluster's name. It marks what is created in the cloud, so give each cluster of a project its own.",
    ),
    fixed(
        "user-agent",
        Kind::List,
        "",
        "What requests to the cloud say in front of the program's own name, in the order given, so that the cloud's \
         operator can tell whose they are: the cluster's name, for instance. Printable ASCII. May be repeated.",
    ),
    live(
        "cloud-read-qps",
        Kind::Number,
        "50",
        "Read requests per second to each service of the cloud. A negative number means no limit. One list serves the \
         whole fleet, so this is a guard against a storm of single reads and not a pace; a 429 lowers it for a while.",
    ),
    live(
        "cloud-read-burst",
        Kind::Count,
        "100",
        "Read requests that may be sent to a service of the cloud at once.",
    ),
    live(
        "cloud-write-qps",
        Kind::Number,
        "10",
        "Changing requests per second to each service of the cloud. A negative number means no limit.",
    ),
    live(
        "cloud-write-burst",
        Kind::Count,
        "20",
        "Changing requests that may be sent to a service of the cloud at once.",
    ),
];

const ELECTION: &[SettingDoc] = &[
    fixed(
        "leader-elect",
        Kind::Switch,
        "true",
        "Whether replicas elect a leader. Without election run one replica only.",
    ),
    fixed(
        "leader-elect-lease-duration",
        Kind::Duration,
        "15s",
        "How long a standby watches an unchanged Lease before it takes over. Whole seconds, longer than the renew \
         deadline.",
    ),
    fixed(
        "leader-elect-renew-deadline",
        Kind::Duration,
        "10s",
        "How long a leader may fail to renew its Lease before it stops. More than 1.2 times the retry period.",
    ),
    fixed(
        "leader-elect-retry-period",
        Kind::Duration,
        "2s",
        "Time between two attempts to renew or acquire the Lease.",
    ),
    fixed("leader-elect-resource-lock", Kind::Text, "leases", "Kind of the lock; only leases."),
    fixed(
        "leader-elect-resource-name",
        Kind::Text,
        "",
        "Name of the Lease. To hand over from another controller manager without both working at once, give the name of \
         its Lease.",
    ),
    fixed("leader-elect-resource-namespace", Kind::Text, "kube-system", "Namespace of the Lease."),
    fixed(
        "enable-leader-migration",
        Kind::Switch,
        "false",
        "Upstream's migration by a second Lease; only false. --leader-elect-resource-name serves the purpose.",
    ),
];

const PAGES: &[SettingDoc] = &[
    fixed("bind-address", Kind::Text, "0.0.0.0", "IP address on which the HTTP pages are served."),
    fixed(
        "secure-port",
        Kind::Count,
        "",
        "Port of /healthz, /livez, /readyz, /metrics and /configz. 0 means no pages at all. The pages are plain HTTP \
         unless a certificate is given, and ask for no token: they show no secrets and change nothing.",
    ),
    fixed(
        "tls-cert-file",
        Kind::Path,
        "",
        "Certificate chain (PEM) for the pages. The file is read again when it changes. Needs --tls-private-key-file.",
    ),
    fixed("tls-private-key-file", Kind::Path, "", "Private key (PEM) of --tls-cert-file."),
    fixed("tls-min-version", Kind::Text, "", "VersionTLS12 (also when empty) or VersionTLS13."),
];

const LOGGING: &[SettingDoc] = &[
    live(
        "v",
        Kind::Count,
        "0",
        "How much is logged: 0 to 3 the usual, 4 and 5 details, 6 and more everything.",
    ),
    live(
        "log-filter",
        Kind::Text,
        "",
        "Levels per module in place of -v, for instance info,ccm_runtime::leadership=debug. Bodies of requests and \
         answers are never logged.",
    ),
    fixed("logging-format", Kind::Text, "text", "text or json."),
];
