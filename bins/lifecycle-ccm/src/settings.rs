//! The settings of lifecycle-ccm.

use std::time::Duration;

use ccm_base::duration;
use ccm_controller::brake::{DEFAULT_LIMIT_TEXT, Limit};
use ccm_kube::selector::NodeSelector;
use ccm_runtime::settings::{cloud_call_timeout, node_selector, taint_keys};
use ccm_settings::{at_least, one_of, parsed, within};
use serde::Serialize;

use crate::{
    machine::Parameters,
    policy::{Ghosts, Policy, Replaced, shutdown::Removal},
};

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LifecycleSettings {
    /// The parameters of the machine.
    #[serde(flatten)]
    pub parameters: Parameters,
    /// The time limit of one call to the cloud.
    #[serde(serialize_with = "duration::serialize")]
    pub cloud_call_timeout: Duration,
    /// The number of nodes that are deleted or tainted concurrently.
    pub concurrent_node_lifecycle_syncs: usize,
}

ccm_settings::settings! {
    impl LifecycleSettings {
        /// Interval between cloud lookups of nodes that are not Ready: 500 nodes per call, at most 1000 per pass. A
        /// node that stops being Ready is looked up at once; a node that may not be deleted because it has no
        /// provider ID is looked up every sixth interval. At least 1s.
        monitor_period: Duration = live(Duration, "node-monitor-period", "5s"), at_least("1s");
        /// Time after which the cloud must confirm its first answer that an instance is gone, by
        /// another lookup and by a list of the fleet without the instance, before the node is
        /// deleted. Keep it far below the five minutes after which pods are evicted from the node,
        /// and above the 10 s between two renewals of a kubelet's Lease: a node whose kubelet
        /// renews it in that time is kept. At least 1s.
        confirmation_period: Duration = live(Duration, "node-deletion-confirmation-period", "20s"),
            at_least("1s");
        /// Minimum age of a node before an answer that its instance is gone counts. Must be longer than the cloud
        /// takes to show a new instance in all its APIs.
        grace_period: Duration = live(Duration, "node-grace-period", "2m0s");
        /// Maximum number of nodes that are deleted within --node-deletion-budget-window: a number,
        /// or a percentage of all nodes of this cloud, rounded up and at least 3. 0 stops
        /// deletions, and stays in force even if the key is removed, until the file names another value.
        /// Nodes with the annotation quartet.dev/deletion-approved are exempt. A new leader
        /// continues with the window of the last one.
        budget: Limit = live(Limit, "node-deletion-budget", DEFAULT_LIMIT_TEXT), parsed;
        /// Sliding window of --node-deletion-budget. At least 1s.
        budget_window: Duration = live(Duration, "node-deletion-budget-window", "10m0s"), at_least("1s");
        /// If a list of the fleet lacks more than this percentage of the nodes (and at least 3 nodes), or contains
        /// none of them, no node is deleted until a list contains them again or the nodes are approved. From 1% to
        /// 100%.
        shrink_threshold: u8 = live(Text, "fleet-shrink-threshold", "50%"), percent;
        /// Deletion of nodes that never got a provider ID and whose name the cloud does not know:
        /// uninitialised applies the deletion policy to nodes that still have the taint
        /// node.cloudprovider.kubernetes.io/uninitialized; never keeps them. Use never, or a
        /// --node-selector, if nodes of another provider join the same cluster.
        ghosts: Ghosts = live(Text, "ghost-deletion", "uninitialised"), ghosts;
        /// Treatment of a Ready node on a replaced machine, whose provider ID belongs to an
        /// instance that is gone and whose system UUID has changed: report it, or delete it by the
        /// deletion policy. Its kubelet registers it again when it is restarted.
        replaced: Replaced = live(Text, "replaced-nodes", "report"),
            one_of(&[("report", Replaced::Report), ("delete", Replaced::Delete)]);
        /// Keys of taints that mark a node for scale-down, separated by commas. The deletion of a
        /// marked node needs proof and confirmation, but counts neither against
        /// --node-deletion-budget nor for --fleet-shrink-threshold.
        scale_down_taints: Vec<String> = live(
            List, "scale-down-taints", "ToBeDeletedByClusterAutoscaler,karpenter.sh/disrupted"), taint_keys;
        /// Only nodes with these labels are looked up, tainted and deleted, for instance
        /// pool=workers,!protected. Empty selects all nodes.
        node_selector: NodeSelector = live(Text, "node-selector", ""), node_selector;
        /// When the taint node.cloudprovider.kubernetes.io/shutdown is removed: cloud, when the cloud reports that the
        /// machine is running; ready, when the node is Ready, as cloud-controller-manager does.
        shutdown_taint_removal: Removal = live(Text, "shutdown-taint-removal", "cloud"),
            one_of(&[("cloud", Removal::Cloud), ("ready", Removal::Ready)]);
        /// Time limit of one lookup or list, including retries, all pages and waiting for the rate limit. An answer
        /// that takes longer is not used as evidence. From 1s to 10m0s.
        cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// Number of nodes that are deleted or tainted concurrently. Each takes one request to the API server. Cloud
        /// lookups are batched and not limited by this. From 1 to 1000.
        concurrent_node_lifecycle_syncs: usize = live(Count, "concurrent-node-lifecycle-syncs", "16"),
            within(1..=1000);
    } => |_, _| {
        let policy = Policy {
            confirmation_period,
            grace_period,
            monitor_period,
            budget,
            budget_window,
            shrink_threshold,
            ghosts,
            replaced,
            evidence_age: cloud_call_timeout,
        };
        let parameters =
            Parameters { policy, node_selector, scale_down_taints, shutdown_taint_removal };
        Some(Self { parameters, cloud_call_timeout, concurrent_node_lifecycle_syncs })
    }
}

fn percent(text: &str, _: &str) -> Result<u8, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err("must be a percentage from 1% to 100%".to_owned()),
    }
}

fn ghosts(text: &str, default: &str) -> Result<Ghosts, String> {
    let british = text.replace("uninitialized", "uninitialised");
    let words = [("uninitialised", Ghosts::Uninitialised), ("never", Ghosts::Never)];
    one_of(&words)(&british, default)
}

#[cfg(test)]
mod tests;
