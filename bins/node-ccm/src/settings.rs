//! The settings of node-ccm.

use std::time::Duration;

use ccm_base::duration;
use ccm_runtime::settings::cloud_call_timeout;
use ccm_settings::{checked, one_of, within};
use serde::Serialize;

use crate::plan::{InternalIpChange, Policy};

/// The most writers at once; each holds one request to the API server.
const MOST_WRITERS: u16 = 1000;
/// The shortest period of lists of the whole fleet.
const SHORTEST_PERIOD: Duration = Duration::from_secs(10);

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct NodeSettings {
        /// How many new nodes are written at the same time. Each costs two requests to the API server, so this
        /// many requests are open at most; lookups in the cloud are batched and not concerned.
        /// cloud-controller-manager's default is 1, because there each worker also waits for the cloud.
        /// From 1 to 1000.
        pub concurrent_node_syncs: usize = live(Count, "concurrent-node-syncs", "32"),
            within(1..=MOST_WRITERS);
        /// How many initialised nodes are written at the same time when their instances have changed. They have
        /// writers of their own, so that new nodes never wait for them. 0 means as many as
        /// --concurrent-node-syncs. At most 1000.
        pub concurrent_node_status_updates: usize = live(Count, "concurrent-node-status-updates", "0"),
            within(0..=MOST_WRITERS);
        /// Time between two lists of the whole fleet, by which addresses and labels are kept true to the
        /// instances; each period is up to a tenth shorter or longer, at random. At least 10s. One list costs one call
        /// per page of the cloud, however many nodes there are.
        #[serde(serialize_with = "duration::serialize")]
        pub node_status_update_frequency: Duration = live(Duration, "node-status-update-frequency", "5m0s"),
            checked("must be at least 10s: each time the whole fleet is listed", |period| {
                *period >= SHORTEST_PERIOD
            });
        /// How long one lookup or list may take, retries, pages and waiting for the rate limit included. Nodes
        /// whose lookup took longer are tried again. From 1s to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// What happens when the cloud names another first InternalIP for a node that is Ready: apply follows the
        /// cloud, as cloud-controller-manager does; hold keeps the node's addresses until it is no longer Ready.
        /// Either way an event on the node and ccm_node_internal_ip_changes_total tell of it.
        pub node_internal_ip_change: InternalIpChange = live(Text, "node-internal-ip-change", "apply"),
            one_of(&[("apply", InternalIpChange::Apply), ("hold", InternalIpChange::Hold)]);
    } => |settings, _, _| {
        let updates = match settings.concurrent_node_status_updates {
            0 => settings.concurrent_node_syncs,
            updates => updates,
        };
        Self { concurrent_node_status_updates: updates, ..settings }
    }
}

impl NodeSettings {
    /// The plan's part of the settings.
    pub fn policy(&self) -> Policy {
        Policy { internal_ip_change: self.node_internal_ip_change, ..Policy::default() }
    }
}

#[cfg(test)]
mod tests;
