//! The page `/explain`.

use ccm_objects::ObjectRef;
use ccm_runtime::explain::{Explanation, ObjectState};

use super::*;
use crate::routes::{machine::Asked, plan::condition::NETWORK_UNAVAILABLE};

impl World {
    fn asked(&self, name: &str) -> Asked {
        let view = self.store.get(name);
        let left_out = view.and_then(|view| view.left_out);
        let left_out = left_out.map(|_| "it does not match --node-selector".to_owned());
        let lease = ObjectRef::lease("kube-system", "route-ccm");
        Asked { pass: self.look(), left_out, ipam: None, lease }
    }

    /// Asks the page about any node and any route.
    pub(super) fn explain(&mut self) {
        let number = self.dice.random_range(0..NODES);
        self.explain_node(&nodes::name_of(number));
        let mut destinations: Vec<IpNet> = self.router.routes.keys().copied().collect();
        destinations.extend(self.nodes.values().flat_map(|node| truth::pod_cidrs(node)));
        let place = self.dice.random_range(0..destinations.len().max(1));
        if let Some(destination) = destinations.get(place) {
            self.explain_route(*destination);
        }
    }

    fn explained(&mut self, what: &str, explanation: &Explanation) {
        if explanation.cause.is_empty() || explanation.fix.is_empty() {
            self.rules.breaks(Rule::Explained, format!("{what}: {explanation:?}"));
        }
    }

    /// Explains a node. One that is said to be fine has its routes, as far as the process can know, and the condition
    /// says so.
    fn explain_node(&mut self, name: &Name) -> ObjectState {
        let asked = self.asked(name);
        let explanation = self.machine.explain_node(name, &asked, self.now);
        self.explained(name, &explanation);
        let node = self.store.get(name).map(|view| Arc::clone(&view.node));
        if let Some(node) = node.filter(|_| explanation.state == ObjectState::Fine) {
            self.check_available(&node, Rule::Explained);
            if node.condition(NETWORK_UNAVAILABLE) != Some("False") {
                let how = format!("{name} is fine with {:?}: {explanation:?}", node.conditions);
                self.rules.breaks(Rule::Explained, how);
            }
        }
        explanation.state
    }

    /// Does the same for a route.
    fn explain_route(&mut self, destination: IpNet) {
        let explanation =
            self.machine.explain_route(&destination.to_string(), &self.asked(""), self.now);
        self.explained(&destination.to_string(), &explanation);
        let is_fine = explanation.state == ObjectState::Fine;
        let routes = self.router.to(destination);
        if is_fine && routes.is_empty() && !self.rules.is_touched(self.now, destination) {
            let how = format!("the route of {destination} is fine: {explanation:?}");
            self.rules.breaks(Rule::Explained, how);
        }
    }

    /// Explains all nodes in the end: those that are fine, and no others, are said to be so.
    pub(super) fn explain_all(&mut self) {
        for (name, node) in self.nodes.clone() {
            let state = self.explain_node(&name);
            let is_fine = !node.pod_cidrs.is_empty() && self.is_fine(&node);
            if is_fine != (state == ObjectState::Fine) {
                self.rules.breaks(Rule::Explained, format!("{name} is said to be {state:?}"));
            }
        }
    }
}
