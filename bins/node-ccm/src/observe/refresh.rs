//! Keeps initialised nodes in sync with their instances: looks up all nodes once per period and
//! queues only those that differ.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{
    Call, Claim, CloudError, Detail, ErrorKind, Instance, Lookup, LookupResult, ProviderId,
};
use ccm_controller::{
    instances,
    lookups::SizedLookups,
    passes::{Next, Pass},
    queue::Priority,
};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use tokio::time::Instant;

use super::{Handles, brake, census, intake::Intake};
use crate::{
    metrics::State,
    plan::{Outcome, follow},
};

/// The most nodes in one lookup: the provider decides how many of its own requests that takes,
/// and whether one list is cheaper.
const MOST: usize = 10_000;
/// After this number of calls in a row without any answer, the other nodes are not asked about.
const MANY_UNANSWERED: u32 = 3;

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
        match self.refresh().await {
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
            self.prune();
            return Ok("no initialised node, so none was looked up".to_owned());
        }
        let started = Instant::now();
        let answers = self.look_up(&nodes).await;
        let compared = self.compare(&nodes, answers);
        self.prune();
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

    /// Looks up all of these nodes, in as few calls as the cloud answers in time. What is found
    /// goes into the inventory.
    async fn look_up(&self, nodes: &[Arc<Node>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = nodes.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..nodes.len()).rev().collect();
        let mut late = CloudError::new(ErrorKind::Timeout, "the cloud answers too slowly");
        let mut silent_calls = 0;
        while !open.is_empty() && silent_calls < MANY_UNANSWERED {
            let part = open.split_off(open.len().saturating_sub(self.sized.size()));
            let asked: Vec<_> = part.iter().filter_map(|at| nodes.get(*at).cloned()).collect();
            let limit = self.handles.settings.borrow().cloud_call_timeout;
            let (call, started) = (Call::routine(limit), Instant::now());
            let mut found: Vec<Instance> = Vec::new();
            let mut is_silent = true;
            let take = |place: usize, answer: LookupResult| {
                self.handles.metrics.answered(&answer);
                is_silent &= answer.is_err();
                let slot = part.get(place).and_then(|at| answers.get_mut(*at));
                let answer = match answer {
                    Ok(Lookup::Found(instance)) => {
                        let id = instance.provider_id.clone();
                        found.push(*instance);
                        Answer::Found(id)
                    }
                    other => Answer::Other(other),
                };
                if let Some(slot) = slot {
                    *slot = Some(answer);
                }
            };
            let again = self.sized.ask(&asked, Detail::Everything, call, take).await;
            self.handles.inventory.update(found, started);
            silent_calls = if is_silent { silent_calls + 1 } else { 0 };
            for (place, answer) in again.into_iter().rev() {
                open.extend(part.get(place));
                late = answer.err().unwrap_or(late);
            }
        }
        let unasked = || Answer::Other(Err(late.clone()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unasked)).collect()
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
                self.handles.ledger.remember(Arc::clone(node), answer);
                return Some(Priority::Routine);
            }
        };
        let plan = follow(node, &instance, self.intake.policy());
        if !is_new {
            brake::note(&self.handles.guard, node, &plan);
        }
        if plan.steps.is_empty() && !matches!(plan.outcome, Outcome::Unconfirmed(_)) {
            if !is_new {
                self.handles.ledger.set_state(&node.name, State::Initialised);
                self.handles.reports.notes(node, &plan);
                self.handles.plans.clear("Node", &node.name);
            }
            return None;
        }
        let answer = Lookup::Found(Box::new(Instance::clone(&instance)));
        self.handles.ledger.remember(Arc::clone(node), Ok(answer));
        Some(if is_new { Priority::Urgent } else { Priority::Routine })
    }

    /// An initialised node without an answer: it is looked up again, unless that cannot help.
    fn unanswered(&self, node: &Node, error: &CloudError) {
        self.handles.ledger.set_state(&node.name, State::Unknown);
        if error.class() != RetryClass::Permanent {
            self.handles.ledger.require_lookup(&node.name);
            self.handles.queue.retry_as(Arc::clone(&node.name), error.class());
        }
    }

    /// Drops the instances of deleted nodes from the inventory.
    fn prune(&self) {
        let (cloud, nodes) = (&*self.handles.cloud, self.handles.store.list());
        let ids: HashSet<_> =
            nodes.iter().filter_map(|node| instances::canonical_id(cloud, node)).collect();
        let names: HashSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        self.handles.inventory.prune(|instance| {
            let mut known = std::iter::once(&instance.provider_id).chain(&instance.other_ids);
            names.contains(&*instance.name) || known.any(|id| ids.contains(id.as_str()))
        });
    }
}
