//! The taints of an earlier controller that concern lifecycle-ccm.

use ccm_cloud::Cloud;
use ccm_controller::{instances, left_over::LeftOver};
use ccm_objects::Node;

use crate::{policy::shutdown, settings::LifecycleSettings};

/// Returns the taint of this node that another controller should remove and lifecycle-ccm does not.
/// For an excluded node only the shutdown taint concerns it: node-ccm reports the other one.
pub(crate) fn taint(
    cloud: &dyn Cloud,
    node: &Node,
    settings: &LifecycleSettings,
) -> Option<LeftOver> {
    let is_ours =
        instances::is_ours(cloud, node)? && settings.parameters.node_selector.matches(node);
    let is_off = node.taints.iter().any(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
    match is_ours {
        true => node.is_uninitialised().then_some(LeftOver::Uninitialized),
        false => (node.is_ready() && is_off).then_some(LeftOver::Shutdown),
    }
}
