//! Changes of nodes.

use std::sync::Arc;

use ccm_cloud::NodeSelector;
use ccm_kube::store::Change;
use ccm_objects::Node;
use tokio_util::sync::CancellationToken;

use super::{Translator, changed, provider::selector};
use crate::machine::event::{Event, NodesSeen, NodesWhy};

impl Translator {
    /// Applies the event that a node has changed. The informer calls it on every replica; never
    /// blocks.
    pub(crate) fn node_changed(&self, change: &Change<Node>) {
        self.performer.apply(Event::Node(changed(change)));
    }

    /// Applies the nodes that exist when this replica begins to lead.
    pub(crate) fn start_with_nodes(&self) {
        self.nodes_are(NodesWhy::Term { selectors: self.selectors() });
    }

    /// Follows the nodes until the token is cancelled.
    pub(crate) async fn follow_nodes(self: Arc<Self>, token: CancellationToken) {
        let door = &self.performer.door;
        let work = async {
            loop {
                let due = door.read(|machine, _| machine.nodes_due());
                tokio::select! {
                    () = self.performer.wakes.nodes.notified() => self.nodes_are(NodesWhy::Changed),
                    () = self.performer.until(due) => {
                        let (selectors, services) = (self.selectors(), self.services.list());
                        self.nodes_are(NodesWhy::Due { selectors, services });
                    }
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    fn nodes_are(&self, why: NodesWhy) {
        // The provider says what it needs for members.
        drop(self.load_balancers());
        let (nodes, schemes) = (self.nodes.list(), self.cloud.schemes());
        self.performer.apply(Event::Nodes(NodesSeen { nodes, schemes, why }));
    }

    /// Returns the labels by which the load balancers of all Services select their members.
    fn selectors(&self) -> Vec<NodeSelector> {
        let Ok(load_balancers) = self.load_balancers() else { return Vec::new() };
        if !load_balancers.traits().member_labels {
            return Vec::new();
        }
        let mut selectors = Vec::new();
        for service in self.services.list().iter().filter(|service| service.is_load_balancer) {
            let selector = selector(service, &*load_balancers);
            if !selectors.contains(&selector) {
                selectors.push(selector);
            }
        }
        selectors
    }
}
