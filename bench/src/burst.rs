//! Many nodes at once: their names, their registration and the measurement.

use std::{fmt, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};

/// Returns the names of `count` nodes.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number:05}")).collect()
}

/// Deletes all nodes and waits until they are gone.
pub async fn remove_all(client: &Client) -> Result<()> {
    let api = Api::<Node>::all(client.clone());
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    ccm_sim::poll::until("all nodes to be deleted", Duration::from_mins(2), || async {
        Ok(api.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty().then_some(()))
    })
    .await
}

/// How long a burst took.
pub struct Timing {
    nodes: usize,
    total: Duration,
    waits: Vec<Duration>,
}

impl Timing {
    /// Starts with `waits`, the times from registration to the taint's removal, one for each node.
    pub fn new(nodes: usize, total: Duration, mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        Self { nodes, total, waits }
    }

    /// Returns the number of nodes initialised per second, from the first registration to the last
    /// taint's removal.
    pub fn nodes_per_second(&self) -> f64 {
        self.nodes as f64 / self.total.as_secs_f64()
    }

    /// Returns the wait that this percentage of the nodes does not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get(last * percent / 100).copied().unwrap_or_default()
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.nodes_per_second();
        write!(
            f,
            "{} nodes in {:.1} s: {rate:.0} nodes/s, {:.0} writes/s; registration to untaint p50 {:.2} s, p99 {:.2} s",
            self.nodes,
            self.total.as_secs_f64(),
            2.0 * rate,
            self.percentile(50).as_secs_f64(),
            self.percentile(99).as_secs_f64()
        )
    }
}
