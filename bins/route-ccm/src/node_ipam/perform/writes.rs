//! Writes pod CIDRs to nodes.

use std::sync::Arc;

use ccm_controller::{
    machine::{Door, log_unexpected},
    writer::{Stopped, Writer},
};
use ccm_kube::write::Patch;
use ccm_objects::Node;
use ipnet::IpNet;

use super::Performer;
use crate::node_ipam::machine::{Effect, Event, Machine, Written};

/// Makes the writes that follow from events.
pub(crate) struct Writes {
    pub(crate) door: Door<Machine>,
    pub(crate) performer: Arc<Performer>,
    /// `None` for an observer.
    pub(crate) writer: Option<Writer<Node>>,
}

impl Writes {
    /// Applies an event, and makes the write that follows from it.
    pub(crate) async fn apply(&self, event: Event) {
        for request in self.performer.perform(self.door.apply(event)) {
            match (request, &self.writer) {
                (Effect::Write { node, cidrs }, Some(writer)) => {
                    self.write(writer, node, cidrs).await;
                }
                (other, _) => log_unexpected(&other),
            }
        }
    }

    async fn write(&self, writer: &Writer<Node>, node: Arc<Node>, cidrs: Vec<IpNet>) {
        let patch = Patch::default().with_spec("podCIDRs", &cidrs);
        let patch = patch.with_spec("podCIDR", &cidrs.first());
        let answer = writer.patch(&node, &patch).await.map_err(|why| sent(&node, &why));
        let now = self.performer.store.get(&node.name);
        let written = Written { asked: node, cidrs, node: now, answer };
        let event = Event::Written(Box::new(written));
        self.performer.perform(self.door.apply(event)).iter().for_each(log_unexpected);
    }
}

/// Returns the error of the API server, if the write was sent.
pub(crate) fn sent(node: &Node, why: &Stopped) -> Option<ccm_kube::ApiError> {
    let error = why.refusal().cloned();
    if error.is_none() {
        tracing::debug!(object = %node.name, "not written: {why}");
    }
    error
}
