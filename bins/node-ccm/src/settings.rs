//! The settings of node-ccm.

use std::time::Duration;

use ccm_base::duration;
use ccm_controller::brake::{Budget, DEFAULT_LIMIT_TEXT, Limit};
use ccm_kube::selector::NodeSelector;
use ccm_runtime::settings::{cloud_call_timeout, node_selector, per_second};
use ccm_settings::{at_least, one_of, parsed, within};
use serde::Serialize;

use crate::plan::{IdentityPolicy, InternalIpChange, LabelPolicy, Policy};

/// The maximum number of workers; each has one open request to the API server.
const MOST_WRITERS: u16 = 1000;
/// The minimum interval between two lookups of all nodes.
const SHORTEST_PERIOD: Duration = Duration::from_secs(10);

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct NodeSettings {
        /// Number of new nodes that are written concurrently. Each node takes two requests to the API server, one
        /// after the other, so this also limits the open requests. Cloud lookups are batched and not limited by
        /// this. cloud-controller-manager defaults to 1; there, each worker also waits for the cloud.
        /// From 1 to 1000.
        pub concurrent_node_syncs: usize = live(Count, "concurrent-node-syncs", "32"),
            within(1..=MOST_WRITERS);
        /// Number of initialised nodes that are written concurrently when their instances have changed. They have
        /// separate workers, so these writes never delay new nodes. 0 means the value of
        /// --concurrent-node-syncs. At most 1000.
        pub concurrent_node_status_updates: usize = live(Count, "concurrent-node-status-updates", "0"),
            within(0..=MOST_WRITERS);
        /// Writes per second to initialised nodes that differ from their instances, for all nodes
        /// together; up to one second's worth at once. A node whose turn has not come yet does not
        /// occupy a worker while it waits. New nodes do not count and do not wait. Every write to a
        /// node is sent to all clients that watch nodes: one or more per node of the cluster. 0
        /// means the default, a negative number no limit.
        pub node_correction_qps: Option<f64> = live(Number, "node-correction-qps", "50"), per_second;
        /// Interval between two lookups of all nodes, which keep the nodes' addresses and labels in
        /// sync with their instances. Each interval varies at random by up to 10%. The provider
        /// decides whether that takes a list of the project or single requests. The shortest
        /// interval is 10s, which also replaces a shorter one, with a warning.
        #[serde(serialize_with = "duration::serialize")]
        pub node_status_update_frequency: Duration = live(Duration, "node-status-update-frequency", "5m0s");
        /// Time limit of one lookup or list, including retries, all pages and waiting for the rate limit. Nodes
        /// whose lookup takes longer are retried. From 1s to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// Action when the cloud returns another first InternalIP for a Ready node: apply updates
        /// the node, as cloud-controller-manager does; hold keeps the node's addresses until it is
        /// no longer Ready. Both are reported by an event on the node and by
        /// ccm_node_internal_ip_changes_total.
        pub node_internal_ip_change: InternalIpChange = live(Text, "node-internal-ip-change", "apply"),
            one_of(&[("apply", InternalIpChange::Apply), ("hold", InternalIpChange::Hold)]);
        /// Decides about a new node whose provider ID comes from its kubelet, if another node has
        /// it, or if neither the node's name nor its system UUID nor an address agrees with the
        /// instance: strict keeps the taint and does not write the node; report initialises the
        /// node. Both are reported by an event on the node and by
        /// ccm_node_unconfirmed_identities_total. Nodes that are initialised already are only
        /// reported.
        pub node_identity: IdentityPolicy = live(Text, "node-identity", "strict"), one_of(IdentityPolicy::WORDS);
        /// Maximum number of Ready nodes whose first InternalIP, zone, region or instance type
        /// changes, or which lose all InternalIPs of a family, within --node-change-budget-window:
        /// a number, or a percentage of the Ready nodes of this cloud, rounded up and at least 3.
        /// If the cloud returns more than that at once, none of them is changed. New nodes, nodes
        /// that are not Ready and approved ones are exempt. 0 changes no nodes, 100% all of them.
        pub node_change_budget: Limit = live(Limit, "node-change-budget", DEFAULT_LIMIT_TEXT), parsed;
        /// Sliding window of --node-change-budget. At least 1m.
        #[serde(serialize_with = "duration::serialize")]
        pub node_change_budget_window: Duration = live(Duration, "node-change-budget-window", "1h0m0s"),
            at_least("1m");
        /// When the labels of a node follow its instance: follow, always, so that a manual change is reverted; once,
        /// only when it is initialised; off, never. The annotation quartet.dev/node-label-policy of a node takes
        /// precedence.
        pub node_label_policy: LabelPolicy = live(Text, "node-label-policy", "follow"), one_of(LabelPolicy::WORDS);
        /// Keep the taint of a new node while neither the cloud nor the kubelet knows its IP
        /// address. false is for clouds that do not know addresses.
        pub node_addresses_required: bool = live(Switch, "node-addresses-required", "true");
        /// Only nodes with these labels are initialised and kept in sync, for instance
        /// pool=workers,!edge. Empty selects all nodes. An excluded node is not changed: it keeps
        /// its taint until another controller removes it.
        pub node_selector: NodeSelector = live(Text, "node-selector", ""), node_selector;
    } => |settings, raw, problems| {
        let period = settings.node_status_update_frequency.max(SHORTEST_PERIOD);
        if period > settings.node_status_update_frequency {
            let what = "all nodes are looked up in each interval, so the shortest one is used, 10s";
            raw.warn("node-status-update-frequency", what, problems);
        }
        let updates = match settings.concurrent_node_status_updates {
            0 => settings.concurrent_node_syncs,
            updates => updates,
        };
        Self {
            concurrent_node_status_updates: updates,
            node_status_update_frequency: period,
            ..settings
        }
    }
}

impl NodeSettings {
    /// Returns the settings that the plan reads.
    pub fn policy(&self) -> Policy {
        Policy {
            internal_ip_change: self.node_internal_ip_change,
            identity: self.node_identity,
            labels: self.node_label_policy,
            without_address: !self.node_addresses_required,
            labels_only_add: false,
        }
    }

    /// Returns how many Ready nodes may change within which time.
    pub fn budget(&self) -> Budget {
        Budget { limit: self.node_change_budget, window: self.node_change_budget_window }
    }
}

#[cfg(test)]
mod tests;
