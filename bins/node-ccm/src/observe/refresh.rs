//! Keeps initialised nodes in sync with their instances: looks up all nodes once per period and
//! queues only those that differ.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{Call, Claim, CloudError, Detail, Instance, Lookup, LookupResult, ProviderId};
use ccm_controller::{
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
    plan::{Outcome, follow},
};

/// The most nodes in one lookup: the provider decides how many of its own requests that takes,
/// and whether one list is cheaper.
const MOST: usize = 10_000;

/// Looks up all nodes and compares them with their instances, once per period.
pub(crate) struct Refresh {
    handles: Handles,
    intake: Arc<Intake>,
    health: Condition,
    sized: SizedLookups,
}

/// The cloud's answer about a node, without the instance, which the inventory has.
enum Answer {
    Found(ProviderId),
    Other(LookupResult),
}

/// The result of a refresh.
#[derive(Default)]
struct Compared {
    nodes: usize,
    differing: usize,
    /// How many nodes have no answer, and the first error.
    unanswered: usize,
    error: Option<CloudError>,
}

impl Pass for Refresh {
    async fn pass(&mut self) -> Next {
        census::take(&self.handles);
        let Handles { inventory, cloud, store, .. } = &self.handles;
        let result = self.refresh().await;
        inventory.keep_those_of(&**cloud, &store.list());
        match result {
            Ok(line) => {
                self.health.pass(line);
                Next::Period
            }
            Err((line, class)) => {
                self.health.fail(line);
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
        Self { handles: handles.clone(), intake, health, sized }
    }

    /// Looks up all nodes and queues those that differ. Logs the result in one line.
    ///
    /// # Errors
    ///
    /// Why no node was answered. A node without an answer concerns no other one.
    async fn refresh(&self) -> Result<String, (String, RetryClass)> {
        let nodes = self.own_nodes();
        if nodes.iter().all(|node| node.is_uninitialised()) {
            return Ok("no initialised node, so none was looked up".to_owned());
        }
        let started = Instant::now();
        let answers = self.look_up(&nodes).await;
        let compared = self.compare(&nodes, answers);
        let took = started.elapsed();
        let Compared { nodes, differing, unanswered, error } = compared;
        if let Some(error) = error.as_ref().filter(|_| unanswered == nodes) {
            self.handles.metrics.refreshed(took, Err(error.kind));
            tracing::warn!(%error, "cannot look up the nodes; initialised nodes are not updated until a lookup succeeds");
            return Err((format!("cannot look up the nodes: {error}"), error.class()));
        }
        self.handles.inventory.refreshed(started);
        self.handles.metrics.refreshed(took, Ok(differing));
        tracing::info!(differing, unanswered, "Update {nodes} nodes status took {took:?}.");
        let line = format!("{nodes} nodes looked up, {differing} differ");
        Ok(match error {
            Some(error) => format!("{line}; {unanswered} not answered, the first: {error}"),
            None => line,
        })
    }

    /// All nodes that may be this provider's, initialised or not.
    fn own_nodes(&self) -> Vec<Arc<Node>> {
        let ours =
            |node: &Arc<Node>| self.intake.claim(node).is_some_and(|claim| claim != Claim::Foreign);
        self.handles.store.list().into_iter().filter(ours).collect()
    }

    /// Looks up all of these nodes. What is found goes into the inventory.
    async fn look_up(&self, nodes: &[Arc<Node>]) -> Vec<Answer> {
        let Handles { inventory, metrics, settings, .. } = &self.handles;
        let mut answers: BTreeMap<usize, Answer> = BTreeMap::new();
        let take = |started, part: Vec<(usize, LookupResult)>| {
            let mut found: Vec<Instance> = Vec::new();
            for (at, answer) in part {
                metrics.answered(&answer);
                let answer = match answer {
                    Ok(Lookup::Found(instance)) => {
                        let id = instance.provider_id.clone();
                        found.push(*instance);
                        Answer::Found(id)
                    }
                    other => Answer::Other(other),
                };
                answers.insert(at, answer);
            }
            inventory.update(found, started);
        };
        let call = || Call::routine(settings.borrow().cloud_call_timeout);
        let late = self.sized.ask_all(nodes, Detail::Everything, call, take).await;
        answers.extend(late.into_iter().map(|(at, answer)| (at, Answer::Other(answer))));
        answers.into_values().collect()
    }

    /// Queues the nodes that differ from the cloud's answers; none if there is no answer at all.
    fn compare(&self, nodes: &[Arc<Node>], answers: Vec<Answer>) -> Compared {
        let error = |answer: &Answer| match answer {
            Answer::Other(Err(error)) => Some(error.clone()),
            _ => None,
        };
        let mut compared = Compared {
            nodes: nodes.len(),
            differing: 0,
            unanswered: answers.iter().filter(|answer| error(answer).is_some()).count(),
            error: answers.iter().find_map(error),
        };
        if compared.unanswered == nodes.len() {
            return compared;
        }
        let pairs = nodes.iter().zip(answers);
        // All of them are compared before the first is written.
        let differing: Vec<_> =
            pairs.filter_map(|(node, answer)| Some((node, self.differs(node, answer)?))).collect();
        for (node, priority) in differing {
            compared.differing += usize::from(!node.is_uninitialised());
            self.handles.queue.add(Arc::clone(&node.name), priority);
        }
        compared
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
        let plan = follow(node, &instance, self.intake.policy());
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
