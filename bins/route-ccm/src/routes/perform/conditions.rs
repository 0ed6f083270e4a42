//! Writes the condition `NetworkUnavailable` of one node after another.

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::{machine::log_unexpected, writer::Writer};
use ccm_kube::write::{ConditionChange, StatusPatch};
use ccm_objects::Node;

use crate::{
    node_ipam::sent,
    routes::{
        Parts,
        machine::{Effect, Event, Written},
        plan::condition::{NETWORK_UNAVAILABLE, NewCondition},
    },
};

/// Makes the writes that follow from events.
pub(crate) struct Conditions {
    pub(crate) parts: Parts,
    pub(crate) writer: Writer<Node>,
}

impl Conditions {
    /// Applies an event, and makes the write that follows from it.
    pub(crate) async fn apply(&self, event: Event) {
        let mut write = None;
        self.parts.apply(event, |request| match request {
            Effect::Write { node, condition } => write = Some((node, condition)),
            other => log_unexpected(&other),
        });
        if let Some((node, condition)) = write {
            self.parts.tell(Event::Written(Box::new(self.write(&node, condition).await)));
        }
    }

    async fn write(&self, node: &Arc<Node>, condition: NewCondition) -> Written {
        let NewCondition { status, reason, message, moves } = condition;
        let change = ConditionChange {
            kind: NETWORK_UNAVAILABLE,
            status: status.as_str(),
            reason: reason.to_owned(),
            message,
            last_transition_time: clock::wall(),
        };
        let patch = StatusPatch::default().with_node_condition(&change, moves);
        let answer = self.writer.patch_status(node, &patch).await;
        let answer = answer.map_err(|why| sent(node, &why));
        Written {
            asked: Arc::clone(node),
            status,
            moves,
            answer: answer.map(|answer| self.parts.nodes.told(&answer)),
            lack: self.lack(&node.name),
        }
    }

    /// Returns the reason why the node does not have pod CIDRs, if this program does not assign any
    /// now.
    pub(crate) fn lack(&self, name: &str) -> Option<String> {
        self.parts.performer.ipam.as_ref()?.lack(name)
    }
}
