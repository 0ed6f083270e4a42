//! The inputs of a look at the routes: the nodes, the settings, the approval and what the cloud offers.

use std::sync::Arc;

use ccm_cloud::{Cloud, CloudError, ErrorKind, RouteTraits, Routes};
use ccm_controller::approvals::Approvals;

use super::{
    Parts,
    machine::Pass,
    plan::{Parameters, wanted::NodeView},
};

/// Returns the provider's routes.
///
/// # Errors
///
/// It is not known yet if the cloud offers them, or it has stopped offering them.
pub(crate) fn offered(cloud: &dyn Cloud) -> Result<Arc<dyn Routes>, CloudError> {
    cloud
        .routes()?
        .ok_or_else(|| CloudError::new(ErrorKind::Unsupported, "the cloud does not offer routes"))
}

/// Returns the traits of the provider's routes; the default while they are unknown.
fn traits(cloud: &dyn Cloud) -> RouteTraits {
    offered(cloud).map(|routes| routes.traits()).unwrap_or_default()
}

/// Returns all that a look at these nodes depends on. `room`: how many calls may wait for a lane.
pub(crate) fn look(parts: &Parts, nodes: Vec<NodeView>, room: usize) -> Pass {
    let (cloud, ipam) = (&*parts.nodes.cloud, parts.performer.ipam.as_ref());
    let settings = parts.nodes.settings.borrow();
    let parameters = Parameters {
        cluster_cidrs: settings.cluster_cidrs(),
        max_pod_cidr: settings.max_pod_cidr(),
        budget: settings.budget(),
        period: settings.route_reconciliation_period,
        node_selector: settings.node_selector.clone(),
        approval: Approvals::right_now(&parts.lease),
    };
    Pass {
        parameters,
        lacks: ipam.map(|ipam| ipam.lacks()).unwrap_or_default(),
        awaited: ipam.map(|ipam| ipam.awaited()).unwrap_or_default(),
        nodes,
        traits: traits(cloud),
        has_instances: !matches!(cloud.instances(), Ok(None)),
        room,
    }
}
