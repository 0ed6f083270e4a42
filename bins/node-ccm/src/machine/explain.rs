//! Explains a node on the page `/explain`: its state, the reason and the remedy. It reads the
//! memory and the node in the store, and does not change them.

mod braked;
mod fixes;

use std::sync::Arc;

use ccm_base::{At, duration};
use ccm_cloud::{CloudError, Instance, ProviderId};
use ccm_controller::{
    queue::Pace,
    repeats::{Content, Repeated},
};
use ccm_objects::Node;
use ccm_runtime::explain::{Explanation, ObjectState, moment, state_for_error};

use super::{
    Machine, SeenNode,
    entry::{Came, Last, NodeMemory},
    lookups::{STALE_PERIODS, unknown_schemes_error},
};
use crate::plan::{
    Note, Outcome, PROVIDED_NODE_IP, Plan, PlanInputs, Step, UNINITIALIZED, WaitReason, addresses,
    follow, text,
};

/// The facts about a node that are not in the memory.
#[derive(Debug, Default)]
pub(crate) struct NodeFacts {
    /// The node in the store, and what the traits of the cloud say of it.
    pub(crate) seen: Option<SeenNode>,
    /// The other nodes with its provider ID.
    pub(crate) rivals: Vec<Arc<Node>>,
    /// True if `--node-selector` selects it.
    pub(crate) is_selected: bool,
    /// The reason why node-ccm leaves out the node, if it does.
    pub(crate) why_left_out: Option<String>,
    /// True if the store has been listed.
    pub(crate) is_listed: bool,
}

/// A node of this provider, and what the cloud has last said of it.
struct Own<'a> {
    node: &'a Node,
    entry: Option<&'a NodeMemory>,
    /// Its instance, and when the cloud has shown it like this.
    known: Option<(&'a Instance, At)>,
    /// The plan by that.
    plan: Option<Plan>,
}

impl Machine {
    /// Explains the node with this name.
    pub(crate) fn explain(&self, name: &str, shown: &NodeFacts, now: At) -> Explanation {
        let Some(seen) = &shown.seen else { return without_node(name, shown.is_listed) };
        let node = &*seen.node;
        let mut told = match &shown.why_left_out {
            Some(why) => left_out(node, why, shown.is_selected),
            None if !self.leads => Explanation::new(ObjectState::Unknown, STANDBY, fixes::STANDBY),
            None => {
                let own = self.own(seen, &shown.rivals);
                let mut told = self.explain_own(&own, seen, now);
                own.detail(&mut told, now);
                told
            }
        };
        if node.deleting {
            told.cause = format!(
                "it is being deleted, and treated as before until it is gone; {}",
                told.cause
            );
        }
        let rivals = shown.rivals.iter().map(|rival| &*rival.name).collect::<Vec<_>>().join(", ");
        told.there.insert(0, described(node));
        if !rivals.is_empty() {
            told.there.push(format!("other nodes have its provider ID: {rivals}"));
        }
        told
    }

    fn own<'a>(&'a self, seen: &'a SeenNode, rivals: &[Arc<Node>]) -> Own<'a> {
        let node = &*seen.node;
        let entry = self.entries.get(&node.name);
        let listed = seen.id.as_deref().and_then(|id| self.inventory.get(id));
        let listed = listed.map(|known| (&*known.instance, known.seen));
        let answered = entry.and_then(|entry| entry.last_instance(node));
        let known = listed.into_iter().chain(answered).max_by_key(|(_, at)| *at);
        let agreed = entry.map(|entry| entry.agreed).unwrap_or_default();
        let policy = self.policy(seen.labels_only_add);
        let plan = known
            .map(|(instance, _)| follow(node, instance, policy, PlanInputs { rivals, agreed }));
        Own { node, entry, known, plan }
    }

    /// Explains a node of this provider. The first reason that applies is the one that an operator
    /// needs to know.
    fn explain_own(&self, own: &Own<'_>, seen: &SeenNode, now: At) -> Explanation {
        let node = own.node;
        if self.claim(seen).is_none() {
            let cause = unknown_schemes_error().message;
            return Explanation::new(ObjectState::Working, cause, fixes::CLOUD_SILENT);
        }
        if let Some(writing) = self.writing.get(&node.name) {
            let told = Explanation::new(ObjectState::Working, writing.told(), fixes::WAIT);
            return Explanation { next: "when the API server has answered".to_owned(), ..told };
        }
        let told = match own.entry.and_then(|entry| entry.last.as_deref()) {
            Some(last) if !matches!(last.came, Came::Observed) => {
                Explanation { next: self.next(last, now), ..ended(node, last) }
            }
            last => self.only_observed(own, last, now).unwrap_or_else(|| self.planned(own, now)),
        };
        let next = match told.next.is_empty() {
            true => self.next_refresh(now),
            false => told.next,
        };
        Explanation { next, ..told }
    }

    /// Explains a write that is due in observe mode. node-ccm does not keep the plan of a node
    /// without a provider ID.
    fn only_observed(&self, own: &Own<'_>, last: Option<&Last>, now: At) -> Option<Explanation> {
        let is_due = own.plan.as_ref().map_or(last.is_some(), |plan| !plan.steps.is_empty());
        let told = Explanation::observed("");
        let next = last.map(|last| self.next(last, now)).unwrap_or_default();
        (is_due && self.params.is_observing).then_some(Explanation { next, ..told })
    }

    /// Explains what is due, given what is known of the instance.
    fn planned(&self, own: &Own<'_>, now: At) -> Explanation {
        let held = self.held(own, now);
        let waits = held.or_else(|| own.repeated(now)).or_else(|| self.gathered(own, now));
        waits.unwrap_or_else(|| match &own.plan {
            Some(plan) => self.explain_plan(own, plan, now),
            None => not_asked(own.node),
        })
    }

    /// Explains the plan by the last answer of the cloud.
    fn explain_plan(&self, own: &Own<'_>, plan: &Plan, now: At) -> Explanation {
        let node = own.node;
        let Some((instance, at)) = own.known else { return not_asked(node) };
        let id = &instance.provider_id;
        if !matches!(plan.outcome, Outcome::Initialised | Outcome::InSync) {
            return planned(node, &plan.outcome);
        }
        if !plan.steps.is_empty() {
            return self.differing(node, id, plan);
        }
        if let Some(told) = kept_as_it_is(node, plan) {
            return told;
        }
        if !addresses::have_ip(&node.addresses) && !self.params.policy.without_address {
            let cause = addresses::missing(instance);
            return Explanation::new(ObjectState::Blocked, cause, fixes::NO_ADDRESS);
        }
        let agrees = format!("it is initialised and agrees with its instance {id}");
        if now.since(at) > self.params.period.saturating_mul(STALE_PERIODS) {
            let cause = format!(
                "{agrees} as the cloud showed it {}, and the cloud has not shown it since",
                moment(at, now)
            );
            return Explanation::new(ObjectState::Working, cause, fixes::CLOUD_SILENT);
        }
        Explanation::fine(format!("{agrees}, as the cloud showed it {}", moment(at, now)))
    }

    /// Explains a plan with steps, if node-ccm does not know of an obstacle.
    fn differing(&self, node: &Node, id: &ProviderId, plan: &Plan) -> Explanation {
        let reasons = plan.steps.iter().map(Step::reason).collect::<Vec<_>>();
        let reasons = reasons.join("; ");
        let what = match node.is_uninitialised() {
            true => "its instance is known, and its first writes are due",
            false => "it differs from its instance, and its write is due",
        };
        let cause = format!("{what} ({id}: {reasons})");
        let mut told = Explanation::new(ObjectState::Working, cause, fixes::WAIT);
        told.next = match self.waiting() {
            0 => "within seconds".to_owned(),
            waiting => format!(
                "when its turn comes: {waiting} initialised nodes wait for theirs (--node-correction-qps)"
            ),
        };
        told
    }

    /// Returns when node-ccm tries a node again whose last work did not end well.
    fn next(&self, last: &Last, now: At) -> String {
        let Some(pace) = last.pace else { return self.next_refresh(now) };
        let (wait, how) = match pace {
            Pace::Backoff(backoff) => (backoff.longest, "at the latest "),
            Pace::Every(wait) | Pace::RetryAfter(wait) => (wait, ""),
        };
        due_at(last.at + wait, how, pace, now)
    }

    /// Returns when node-ccm looks up all nodes next.
    fn next_refresh(&self, now: At) -> String {
        let period = duration::format(self.params.period);
        let all = format!("all nodes are looked up every {period}, give or take 10 %");
        match self.inventory.age(now).map(|age| now - age + self.params.period) {
            Some(at) if now < at => format!("{all}: about {}", moment(at, now)),
            Some(_) => format!("{all}: that is under way, or has failed"),
            None => format!("{all}: not yet since this replica leads"),
        }
    }
}

const STANDBY: &str = "this replica does not lead, or has begun to lead and waits for a current list of the nodes: it has not looked at the node";

fn without_node(name: &str, is_listed: bool) -> Explanation {
    match is_listed {
        true => {
            let cause = format!("the API server does not show a node {name:?}");
            Explanation::new(ObjectState::Unknown, cause, fixes::NO_NODE)
        }
        false => {
            let cause = "the nodes have not been listed yet";
            Explanation::new(ObjectState::Unknown, cause, fixes::NOT_LISTED)
        }
    }
}

fn left_out(node: &Node, why: &str, is_selected: bool) -> Explanation {
    let waits = if node.is_uninitialised() {
        "; it stays tainted until another controller initialises it"
    } else {
        ""
    };
    Explanation::new(
        ObjectState::Foreign,
        format!("{why}{waits}"),
        fixes::left_out(node, is_selected),
    )
}

/// Explains a node about which this leader does not have an answer of the cloud.
fn not_asked(node: &Node) -> Explanation {
    let cause = "this leader does not have an answer of the cloud about this node yet";
    let told = Explanation::new(ObjectState::Working, cause, fixes::CLOUD_SILENT);
    let next = match node.is_uninitialised() {
        true => "it is being looked up".to_owned(),
        false => String::new(),
    };
    Explanation { next, ..told }
}

fn due_at(at: At, how: &str, pace: Pace, now: At) -> String {
    match now < at {
        true => format!("{how}{} (retrying {pace})", moment(at, now)),
        false => format!("now: it is due or being looked up (retrying {pace})"),
    }
}

/// Returns the present state of the node, in one line.
fn described(node: &Node) -> String {
    let taint = match node.is_uninitialised() {
        true => format!("taint {UNINITIALIZED}"),
        false => "initialised".to_owned(),
    };
    let ready = if node.is_ready() { "Ready" } else { "not Ready" };
    let id = node.provider_id.as_deref().unwrap_or("none");
    let addresses = match node.addresses.as_slice() {
        [] => "no address".to_owned(),
        list => text::list(list),
    };
    let wanted = node.annotation(PROVIDED_NODE_IP);
    let wanted = wanted.map(|ip| format!("; {PROVIDED_NODE_IP}: {ip}"));
    format!("{taint}; {ready}; provider ID {id}; {addresses}{}", wanted.unwrap_or_default())
}

/// Explains a node whose last work has not ended as it should.
fn ended(node: &Node, last: &Last) -> Explanation {
    match &last.came {
        Came::Planned(outcome) if last.is_first => {
            Explanation { state: ObjectState::Working, ..planned(node, outcome) }
        }
        Came::Planned(outcome) => planned(node, outcome),
        Came::Gone(proof) => {
            gone(node, format!("its instance is gone: {proof}; it is not written"))
        }
        Came::Unanswered(error) => {
            let state = state_for_error(error);
            let until = match state {
                ObjectState::Blocked => "that is fixed",
                _ => "the cloud answers",
            };
            let what = if node.is_uninitialised() { "stays tainted" } else { "keeps what it has" };
            let cause = format!("{error}; it {what} until {until}");
            Explanation::new(state, cause, fixes::cloud(node, error))
        }
        Came::Refused(what, error) => {
            let cause = match error.is_uncertain() {
                true => format!("the write of the {what} of the node has failed: {error}"),
                false => format!("the API server refuses to write {what} of the node: {error}"),
            };
            let (state, fix) = fixes::refused(node, error);
            Explanation::new(state, cause, fix)
        }
        Came::Observed => Explanation::observed(""),
    }
}

/// Explains a node whose instance is gone. lifecycle-ccm decides about a node that is not Ready.
fn gone(node: &Node, cause: String) -> Explanation {
    let state = if node.is_ready() { ObjectState::Blocked } else { ObjectState::Working };
    Explanation::new(state, cause, fixes::gone(node))
}

/// Explains a node to which node-ccm may not write.
fn planned(node: &Node, outcome: &Outcome) -> Explanation {
    match outcome {
        Outcome::NotOurs(why) => {
            let cause = format!("the cloud says that another controller is responsible: {why}");
            Explanation::new(ObjectState::Foreign, cause, fixes::left_out(node, true))
        }
        Outcome::Waits(wait) => {
            let (event, what) = wait.reason.event();
            let cause = format!("it stays tainted {what}: {} ({event})", wait.message);
            let (state, fix) = match wait.reason {
                WaitReason::InstanceNotFound => (ObjectState::Blocked, fixes::not_found(node)),
                WaitReason::NodeIp => (ObjectState::Blocked, fixes::NODE_IP.to_owned()),
                WaitReason::NoAddress => (ObjectState::Blocked, fixes::NO_ADDRESS.to_owned()),
                WaitReason::Identity => (ObjectState::Blocked, fixes::identity(node)),
                WaitReason::Cloud(kind) => {
                    let error = CloudError::new(kind, "");
                    (state_for_error(&error), fixes::cloud(node, &error))
                }
            };
            Explanation::new(state, cause, fix)
        }
        Outcome::Unconfirmed(id) => Explanation::new(
            ObjectState::Blocked,
            outcome.to_string(),
            fixes::unconfirmed(node, id),
        ),
        Outcome::Doubted(_) => {
            Explanation::new(ObjectState::Blocked, outcome.to_string(), fixes::identity(node))
        }
        other => gone(node, other.to_string()),
    }
}

/// Explains why node-ccm does not write the node, if a person should know.
fn kept_as_it_is(node: &Node, plan: &Plan) -> Option<Explanation> {
    let why = |note: &Note| match note {
        Note::NodeIpRefused(_) => Some((ObjectState::Blocked, fixes::NODE_IP.to_owned())),
        Note::InternalIpHeld { to, .. } => {
            Some((ObjectState::Held, fixes::internal_ip(to.is_some())))
        }
        Note::Doubted(doubt) if doubt.holds() => {
            Some((ObjectState::Blocked, fixes::identity(node)))
        }
        _ => None,
    };
    let mut told = plan.notes.iter().filter_map(|note| {
        let (state, fix) = why(note)?;
        let cause = format!("{note} ({})", note.event().0);
        Some(Explanation::new(state, cause, fix))
    });
    told.next()
}

impl Own<'_> {
    /// Explains a write that is due again: another client, the API server or a policy reverts it.
    fn repeated(&self, now: At) -> Option<Explanation> {
        let (entry, plan) = (self.entry?, self.plan.as_ref()?);
        let check = |(field, value): &(String, String)| {
            entry.made.check(now, field, || Content::digest(value)).err()
        };
        let fields = plan.fields();
        let repeated = fields.iter().filter_map(check).max_by_key(|one| one.wait)?;
        let Repeated { kind, wait, is_refused, .. } = &repeated;
        let cause = match is_refused {
            true => repeated.to_string(),
            false => text::repeated(self.node, plan, &repeated),
        };
        let fix = fixes::repeated(self.node, kind, *is_refused);
        let next = moment(now + *wait, now);
        Some(Explanation { next, ..Explanation::new(ObjectState::Blocked, cause, fix) })
    }

    /// Adds the last answer of the cloud, and the notes of the plan.
    fn detail(&self, told: &mut Explanation, now: At) {
        let last = self.entry.and_then(|entry| entry.last.as_deref());
        let is_gone = last.is_some_and(|last| matches!(last.came, Came::Gone(_)));
        if let Some((instance, at)) = self.known {
            told.wanted.extend(wished(self.node, instance).filter(|_| !is_gone));
            let (id, name) = (&instance.provider_id, &instance.name);
            told.there
                .push(format!("instance {id} {name:?}, shown by the cloud {}", moment(at, now)));
        }
        let news = |text: &String| !told.cause.contains(&**text);
        let notes = self.plan.iter().flat_map(|plan| &plan.notes).map(Note::to_string);
        told.last.extend(notes.filter(news).collect::<Vec<_>>());
        if let Some(last) = last {
            let what = match &last.came {
                Came::Observed => return,
                Came::Planned(Outcome::Waits(wait)) => wait.message.clone(),
                Came::Planned(outcome) => outcome.to_string(),
                Came::Gone(proof) => proof.to_string(),
                Came::Unanswered(error) => error.to_string(),
                Came::Refused(_, error) => error.to_string(),
            };
            let what = if told.cause.contains(&what) { "the cause was found" } else { &what };
            told.last.push(format!("{what}, {}", moment(last.at, now)));
        }
    }
}

/// Returns the values that the node should have by its instance.
fn wished(node: &Node, instance: &Instance) -> Option<String> {
    let list = addresses::desired(node, instance).ok().flatten()?;
    let shown = |what: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!(", {what} {value}")).unwrap_or_default()
    };
    let type_ = shown("type", &instance.instance_type);
    let zone = shown("zone", &instance.zone);
    let region = shown("region", &instance.region);
    Some(format!("{}{type_}{zone}{region}", text::list(&list)))
}

#[cfg(test)]
mod tests;
