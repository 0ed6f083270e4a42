//! Which nodes may be members of the load balancer of a Service.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{LoadBalancers, NodeSelector};
use ccm_objects::{Node, Service, Shared as Name};

use super::Handles;
use crate::plan::front_end::settings;

impl Handles {
    /// Which nodes may be members where the Service does not choose; None while that is not known.
    pub(super) fn default_selector(&self) -> Option<NodeSelector> {
        Some(self.load_balancers().ok()?.selector(&BTreeMap::new()))
    }

    /// The nodes that may be members of the load balancer of this Service, and whether that is not its
    /// own choice. The set of nodes has the labels by which it selects from now on.
    pub(super) fn selector(
        &self,
        service: &Service,
        load_balancers: &dyn LoadBalancers,
    ) -> (NodeSelector, bool) {
        let selector = selector(service, load_balancers);
        let mut keys = self.label_keys.lock();
        if keys.lack(&selector) {
            let before = keys.clone();
            keys.add(&selector);
            let nodes: BTreeMap<Name, Arc<Node>> =
                self.nodes.list().into_iter().map(|node| (Name::clone(&node.name), node)).collect();
            let labels_of = |name: &str| nodes.get(name).map(|node| &node.labels);
            let set = self.node_set.borrow().with_labels(labels_of, (&before, &keys));
            self.balancers.machine().relabel(&set.members);
            self.node_set.send_replace(Arc::new(set));
        }
        let is_default = selector == load_balancers.selector(&BTreeMap::new());
        (selector, is_default)
    }
}

/// The nodes that may be members of the load balancer of this Service.
pub(crate) fn selector(service: &Service, load_balancers: &dyn LoadBalancers) -> NodeSelector {
    let traits = load_balancers.traits();
    let details = service.details.as_deref().filter(|_| traits.member_labels);
    details.map(|details| load_balancers.selector(&settings(details, &traits))).unwrap_or_default()
}
