//! A node with the cloud's answer about it: the plan, and its execution.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{Claim, LookupResult};
use ccm_controller::queue::Priority;
use ccm_controller::repeats::Repeated;
use ccm_objects::{Node, Shared as Name};

use super::{
    Again, Came, Effect, Machine, NodeState, Queued, Report, RetryReason, Work,
    corrections::Later,
    gathered::Pause,
    written::{Inputs, Writing},
};
use crate::plan::{Outcome, Plan, Policy, Wait, WaitReason};

/// Retry interval for a provided-node-ip annotation that does not match: the cloud may attach
/// the address later. A change of the node triggers a sync at once.
const NODE_IP_RECHECK: Duration = Duration::from_secs(30);
/// The number of times that an initialised node without an answer is looked up again, within half a
/// minute. Then it waits for the next refresh.
const LOOKUPS_BEFORE_REFRESH: u32 = 5;

impl Machine {
    /// Returns the settings of a plan, with the traits of the cloud.
    pub(super) fn policy(&self, labels_only_add: bool) -> Policy {
        Policy { labels_only_add, ..self.params.policy }
    }

    /// Plans from the current state of the node, and begins to execute the plan.
    pub(super) fn work(&mut self, Work { asked, seen, answer, rivals, failures }: Work) {
        let node = &seen.node;
        if !asked.has_identity_of(node) {
            // The node was replaced or changed its identity since the lookup.
            return self.queue(&node.name, Queued::Add(Priority::Urgent));
        }
        let claim = self.claim(&seen).unwrap_or(Claim::Unclaimed);
        let (policy, agreed) = (self.policy(seen.labels_only_add), self.entry(&node.name).agreed);
        let inputs = Inputs { claim, answer, policy, rivals, agreed };
        let plan = Arc::new(inputs.plan(node));
        if node.is_uninitialised() {
            // Another client has set the taint. As an initialised node it may have waited.
            self.leaves_brake(&node.uid);
            self.leaves_turns(&node.name);
        }
        let last = self.entry(&node.name).take_last();
        let is_settled = plan.outcome == Outcome::InSync;
        let pause = if is_settled { self.pass_brake(node, &plan).err() } else { None };
        self.say(Effect::Publish(Arc::clone(node), Arc::clone(&plan), pause));
        if let Some(pause) = pause {
            return self.pause(node, &plan, pause);
        }
        let may_write = match &plan.outcome {
            Outcome::Initialised | Outcome::InSync if self.params.is_observing => {
                self.observed(node, &plan);
                false
            }
            Outcome::Initialised => self.take_turn_to_initialise(node, &plan),
            Outcome::InSync => self.take_turn_to_correct(node, &plan),
            Outcome::Waits(wait) => {
                self.wait(node, wait, &inputs.answer, failures);
                false
            }
            outcome => {
                self.skip(node, outcome, &inputs.answer, failures);
                false
            }
        };
        if may_write {
            // The explanation shows the last failure until this work succeeds.
            let entry = self.entry(&node.name);
            entry.last = entry.last.take().or(last);
            self.begin(Writing::new(node, plan, inputs));
        } else {
            self.note_agreement(node, &inputs);
        }
    }

    /// Publishes the plan without executing it, in observe mode. The refresh does not
    /// run before a node is initialised, so uninitialised nodes are queued again.
    fn observed(&mut self, node: &Arc<Node>, plan: &Arc<Plan>) {
        self.report(node, Report::Notes(Arc::clone(plan)));
        let name = &node.name;
        self.settled(name);
        if !plan.steps.is_empty() && self.entry(name).last.is_none() {
            self.came(name, Came::Observed, None);
        }
        if plan.outcome == Outcome::Initialised {
            self.set_state(name, NodeState::Pending);
            self.again(name, Again::Rarely);
        } else {
            self.set_state(name, NodeState::Initialised);
        }
    }

    /// Returns true if a new node is written now. Queues it for later if the API server or another
    /// client reverts the same change.
    fn take_turn_to_initialise(&mut self, node: &Arc<Node>, plan: &Arc<Plan>) -> bool {
        let Err(Later { wait, repeated }) = self.take_turn(&node.name, 0, &plan.fields()) else {
            return true;
        };
        self.set_state(&node.name, NodeState::WriteFailing);
        self.taken_back(node, plan, repeated);
        self.queue(&node.name, Queued::Again(Again::Every(wait)));
        false
    }

    /// Returns true if an initialised node is written now. Queues it for later if it is not its turn,
    /// or if another writer reverts the plan's corrections.
    fn take_turn_to_correct(&mut self, node: &Arc<Node>, plan: &Arc<Plan>) -> bool {
        let allowed = self.take_turn(&node.name, plan.steps.len(), &plan.fields());
        let Err(Later { wait, repeated }) = allowed else { return true };
        self.taken_back(node, plan, repeated);
        self.later(node, wait);
        false
    }

    /// Reports that another client undoes the writes of this plan. A write that the answer does not
    /// show was reported with the answer.
    fn taken_back(&mut self, node: &Arc<Node>, plan: &Arc<Plan>, repeated: Option<Repeated>) {
        if let Some(repeated) = repeated.filter(|repeated| !repeated.is_refused) {
            self.report(node, Report::Repeated(Arc::clone(plan), repeated));
        }
    }

    /// Plans this initialised node again after this time.
    fn later(&mut self, node: &Node, wait: Duration) {
        if node.provider_id.is_none() {
            // The inventory finds instances by ID only.
            self.require(&node.name);
        }
        self.queue(&node.name, Queued::After(wait));
    }

    /// Pauses a plan that the brake does not let pass now.
    fn pause(&mut self, node: &Arc<Node>, plan: &Arc<Plan>, pause: Pause) {
        match pause {
            Pause::Gathers(until) => self.later(node, until.since(self.now)),
            Pause::Held(hold) => {
                self.set_state(&node.name, NodeState::Initialised);
                self.report(node, Report::Held(Arc::clone(plan), hold));
                self.queue(&node.name, Queued::Forget);
            }
        }
    }

    /// Lets the node wait: it keeps its taint.
    fn wait(&mut self, node: &Arc<Node>, wait: &Wait, answer: &LookupResult, failures: u32) {
        let (name, state) = (&node.name, NodeState::Waiting(wait.reason));
        if wait.reason == WaitReason::Identity && self.state(name) != Some(state) {
            self.say(Effect::HeldUnconfirmed);
        }
        self.set_state(name, state);
        let again = match answer {
            Err(error) => Again::As(error.class()),
            _ if wait.reason == WaitReason::NodeIp => Again::Every(NODE_IP_RECHECK),
            // A change of the node, or the end of the other one, triggers a sync at once.
            _ if wait.reason == WaitReason::Identity => Again::Rarely,
            _ => Again::As(RetryClass::Retry),
        };
        self.came(name, Came::from_outcome(&Outcome::Waits(wait.clone()), answer), Some(again));
        // A new node can register before the cloud's own list shows its instance, and a node of
        // another provider is also tainted for a moment: the first time is not reported.
        if wait.reason == WaitReason::InstanceNotFound && failures == 0 {
            if let Some(last) = &mut self.entry(name).last {
                last.is_first = true;
            }
            return self.queue(name, Queued::Again(again));
        }
        self.say(Effect::Retry(Arc::clone(node), again, RetryReason::Waits(wait.clone())));
    }

    fn skip(&mut self, node: &Arc<Node>, outcome: &Outcome, answer: &LookupResult, failures: u32) {
        let name = &node.name;
        let state = match outcome {
            Outcome::Foreign => {
                self.queue(name, Queued::Forget);
                return self.left_out(node);
            }
            Outcome::NotOurs(_) => NodeState::NotOurs,
            Outcome::InstanceGone => NodeState::InstanceGone,
            Outcome::Unconfirmed(_) | Outcome::Doubted(_) => NodeState::Unconfirmed,
            _ => NodeState::Unknown,
        };
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.leaves_brake(&node.uid);
            self.leaves_turns(name);
        }
        self.report(node, Report::Skipped(outcome.clone()));
        self.set_state(name, state);
        self.came(name, Came::from_outcome(outcome, answer), None);
        if let Err(error) = answer
            && error.class() != RetryClass::Permanent
            && failures < LOOKUPS_BEFORE_REFRESH
        {
            return self.ask_again(name, error.class());
        }
        self.queue(name, Queued::Forget);
        if node.is_uninitialised() && state == NodeState::NotOurs {
            self.again(name, Again::Rarely);
        }
    }

    /// Asks the cloud again about an initialised node without an answer.
    pub(super) fn ask_again(&mut self, name: &Name, class: RetryClass) {
        self.require(name);
        self.again(name, Again::As(class));
    }
}
