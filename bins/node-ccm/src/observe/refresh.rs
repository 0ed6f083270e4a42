//! Keeps initialised nodes in sync with their instances: looks up all nodes once per period and
//! queues only those that differ.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{Call, CloudError, Instance, Lookup};
use ccm_controller::{
    fleet::{FleetLine, Oddity},
    inventory::Answer,
    lookups::SizedLookups,
    passes::{Next, Pass},
    queue::Priority,
};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use tokio::time::Instant;

use super::{Handles, census, intake::Intake};
use crate::{
    metrics::State,
    plan::{Known, Outcome, follow},
};

/// The most nodes in one lookup: the provider decides how many of its own requests that takes,
/// and whether one list is cheaper.
const MOST: usize = 10_000;

/// Looks up all nodes and compares them with their instances, once per period.
pub(crate) struct Refresh {
    handles: Handles,
    intake: Arc<Intake>,
    line: FleetLine,
    sized: SizedLookups,
}

/// What a refresh has seen.
struct Looked {
    /// In one line.
    line: String,
    oddity: Option<Oddity>,
}

impl Pass for Refresh {
    async fn pass(&mut self) -> Next {
        census::take(&self.handles);
        let Handles { inventory, cloud, store, .. } = &self.handles;
        let result = self.refresh().await;
        inventory.keep_those_of(&**cloud, &store.list());
        match result {
            Ok(Looked { line, oddity }) => {
                self.line.show(oddity.as_ref(), line);
                Next::Period
            }
            Err((line, class)) => {
                self.line.fail(line);
                Next::Failed(class)
            }
        }
    }

    fn period(&self) -> Duration {
        self.handles.settings.borrow().node_status_update_frequency
    }
}

impl Refresh {
    pub(crate) fn new(handles: &Handles, intake: Arc<Intake>, health: Condition) -> Self {
        let sized = SizedLookups::new(Arc::clone(&handles.cloud), MOST);
        Self { handles: handles.clone(), intake, line: FleetLine::new(health), sized }
    }

    /// Looks up all nodes and queues those that differ. Logs the result in one line.
    ///
    /// # Errors
    ///
    /// Why no node was answered. A node without an answer concerns no other one.
    async fn refresh(&self) -> Result<Looked, (String, RetryClass)> {
        let nodes = self.own_nodes();
        // The selector leaves out the nodes of another cloud controller on purpose.
        let mut selected = self.handles.store.list();
        selected.retain(|node| self.handles.selects(node));
        let foreign = Oddity::of_ids(&*self.handles.cloud, &selected);
        if nodes.iter().all(|node| node.is_uninitialised()) {
            let line = "no initialised node, so none was looked up".to_owned();
            return Ok(Looked { line, oddity: foreign });
        }
        let Handles { inventory, metrics, settings, .. } = &self.handles;
        let started = Instant::now();
        let call = || Call::routine(settings.borrow().cloud_call_timeout);
        let answers =
            inventory.look_up(&nodes, &self.sized, call, |answer| metrics.answered(answer)).await;
        let unanswered = answers.iter().filter_map(Answer::error).count();
        let error = answers.iter().find_map(Answer::error).cloned();
        if let Some(error) = error.as_ref().filter(|_| unanswered == nodes.len()) {
            metrics.refreshed(started.elapsed(), Err(error.kind));
            tracing::warn!(%error, "cannot look up the nodes; initialised nodes are not updated until a lookup succeeds");
            return Err((format!("cannot look up the nodes: {error}"), error.class()));
        }
        let oddity = foreign.or_else(|| not_found(&nodes, &answers));
        let differing = self.compare(&nodes, answers);
        let (took, nodes) = (started.elapsed(), nodes.len());
        inventory.refreshed(started);
        metrics.refreshed(took, Ok(differing));
        tracing::info!(differing, unanswered, "Update {nodes} nodes status took {took:?}.");
        let line = format!("{nodes} nodes looked up, {differing} differ");
        let line = match error {
            Some(error) => format!("{line}; {unanswered} not answered, the first: {error}"),
            None => line,
        };
        Ok(Looked { line, oddity })
    }

    /// All nodes that may be this provider's, initialised or not. The others may have been its own
    /// before.
    fn own_nodes(&self) -> Vec<Arc<Node>> {
        let ours = |node: &Arc<Node>| self.intake.is_ours(node) == Some(true);
        self.handles.store.list().into_iter().filter(ours).collect()
    }

    /// Queues the nodes that differ from the cloud's answers. Returns how many of them are
    /// initialised.
    fn compare(&self, nodes: &[Arc<Node>], answers: Vec<Answer>) -> usize {
        let pairs = nodes.iter().zip(answers);
        // All of them are compared before the first is written.
        let differing: Vec<_> =
            pairs.filter_map(|(node, answer)| Some((node, self.differs(node, answer)?))).collect();
        for (node, priority) in &differing {
            self.handles.queue.add(Arc::clone(&node.name), *priority);
        }
        differing.iter().filter(|(node, _)| !node.is_uninitialised()).count()
    }

    /// Whether the node differs from the cloud's answer, and how soon it is synced then.
    fn differs(&self, node: &Arc<Node>, answer: Answer) -> Option<Priority> {
        let is_new = node.is_uninitialised();
        let instance = match answer {
            Answer::Found(id) => self.handles.inventory.found(&id)?,
            // A node that waits to be initialised is retried by itself.
            Answer::Other(_) if is_new => return None,
            Answer::Other(Err(error)) => {
                self.unanswered(node, &error);
                return None;
            }
            Answer::Other(answer) => {
                self.handles.answers.remember(Arc::clone(node), answer);
                return Some(Priority::Routine);
            }
        };
        let Handles { agreed, .. } = &self.handles;
        // The other nodes of its ID are compared when it is synced.
        let known = Known { agreed: agreed.of(node), ..Known::default() };
        let plan = follow(node, &instance, self.intake.policy(), known);
        agreed.note(node, &instance);
        if !is_new {
            self.handles.guard.note(&node.uid, plan.needs_brake(), node.is_ready());
        }
        if plan.steps.is_empty() && !matches!(plan.outcome, Outcome::Unconfirmed(_)) {
            if !is_new {
                self.handles.states.set(&node.name, State::Initialised);
                self.handles.reports.notes(node, &plan);
                self.handles.plans.clear("Node", &node.name);
            }
            return None;
        }
        let answer = Lookup::Found(Box::new(Instance::clone(&instance)));
        self.handles.answers.remember(Arc::clone(node), Ok(answer));
        Some(if is_new { Priority::Urgent } else { Priority::Routine })
    }

    /// An initialised node without an answer: it is looked up again, unless that cannot help.
    fn unanswered(&self, node: &Node, error: &CloudError) {
        self.handles.states.set(&node.name, State::Unknown);
        if error.class() != RetryClass::Permanent {
            self.handles.answers.require(&node.name);
            self.handles.queue.retry_as(Arc::clone(&node.name), error.class());
        }
    }
}

/// Returns a finding if the cloud knows none of the initialised nodes. A node without an answer counts
/// as known.
fn not_found(nodes: &[Arc<Node>], answers: &[Answer]) -> Option<Oddity> {
    let initialised = nodes.iter().zip(answers).filter(|(node, _)| !node.is_uninitialised());
    let is_gone = |answer: &Answer| matches!(answer, Answer::Other(Ok(Lookup::Gone(_))));
    let gone = initialised.clone().filter(|(_, answer)| is_gone(answer)).count();
    let of = initialised.count();
    Oddity::of_answers(of - gone, of)
}
