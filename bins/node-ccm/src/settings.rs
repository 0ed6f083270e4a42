//! The settings of node-ccm: its flags, what they mean, and how they are checked.

use std::time::Duration;

use ccm_base::duration;
use ccm_runtime::settings::{Kind, Problems, RawSettings, SettingDoc, SettingValue};
use serde::Serialize;

use crate::plan::{InternalIpChange, Policy};

/// The shortest period of lists of the whole fleet.
const SHORTEST_PERIOD: Duration = Duration::from_secs(10);

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSettings {
    /// How many new nodes are written at once.
    pub concurrent_node_syncs: usize,
    /// How many initialised nodes are written at once.
    pub concurrent_node_status_updates: usize,
    /// Time between two lists of the fleet.
    #[serde(serialize_with = "duration::serialize")]
    pub node_status_update_frequency: Duration,
    /// The longest time for one call to the cloud.
    #[serde(serialize_with = "duration::serialize")]
    pub cloud_call_timeout: Duration,
    /// What happens to the first InternalIP of a Ready node.
    pub node_internal_ip_change: InternalIpChange,
}

impl NodeSettings {
    /// What the plan needs to know of the settings.
    pub fn policy(&self) -> Policy {
        Policy { internal_ip_change: self.node_internal_ip_change }
    }
}

/// The settings as data.
pub(crate) const TABLE: &[SettingDoc] = &[
    SettingDoc {
        flag: "concurrent-node-syncs",
        kind: Kind::Count,
        default: "32",
        meaning: "How many new nodes are written at the same time. Each costs two requests to the API server, so this \
                  many requests are open at most; lookups in the cloud are batched and not concerned. \
                  cloud-controller-manager's default is 1, because there each worker also waits for the cloud. \
                  From 1 to 1000.",
        live: true,
    },
    SettingDoc {
        flag: "concurrent-node-status-updates",
        kind: Kind::Count,
        default: "0",
        meaning: "How many initialised nodes are written at the same time when their instances have changed. They have \
                  writers of their own, so that new nodes never wait for them. 0 means as many as \
                  --concurrent-node-syncs. At most 1000.",
        live: true,
    },
    SettingDoc {
        flag: "node-status-update-frequency",
        kind: Kind::Duration,
        default: "5m0s",
        meaning: "Time between two lists of the whole fleet, by which addresses and labels are kept true to the \
                  instances; each period is up to a tenth shorter or longer, at random. At least 10s. One list costs one call \
                  per page of the cloud, however many nodes there are.",
        live: true,
    },
    SettingDoc {
        flag: "cloud-call-timeout",
        kind: Kind::Duration,
        default: "30s",
        meaning: "How long one lookup or list may take, retries, pages and waiting for the rate limit included. Nodes \
                  whose lookup took longer are tried again. From 1s to 10m0s.",
        live: true,
    },
    SettingDoc {
        flag: "node-internal-ip-change",
        kind: Kind::Text,
        default: "apply",
        meaning: "What happens when the cloud names another first InternalIP for a node that is Ready: apply follows the \
                  cloud, as cloud-controller-manager does; hold keeps the node's addresses until it is no longer Ready. \
                  Either way an event on the node and ccm_node_internal_ip_changes_total tell of it.",
        live: true,
    },
];

impl SettingValue for InternalIpChange {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "apply" => Ok(Self::Apply),
            "hold" => Ok(Self::Hold),
            _ => Err("must be apply or hold".to_owned()),
        }
    }
}

/// Converts and checks the merged layers; every problem is recorded.
pub(crate) fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<NodeSettings> {
    // Each is read before the first `?`, so that all problems are found at once.
    let syncs = layers.writers("concurrent-node-syncs", 1, problems);
    let updates = layers.writers("concurrent-node-status-updates", 0, problems);
    let period = layers.checked(
        "node-status-update-frequency",
        "must be at least 10s: each time the whole fleet is listed",
        problems,
        |period: &Duration| *period >= SHORTEST_PERIOD,
    );
    let timeout = layers.cloud_call_timeout(problems);
    let change = layers.get("node-internal-ip-change", problems);
    let (syncs, updates) = (syncs?, updates?);
    Some(NodeSettings {
        concurrent_node_syncs: syncs,
        concurrent_node_status_updates: if updates == 0 { syncs } else { updates },
        node_status_update_frequency: period?,
        cloud_call_timeout: timeout?,
        node_internal_ip_change: change?,
    })
}

#[cfg(test)]
mod tests;
