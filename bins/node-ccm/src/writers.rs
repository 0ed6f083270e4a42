//! Second stage: plans and writes, many nodes at a time.
//!
//! Two pools, as upstream has two kinds of worker: one for new nodes, one for those
//! that are kept true, so that a change of the whole fleet never holds up a new node.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::Claim;
use ccm_controller::{queue::Priority, writer::Stopped};
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::Controller,
    execute::Unfinished,
    lookups::resume_panic,
    metrics::State,
    observe,
    pace::Pace,
    plan::{Answer, Outcome, Plan, Wait, WaitReason, plan},
};

/// When to look again at what only a person can mend, or what is somebody else's.
const RARELY: Duration = Duration::from_mins(5);
/// When to look again at an annotation that does not fit: the cloud may attach the
/// address later. A change of the node is looked at at once.
const NODE_IP_RECHECK: Duration = Duration::from_secs(30);
/// The wait after a conflict: the informer needs a moment to see who was faster.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// After so many conflicts in a row the usual back-off takes over.
const MANY_CONFLICTS: u32 = 8;

/// One node and what the cloud said about it.
#[derive(Debug)]
pub(crate) struct Work {
    /// The node as it was asked about.
    pub(crate) node: Arc<Node>,
    /// The answer.
    pub(crate) answer: Answer,
}

/// Works on what comes in, at most `limit` nodes at once, until the token is cancelled.
pub(crate) async fn pool(
    controller: Arc<Controller>,
    mut work: mpsc::Receiver<Work>,
    limit: impl Fn(&Controller) -> usize + Send,
    token: CancellationToken,
) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            Some(ended) = running.join_next() => resume_panic(ended),
            next = work.recv(), if running.len() < limit(&controller).max(1) => {
                let Some(work) = next else {
                    token.cancelled().await;
                    return;
                };
                let controller = Arc::clone(&controller);
                running.spawn(async move {
                    controller.settle(&work).await;
                    controller.done(&work.node.name);
                });
            }
        }
    }
}

impl Controller {
    /// Plans for the node as it is now, and carries the plan out.
    async fn settle(&self, work: &Work) {
        let Work { node: asked, answer } = work;
        let Some(node) = self.store.get(&asked.name) else { return };
        if !observe::same_machine(asked, &node) {
            // The answer is about another one.
            self.queue.add(Arc::clone(&node.name), Priority::Urgent);
            return;
        }
        let facts = observe::facts(&node);
        let claim = self.claim(&node).unwrap_or(Claim::Unclaimed);
        let plan = plan(&facts, claim, answer, self.settings().policy());
        match &plan.outcome {
            Outcome::Initialised | Outcome::KeptTrue => self.carry_out(&node, &plan).await,
            Outcome::Waits(wait) => self.wait(&node, wait, answer),
            outcome => self.leave_alone(&node, outcome),
        }
    }

    async fn carry_out(&self, node: &Arc<Node>, plan: &Plan) {
        self.tell_notes(node, plan);
        if plan.outcome == Outcome::Initialised {
            tracing::info!(
                node = &*node.name,
                "Initializing node {} with cloud provider",
                node.name
            );
        }
        match self.execute(node, plan).await {
            Ok(()) => {
                self.ledger.set_state(&node.name, State::Initialised);
                self.ledger.settled(&node.name);
                self.queue.forget(&node.name);
            }
            Err(Unfinished { why: Stopped::Lost(lost), .. }) => {
                // A term that is merely short gets longer with the next renewal.
                tracing::debug!(node = &*node.name, "not written: {lost}");
                self.queue.retry(Arc::clone(&node.name));
            }
            Err(Unfinished { what, why: Stopped::Refused(error) }) => {
                self.refused(node, what, &error);
            }
        }
    }

    fn refused(&self, node: &Node, what: &'static str, error: &ApiError) {
        let name = &node.name;
        match error {
            // Deleted meanwhile: the informer will say so.
            ApiError::NotFound => return,
            ApiError::Conflict => {
                let conflicts = self.ledger.conflict(name);
                if conflicts <= MANY_CONFLICTS {
                    let priority =
                        if node.is_uninitialised() { Priority::Urgent } else { Priority::Routine };
                    tracing::debug!(
                        node = &**name,
                        conflicts,
                        "the node has changed meanwhile, planning again"
                    );
                    self.queue.add_after(Arc::clone(name), AFTER_CONFLICT * conflicts, priority);
                    return;
                }
            }
            _ => {}
        }
        let pace = self.retry(name, error.class());
        if node.is_uninitialised() {
            self.ledger.set_state(name, State::WriteFailing);
        }
        self.tell_refused(node, what, error, pace);
    }

    /// The node keeps its taint.
    fn wait(&self, node: &Node, wait: &Wait, answer: &Answer) {
        let name = &node.name;
        self.ledger.set_state(name, State::Waiting(wait.reason));
        let pace = match answer {
            Answer::Failed(error) => self.retry(name, error.class()),
            _ if wait.reason == WaitReason::NodeIp => self.again(name, NODE_IP_RECHECK),
            _ => self.retry(name, RetryClass::Retry),
        };
        // A new node can be faster than the cloud's own list, and the node of another
        // cloud is tainted for a moment, too: the first time is no news.
        let news = wait.reason != WaitReason::InstanceNotFound || self.queue.failures(name) > 1;
        if news {
            self.tell_wait(node, wait, pace);
        }
    }

    fn leave_alone(&self, node: &Node, outcome: &Outcome) {
        let name = &node.name;
        let uninitialised = node.is_uninitialised();
        let state = match outcome {
            Outcome::Foreign => {
                self.queue.forget(name);
                return self.foreign(node);
            }
            Outcome::NotOurs(_) => State::NotOurs,
            Outcome::InstanceGone => State::InstanceGone,
            _ => State::Unknown,
        };
        self.tell_left_alone(node, outcome);
        self.ledger.set_state(name, state);
        self.queue.forget(name);
        if uninitialised && state == State::NotOurs {
            self.again(name, RARELY);
        }
    }

    /// Has the node looked at again as this kind of failure asks for. Tells how often.
    fn retry(&self, name: &Name, class: RetryClass) -> Pace {
        match class {
            RetryClass::RetryAfter(after) => {
                self.queue.retry_after(Arc::clone(name), after);
                Pace::Asked(after)
            }
            RetryClass::Permanent => self.again(name, RARELY),
            RetryClass::Retry => {
                self.queue.retry(Arc::clone(name));
                Pace::Growing { failures: self.queue.failures(name) }
            }
        }
    }

    /// Has the node looked at again after this time; a change of the node comes first.
    fn again(&self, name: &Name, after: Duration) -> Pace {
        self.queue.add_after(Arc::clone(name), after, Priority::Routine);
        Pace::Every(after)
    }
}
