//! The settings of lifecycle-ccm: its flags, what they mean, and how they are checked.

use std::time::Duration;

use ccm_base::duration;
use ccm_controller::brake::{InvalidLimit, Limit};
use ccm_kube::selector::NodeSelector;
use ccm_runtime::settings::{Kind, Problems, RawSettings, SettingDoc, SettingValue};
use serde::Serialize;

use crate::policy::{Ghosts, Policy, shutdown::Removal};

/// The shortest period in which nodes are looked at, and the shortest confirmation.
const SHORTEST: Duration = Duration::from_secs(1);

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LifecycleSettings {
    /// What the policy goes by.
    pub policy: Policy,
    /// The nodes that are judged.
    #[serde(serialize_with = "as_text")]
    pub node_selector: NodeSelector,
    /// When the shutdown taint is taken away.
    pub shutdown_taint_removal: Removal,
    /// The longest time for one call to the cloud.
    #[serde(serialize_with = "duration::serialize")]
    pub cloud_call_timeout: Duration,
    /// How many nodes are deleted or tainted at the same time.
    pub concurrent_node_lifecycle_syncs: usize,
}

fn as_text<S: serde::Serializer>(selector: &NodeSelector, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(selector)
}

/// The settings as data.
pub(crate) const TABLE: &[SettingDoc] = &[
    SettingDoc {
        flag: "node-monitor-period",
        kind: Kind::Duration,
        default: "5s",
        meaning: "How often nodes that are not Ready are looked up, 500 in one call to the cloud and at most 1000 at a \
                  time. A node that has just stopped being Ready is looked up at once, and one that may not \
                  be deleted because it has no provider ID every sixth time. At least 1s.",
        live: true,
    },
    SettingDoc {
        flag: "node-deletion-confirmation-period",
        kind: Kind::Duration,
        default: "20s",
        meaning: "How long after the cloud first said that an instance is gone it must say so again, and a list of the \
                  fleet must not show it, before the node is deleted. Far below the five minutes after which pods are \
                  evicted from the node. At least 1s.",
        live: true,
    },
    SettingDoc {
        flag: "node-grace-period",
        kind: Kind::Duration,
        default: "2m0s",
        meaning: "How old a node must be before the cloud's word that its instance is gone counts. Must be longer than the \
                  cloud takes to show a new instance everywhere.",
        live: true,
    },
    SettingDoc {
        flag: "node-deletion-budget",
        kind: Kind::Text,
        default: "10%",
        meaning: "How many nodes may be deleted within --node-deletion-budget-window: a number, or a percentage of all \
                  nodes of this cloud, rounded up and never fewer than 3. 0 deletes none. Nodes with the annotation \
                  quartet.dev/deletion-approved are exempt. Counted by the leader: a new one starts a new window.",
        live: true,
    },
    SettingDoc {
        flag: "node-deletion-budget-window",
        kind: Kind::Duration,
        default: "10m0s",
        meaning: "The window of --node-deletion-budget; it slides. At least 1s.",
        live: true,
    },
    SettingDoc {
        flag: "fleet-shrink-threshold",
        kind: Kind::Text,
        default: "50%",
        meaning: "If a list of the fleet lacks more than this share of the nodes (and at least 3), or shows none of them, \
                  nothing is deleted until it shows them again or the nodes are approved. From 1% to 100%.",
        live: true,
    },
    SettingDoc {
        flag: "ghost-deletion",
        kind: Kind::Text,
        default: "uninitialised",
        meaning: "What becomes of nodes that never got a provider ID and whose name the cloud does not know: uninitialised \
                  judges those that still have the taint node.cloudprovider.kubernetes.io/uninitialized; never keeps them. \
                  Choose never, or a --node-selector, where another provider's nodes join the same cluster.",
        live: true,
    },
    SettingDoc {
        flag: "node-selector",
        kind: Kind::Text,
        default: "",
        meaning: "Only nodes with these labels are looked up, tainted and deleted, for instance \
                  pool=workers,!protected. Empty means all.",
        live: true,
    },
    SettingDoc {
        flag: "shutdown-taint-removal",
        kind: Kind::Text,
        default: "cloud",
        meaning: "When the taint node.cloudprovider.kubernetes.io/shutdown is taken away: cloud when the cloud says that the \
                  machine runs; ready when the node is Ready, as cloud-controller-manager does.",
        live: true,
    },
    SettingDoc {
        flag: "cloud-call-timeout",
        kind: Kind::Duration,
        default: "30s",
        meaning: "How long one lookup or list may take, retries, pages and waiting for the rate limit included. An answer \
                  that took longer is no evidence. From 1s to 10m0s.",
        live: true,
    },
    SettingDoc {
        flag: "concurrent-node-lifecycle-syncs",
        kind: Kind::Count,
        default: "16",
        meaning: "How many nodes are deleted or tainted at the same time. Each costs one request to the API server. From 1 \
                  to 1000. Lookups are batched and not concerned.",
        live: true,
    },
];

/// [`Limit`] is of another crate, as is the trait.
struct Allowed(Limit);

impl SettingValue for Allowed {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: InvalidLimit| error.to_string())
    }
}

/// A share of a whole.
struct Percent(u8);

impl SettingValue for Percent {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%').unwrap_or(text).trim().parse() {
            Ok(percent @ 1..=100) => Ok(Self(percent)),
            _ => Err("must be a percentage from 1% to 100%".to_owned()),
        }
    }
}

impl SettingValue for Ghosts {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "uninitialised" | "uninitialized" => Ok(Self::Uninitialised),
            "never" => Ok(Self::Never),
            _ => Err("must be uninitialised or never".to_owned()),
        }
    }
}

impl SettingValue for Removal {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "cloud" => Ok(Self::Cloud),
            "ready" => Ok(Self::Ready),
            _ => Err("must be cloud or ready".to_owned()),
        }
    }
}

/// [`NodeSelector`] is of another crate, as is the trait.
struct Selected(NodeSelector);

impl SettingValue for Selected {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: ccm_kube::selector::InvalidSelector| error.to_string())
    }
}

/// Converts and checks the merged layers; every problem is recorded.
pub(crate) fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<LifecycleSettings> {
    // Each is read before the first `?`, so that all problems are found at once.
    let at_least = |name: &str, problems: &mut Problems| {
        let long = |period: &Duration| *period >= SHORTEST;
        layers.checked(name, "must be at least 1s", problems, long)
    };
    let monitor = at_least("node-monitor-period", problems);
    let confirmation = at_least("node-deletion-confirmation-period", problems);
    let window = at_least("node-deletion-budget-window", problems);
    let grace: Option<Duration> = layers.get("node-grace-period", problems);
    let budget: Option<Allowed> = layers.get("node-deletion-budget", problems);
    let shrink: Option<Percent> = layers.get("fleet-shrink-threshold", problems);
    let ghosts: Option<Ghosts> = layers.get("ghost-deletion", problems);
    let selector: Option<Option<Selected>> = layers.optional("node-selector", problems);
    let removal: Option<Removal> = layers.get("shutdown-taint-removal", problems);
    let timeout = layers.cloud_call_timeout(problems);
    let writers = layers.writers("concurrent-node-lifecycle-syncs", 1, problems);
    let timeout = timeout?;
    Some(LifecycleSettings {
        policy: Policy {
            confirmation_period: confirmation?,
            grace_period: grace?,
            monitor_period: monitor?,
            budget: budget?.0,
            budget_window: window?,
            shrink_threshold: shrink?.0,
            ghosts: ghosts?,
            evidence_age: timeout,
        },
        node_selector: selector?.map(|selected| selected.0).unwrap_or_default(),
        shutdown_taint_removal: removal?,
        cloud_call_timeout: timeout,
        concurrent_node_lifecycle_syncs: writers?,
    })
}

#[cfg(test)]
mod tests;
