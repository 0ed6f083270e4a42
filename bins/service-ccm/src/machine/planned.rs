//! The plan of one Service, and what follows from it for the memory.

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::Digest;
use ccm_controller::brake::approval::is_marked_at;
use ccm_objects::Service;

use super::{
    Machine,
    effect::Effect,
    entry::BalancerEntry,
    event::{Due, Offer},
    last_plan::LastPlan,
};
use crate::plan::{
    APPROVED, CallKind, Classes, Failed, Inputs, List, Plan, RELEASE_APPROVED,
    REPLACEMENT_APPROVED, Step, View, approving_mark, awaits_members, conditions,
    evidence::{self, class},
    front_end::{SpecProblem, spec_front_end},
    held_calls,
    losses::{LossVerdict, Now, recorded},
    members::{Decision, Held, MemberRules},
    plan,
    reason::{Reason, SERVING},
    shown::refused,
    shows_members,
};

/// The plan for a Service.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// True if it gives the Service a load balancer, or keeps its one.
    is_served: bool,
    /// The decision about its members.
    pub(crate) members: Decision,
    /// The mistakes in the Service.
    pub(crate) problems: Vec<SpecProblem>,
    /// The cloud's trouble with the load balancer, if the Service should show it.
    pub(crate) trouble: Option<String>,
    /// True if it waits for the user to approve the adoption of another controller's load balancer.
    pub(crate) waits_for_adoption: bool,
    /// The reason why it does not get its own load balancer, if it uses one of others.
    pub(crate) stays_on_foreign: Option<String>,
    /// The calls that wait because they have failed.
    pub(crate) held_calls: Vec<(Step, Failed)>,
    /// The reason why it waits, if its namespace has as many load balancers as it may have.
    pub(crate) full: Option<String>,
    /// True if another load balancer replaces the one that the Service has.
    pub(crate) is_replaced: bool,
    /// True if a call may make a new load balancer to replace the one that the Service has.
    pub(crate) may_replace: bool,
    /// The other inputs of its calls, besides the Service.
    pub(crate) inputs: Inputs,
    /// True if the members should be read before they change.
    pub(crate) reads_members: bool,
    /// The parts that its explanation needs.
    pub(crate) last_plan: LastPlan,
}

impl Planned {
    /// Returns the plan of this view. `held_replacement`: why no other load balancer is made, and
    /// until when.
    fn new(view: View<'_>, held_replacement: Option<(String, At)>) -> Self {
        let View { service, state, .. } = view;
        let (plan, held_release) = (plan(view), evidence::held_release(view));
        let has_part = plan != Plan::NotOurs && held_release.is_none();
        let is_served = has_part && service.is_load_balancer && !service.deleting;
        let stays_on_foreign = state.stays_on_foreign(service, view.traits);
        let stays_on_foreign = stays_on_foreign.filter(|_| is_served);
        let held_calls = match stays_on_foreign {
            Some(_) => Vec::new(),
            None => held_calls(view).into_iter().map(|(step, it)| (step, it.clone())).collect(),
        };
        let conditions = if has_part { conditions(view) } else { Vec::new() };
        let is_shown = |it: &(Reason, String)| conditions.iter().any(|(reason, _)| *reason == it.0);
        let trouble = state.trouble().filter(|it| is_served && is_shown(it));
        let problems = held_release.is_none().then(|| view.spec.problems.clone());
        let held = &view.members.held;
        let last_plan = LastPlan {
            is_made: true,
            conditions,
            is_not_ours: plan == Plan::NotOurs,
            is_due: matches!(plan, Plan::Next(_)),
            held_release,
            held_replacement,
            refused: refused(view),
            unclaimed: evidence::unclaimed(view, &plan),
            calls: held_calls.iter().map(|(_, failed): &(Step, Failed)| failed.call).collect(),
            is_last_held: !held.is_empty() && held.values().all(|why| *why == Held::Last),
        };
        Self {
            is_served,
            waits_for_adoption: is_served && state.waits_for_adoption(view),
            plan,
            members: view.members.clone(),
            problems: problems.unwrap_or_default(),
            trouble: trouble.map(|(_, text)| text),
            held_calls,
            stays_on_foreign,
            full: view.full.map(str::to_owned),
            is_replaced: view.loss == LossVerdict::Replaced,
            may_replace: view.loss == LossVerdict::Replaced || recorded(service).is_none(),
            inputs: view.inputs,
            reads_members: awaits_members(view),
            last_plan,
        }
    }
}

impl Machine {
    /// Plans a Service as it is now.
    pub(super) fn plan(
        &mut self,
        due: &Due,
        service: &Service,
        offer: &Offer,
        (now, effects): (At, &mut Vec<Effect>),
    ) -> Planned {
        let (spec, traits) = (spec_front_end(service, &self.cluster, &offer.traits), &offer.traits);
        let loss = self.loss(service, due.is_same_cloud, offer, now);
        let list = if traits.lists { self.balancers.list } else { List::Compared };
        let is_right = spec.front_end.is_some();
        let (full, next) = self.full(service, &due.neighbours, is_right, list);
        effects.extend(next);
        let (nodes, inputs) = (Arc::clone(&self.nodes.set), self.inputs());
        let approved = self.is_approved(service, APPROVED, now);
        let held_replacement = self.held_replacement(service, loss);
        let settings = &self.parameters;
        let entry = self.balancers.entry(service);
        let rules = MemberRules {
            budget: settings.budget,
            approved,
            selector: &due.selector,
            is_default: due.is_default,
            families: &entry.families(traits),
            in_cloud: entry.members_in_cloud(),
        };
        let members = entry.membership.decide(now, &nodes, rules);
        entry.see_members(&members, inputs.nodes);
        entry.note_class(service, &settings.classes);
        let may_release = entry.may_release(service, now);
        entry.state.was_marked |= Classes::is_marked(service);
        let view = View {
            service,
            spec: &spec,
            classes: &settings.classes,
            state: &entry.state,
            members: &members,
            members_known: entry.membership.is_known(),
            members_unread: traits.lists && entry.is_unread(service),
            adopts: settings.adopts,
            traits,
            may_release,
            loss,
            full: full.as_deref(),
            is_limited: settings.most_per_namespace > 0,
            list,
            guard: (&settings.shown, &self.in_use),
            inputs,
            now,
        };
        let mut planned = Planned::new(view, held_replacement);
        entry.is_wrong = planned.is_served && !is_right;
        entry.see(service, &mut planned);
        planned
    }

    /// Returns true if a user has approved what this key means: by a mark on the Service, or for a set.
    fn is_approved(&self, service: &Service, key: &str, now: At) -> bool {
        let Some(details) = &service.details else { return false };
        let [members, replacements] = &self.approved;
        let set = if key == REPLACEMENT_APPROVED { replacements } else { members };
        is_marked_at(service.annotation(key), details.labels.get(key), now)
            || set.as_ref().is_some_and(|set| set.covers(&details.labels))
    }

    /// Returns the inputs of calls, besides their Services.
    pub(super) fn inputs(&self) -> Inputs {
        Inputs { nodes: self.balancers.nodes, revision: self.revision }
    }

    /// Returns what follows if the load balancer of this Service is gone or has failed.
    fn loss(
        &mut self,
        service: &Service,
        is_same_cloud: bool,
        offer: &Offer,
        at: At,
    ) -> LossVerdict {
        if service.deleting || !self.parameters.classes.cover(service) {
            return LossVerdict::Kept;
        }
        let asks = offer.traits.asks_before_replacing;
        let now = Now {
            at,
            approved: self.is_approved(service, REPLACEMENT_APPROVED, at),
            can_ask: asks && recorded(service).is_some(),
            is_same_cloud,
        };
        self.losses.decide(&service.uid, now)
    }

    /// Returns why no other load balancer is made for this Service, and when that is looked at again.
    fn held_replacement(&self, service: &Service, loss: LossVerdict) -> Option<(String, At)> {
        let LossVerdict::Held(why, until) = loss else { return None };
        let words = self.losses.in_words(&service.uid);
        let text = format!(
            "{words}: it is not replaced yet, because {why}; approve the replacement with the annotation {}",
            approving_mark(service, REPLACEMENT_APPROVED)
        );
        Some((text, until))
    }
}

impl BalancerEntry {
    /// Records which members are held, and if the load balancer has the nodes of this digest.
    fn see_members(&mut self, members: &Decision, nodes: Option<Digest>) {
        let is_known = self.membership.is_known();
        if !members.changes && is_known {
            // The nodes are again as they were, so nothing has to be repeated.
            self.state.failed.retain(|failed| failed.call != CallKind::Members);
        }
        self.held = members.held.len();
        self.agrees = nodes.filter(|_| is_known && !members.changes && self.held == 0);
    }

    /// Remembers the class that this program serves.
    fn note_class(&mut self, service: &Service, classes: &Classes) {
        // Without its details the class is unknown.
        if service.details.is_some() && classes.cover(service) {
            self.class = Some(class(service).unwrap_or_default().into());
        }
    }

    /// Returns true if a user has approved the deletion of the load balancer, or has changed the class.
    fn may_release(&self, service: &Service, now: At) -> bool {
        let class = class(service).unwrap_or_default();
        let is_another = self.class.as_ref().is_some_and(|served| **served != *class);
        let is_approved = is_marked_at(service.annotation(RELEASE_APPROVED), None, now);
        service.details.is_some() && (is_approved || is_another)
    }

    /// Records what a Service shows, and what its plan leaves out.
    fn see(&mut self, service: &Service, planned: &mut Planned) {
        self.awaited |= planned.reads_members;
        planned.reads_members |= planned.is_served && self.await_lost_members(service);
        *self.last_plan = planned.last_plan.clone();
        let writes =
            matches!(planned.plan, Plan::Next(Step::Protect | Step::Release | Step::Write(_)));
        self.refused_write = self.refused_write.take().filter(|_| writes);
        self.see_addresses(service);
        if planned.last_plan.held_release.is_some() {
            // service-ccm makes no other calls about it.
            self.state.failed.retain(|failed| failed.call == CallKind::Members);
        }
    }

    /// Marks the members to be read again if another client has overwritten the condition. Returns
    /// true if they were not marked before.
    fn await_lost_members(&mut self, service: &Service) -> bool {
        let is_overwritten = service.condition(SERVING).is_some() && !shows_members(service);
        let is_idle = self.state.pending.is_none() && !self.awaited;
        let has_lost = is_idle && is_overwritten && self.lacks_members();
        self.awaited |= has_lost;
        has_lost
    }
}
