//! The Leases that the kubelets of nodes renew.

use std::time::Duration;

use ccm_controller::reader::{self, Reader};
use ccm_kube::ApiError;
use ccm_objects::{NODE_LEASES, NodeLease, Shared as Name};
use ccm_runtime::rights::Right;
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

/// The number of Leases that are read at once.
const READS: usize = 16;

/// Returns the right that [`heartbeats`] needs.
pub(crate) fn right() -> Right {
    reader::get::<NodeLease>().within(NODE_LEASES)
}

/// Returns the current renewals of the kubelets' Leases of these nodes: the text changes with each
/// renewal, and is absent without a Lease. So the clocks of the nodes do not matter.
///
/// # Errors
///
/// See [`Reader::get`]. Leases that are not read within this time are errors.
pub(super) async fn heartbeats(
    leases: &Reader<NodeLease>,
    nodes: Vec<Name>,
    within: Duration,
) -> Vec<Result<String, ApiError>> {
    let end = Instant::now() + within;
    let reads = nodes.into_iter().map(|node| async move {
        let read = timeout_at(end, leases.get(&format!("{NODE_LEASES}/{node}"))).await;
        let lease = read.unwrap_or(Err(ApiError::Timeout))?;
        let text = lease
            .map(|lease| format!("{} {} {}", lease.uid, lease.resource_version, lease.renewed));
        Ok(text.unwrap_or_default())
    });
    stream::iter(reads).buffered(READS).collect().await
}
