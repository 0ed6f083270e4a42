//! Writes the condition `NetworkUnavailable` of one node after another.

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::{
    queue::{Priority, QueueConfig, QueueMetrics, WorkQueue},
    repeats::Content,
    workers,
    writer::{self, Writer},
};
use ccm_kube::{
    ApiError,
    write::{ConditionChange, StatusPatch},
};
use ccm_objects::{Node, Shared as Name};
use tokio_util::sync::CancellationToken;

use crate::{
    Handles,
    routes::plan::condition::{self, NETWORK_UNAVAILABLE, NewCondition},
};

/// The queue's name in its metrics.
pub(crate) const QUEUE: &str = "route-conditions";
/// The write of another message of the same status. Reasons may alternate, as the errors of a cloud do.
const MESSAGE: &str = "message";
/// How many conditions are written at once. A write in flight takes some 50 KB, with the answer and
/// what is read from it; more at once are not faster.
const WRITERS: usize = 16;

/// The nodes whose condition may have to be written.
pub(crate) fn queue(metrics: &QueueMetrics) -> WorkQueue<Name> {
    WorkQueue::new(QUEUE, QueueConfig::default(), metrics)
}

/// Writes conditions until the token is cancelled.
pub(crate) async fn run(handles: Handles, writer: Writer<Node>, token: CancellationToken) {
    let writer = Arc::new(writer);
    let queue = handles.conditions.clone();
    let work = move |name: Name| {
        let (handles, writer) = (handles.clone(), Arc::clone(&writer));
        async move { handles.write_condition(&writer, name).await }
    };
    workers::by_key(queue, || WRITERS, token, work).await;
}

impl Handles {
    /// What the condition of this node is to be, if it is to be written.
    pub(crate) fn condition(&self, node: &Node) -> Option<NewCondition> {
        if self.observer.is_left_out(node) {
            return None;
        }
        match &self.cidrs {
            Some(cidrs) if node.pod_cidrs.is_empty() => {
                return condition::without_cidrs(node, &cidrs.lack(&node.name)?, self.has_routes);
            }
            _ if !self.has_routes => return condition::with_cidrs(node),
            _ => {}
        }
        let (routes, waited) = self.state.lock().routes_of(self.timeline.now(), node)?;
        condition::of_routes(node, &routes, waited)
    }

    /// The nodes whose condition is to be written. An observer does not say that a route is missing
    /// which it would make.
    pub(crate) fn due_conditions(&self) -> impl Iterator<Item = (Name, NewCondition)> {
        let names = self.state.lock().names();
        let is_observing = self.plans.is_observing();
        names.into_iter().filter_map(move |name| {
            let wanted = self.condition(&*self.observer.store.get(&name)?)?;
            let is_shown = !is_observing || !self.state.lock().is_pending(&name);
            is_shown.then_some((name, wanted))
        })
    }

    /// Queues nodes whose condition is to be written.
    pub(crate) fn queue_conditions(&self, due: impl Iterator<Item = (Name, NewCondition)>) {
        for (name, _) in due {
            self.conditions.add(name, Priority::Routine);
        }
    }

    async fn write_condition(&self, writer: &Writer<Node>, name: Name) {
        let node = self.observer.store.get(&name);
        let Some((node, change)) = node
            .and_then(|node| Some((self.condition(&node)?, node)))
            .map(|(change, node)| (node, change))
        else {
            return self.conditions.forget(&name);
        };
        let (kind, content) = match change.moves {
            true => (NETWORK_UNAVAILABLE, Content::of(change.status)),
            false => (MESSAGE, Content::of(MESSAGE)),
        };
        if let Err(repeated) = self.written.check(&name, kind, content) {
            self.conditions.retry_every(name, repeated.wait);
            return;
        }
        let condition = ConditionChange {
            kind: NETWORK_UNAVAILABLE,
            status: change.status,
            reason: change.reason.to_owned(),
            message: change.message,
            last_transition_time: clock::wall(),
        };
        let patch = StatusPatch::default().with_node_condition(&condition, change.moves);
        let written = writer.patch_status(&node, &patch).await;
        if let Some(answer) = writer::answer(&written) {
            self.metrics.written(answer);
        }
        match written {
            Ok(answer) => {
                self.conditions.forget(&name);
                let is_shown = answer.condition(NETWORK_UNAVAILABLE) == Some(change.status);
                if change.moves {
                    self.reports.condition_repeated(&self.written, &node, change.status, is_shown);
                } else {
                    self.written.changed(&node.reference(), (kind, content));
                }
                // No change of the node follows if a policy has taken the write back.
                if self.condition(&answer).is_some() {
                    match self.written.check(&name, kind, content) {
                        Err(repeated) => drop(self.conditions.retry_every(name, repeated.wait)),
                        Ok(()) => self.conditions.add(name, Priority::Routine),
                    }
                }
                if is_shown {
                    let (name, status) = (&node.name, change.status);
                    tracing::info!(node = &**name, "node {name}: {NETWORK_UNAVAILABLE}={status}");
                }
            }
            Err(why) => {
                let failed = why.queue_again(&self.conditions, name);
                // After a conflict the node is only looked at again.
                if let Some((error, _)) = failed.filter(|(error, _)| *error != ApiError::Conflict) {
                    self.reports.refused(&node, &error);
                }
            }
        }
    }
}
