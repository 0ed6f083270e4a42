//! Makes the requests that the work on a node needs: one write per step of its plan.

use std::sync::Arc;

use ccm_controller::writer::{self, Stopped, Writer};
use ccm_kube::{
    ApiError,
    write::{Patch, StatusPatch},
};
use ccm_objects::{Node, Shared as Name};

use super::Performer;
use crate::{
    machine::{Event, Request},
    plan::{APPROVED, Step},
};

impl Performer {
    /// Tells the machine of an event, and makes all requests that follow from it.
    pub(crate) async fn carry_out(&self, writer: &Writer<Node>, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for request in self.hear(event) {
                next = self.request(writer, request).await;
            }
        }
    }

    /// Makes a request. Returns its answer, if the machine waits for one.
    async fn request(&self, writer: &Writer<Node>, request: Request) -> Option<Event> {
        match request {
            Request::Write { node, step, is_charged } => {
                if is_charged {
                    // Changes that are decided on together share one renewal of the Lease.
                    self.lease.stored().await;
                }
                let answer = self.write(writer, &node, &step).await;
                Some(Event::Written { name: Name::clone(&node.name), answer: told(&node, answer) })
            }
            Request::Conflict { node, what, most, priority } => {
                let name = Name::clone(&node.name);
                let is_usual = self.queue.again_after_conflict(name, most, priority);
                (!is_usual).then(|| Event::Conflicts { node, what: what.to_owned() })
            }
            Request::Due(_) | Request::LookUp(_) | Request::Differing(_) => None,
        }
    }

    async fn write(
        &self,
        writer: &Writer<Node>,
        node: &Node,
        step: &Step,
    ) -> Result<Arc<Node>, Stopped> {
        let answer = match step {
            Step::SetAddresses { addresses, ends_approval, .. } => {
                let patch = StatusPatch::default().with_addresses(addresses);
                let patch = if *ends_approval { patch.without_mark(APPROVED) } else { patch };
                writer.patch_status(node, &patch).await
            }
            Step::ChangeNode(change) => writer.patch(node, &Patch::from(change)).await,
        };
        if let Some(answer) = writer::answer(&answer) {
            self.metrics.written(step.kind(), answer);
        }
        answer
    }
}

/// Returns the answer as the machine hears it.
fn told(node: &Node, answer: Result<Arc<Node>, Stopped>) -> Result<Arc<Node>, Option<ApiError>> {
    answer.map_err(|stopped| {
        let refusal = stopped.refusal().cloned();
        if refusal.is_none() {
            tracing::debug!(object = %node.name, "not written: {stopped}");
        }
        refusal
    })
}
