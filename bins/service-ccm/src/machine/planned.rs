//! The plan of one Service, and what follows from it for the memory.

use ccm_base::At;
use ccm_cloud::{Digest, LoadBalancerTraits, NodeSelector};
use ccm_controller::brake::{Budget, approval::is_marked_at};
use ccm_objects::Service;

use super::{
    decided::Decided,
    entry::{Entry, ServedClass},
};
use crate::plan::{
    CallKind, Classes, Failed, Inputs, List, Plan, RELEASE_APPROVED, Step, View, awaits_members,
    conditions,
    eligible::NodeSet,
    evidence,
    front_end::{Desired, Problem},
    held_calls,
    losses::{Verdict, recorded},
    members::{Decision, Held, Rules},
    plan,
    reason::{Reason, SERVING},
    shown::{self, InUse, Refused, refused},
    shows_members,
};

/// The inputs of the plan of a Service, besides the memory.
pub(crate) struct Round<'a> {
    /// The Service as it is now.
    pub(crate) service: &'a Service,
    /// The load balancer that the Service asks for.
    pub(crate) desired: Desired,
    /// Which Services are served.
    pub(crate) classes: &'a Classes,
    /// The provider's traits.
    pub(crate) traits: &'a LoadBalancerTraits,
    /// The nodes that load balancers should have.
    pub(crate) nodes: &'a NodeSet,
    /// The digest of these nodes.
    pub(crate) agreed: Option<Digest>,
    /// Which nodes the Service selects.
    pub(crate) selector: &'a NodeSelector,
    /// True if that is not the Service's own choice.
    pub(crate) is_default: bool,
    /// How many members may leave.
    pub(crate) budget: Budget,
    /// True if a user has approved that any member leaves.
    pub(crate) approved: bool,
    /// True if load balancers of other controllers are adopted without a request.
    pub(crate) adopts: bool,
    /// The verdict about the load balancer if it is gone or has failed.
    pub(crate) loss: Verdict,
    /// Why no other load balancer is made, and when that is looked at again.
    pub(crate) held_replacement: Option<(String, At)>,
    /// Why the Service waits, if its namespace has as many load balancers as it may have.
    pub(crate) full: Option<String>,
    /// True if its namespace has a limit.
    pub(crate) is_limited: bool,
    /// The state of the list of this cluster's load balancers.
    pub(crate) list: List,
    /// The addresses and annotations that the operator allows, and the addresses that the cluster uses.
    pub(crate) guard: (&'a shown::Rules, &'a InUse),
    /// The other inputs of calls, besides the Service.
    pub(crate) inputs: Inputs,
    /// Now.
    pub(crate) now: At,
}

/// The plan for a Service.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// The decision about its members.
    pub(crate) members: Decision,
    /// The mistakes in the Service.
    pub(crate) problems: Vec<Problem>,
    /// True if it waits for a user's word to adopt the load balancer of another controller.
    pub(crate) waits_for_adoption: bool,
    /// Why it gets no load balancer of its own, if it is on one of others.
    pub(crate) stays_on_foreign: Option<String>,
    /// The calls that wait because they have failed.
    pub(crate) held_calls: Vec<(Step, Failed)>,
    /// Why the finalizer stays, if no known controller removes it.
    pub(crate) unclaimed: Option<String>,
    /// Why it waits, if its namespace has as many load balancers as it may have.
    pub(crate) full: Option<String>,
    /// Why the load balancer stays, if service-ccm does not serve the Service any more.
    pub(crate) held_release: Option<String>,
    /// True if a call may make a new load balancer in the place of the one that the Service has.
    pub(crate) may_replace: bool,
    /// Why no other load balancer is made, and when that is looked at again.
    pub(crate) held_replacement: Option<(String, At)>,
    /// The parts of the provider's answer that the Service does not show.
    pub(crate) refused: Vec<Refused>,
    /// The other inputs of its calls, besides the Service.
    pub(crate) inputs: Inputs,
    /// True if the members should be read before they change.
    pub(crate) reads_members: bool,
    /// The conditions that follow, if this program serves the Service or cleans it up.
    pub(crate) conditions: Vec<(Reason, String)>,
}

impl Planned {
    /// The parts that explain it.
    fn decided(&self) -> Decided {
        let held = &self.members.held;
        Decided {
            conditions: self.conditions.clone(),
            is_not_ours: self.plan == Plan::NotOurs,
            is_due: matches!(self.plan, Plan::Next(_)),
            held_release: self.held_release.clone(),
            held_replacement: self.held_replacement.as_ref().map(|(why, _)| why.clone()),
            unclaimed: self.unclaimed.clone(),
            calls: self.held_calls.iter().map(|(_, failed)| failed.call).collect(),
            is_last_held: !held.is_empty() && held.values().all(|why| *why == Held::Last),
        }
    }
}

impl Entry {
    /// Plans the Service as it is now.
    pub(crate) fn plan(&mut self, round: Round<'_>) -> Planned {
        let Round { service, classes, traits, nodes, now, .. } = round;
        let (families, in_cloud) = (&*self.families(traits), self.members_in_cloud());
        let Round { budget, approved, selector, is_default, .. } = round;
        let rules = Rules { budget, approved, selector, is_default, families, in_cloud };
        let members = self.membership.decide(now, nodes, rules);
        self.see_members(&members, round.agreed);
        let may_release = self.may_release(service, classes, now);
        self.state.was_marked |= Classes::is_marked(service);
        let view = View {
            service,
            desired: &round.desired,
            classes,
            state: &self.state,
            members: &members,
            members_known: self.membership.is_known(),
            members_unread: traits.lists && self.is_unread(service),
            adopts: round.adopts,
            traits,
            may_release,
            loss: round.loss,
            full: round.full.as_deref(),
            is_limited: round.is_limited,
            list: round.list,
            guard: round.guard,
            inputs: round.inputs,
            now,
        };
        let plan = plan(view);
        let reads_members = awaits_members(view);
        let held_release = evidence::held_release(view);
        let is_served = is_served(service, &plan) && held_release.is_none();
        let (stays_on_foreign, held_calls) = stays_on_foreign(view, is_served);
        let waits_for_adoption = is_served && self.state.waits_for_adoption(view);
        let (unclaimed, refused) = (evidence::unclaimed(view, &plan), refused(view));
        let has_part = plan != Plan::NotOurs && held_release.is_none();
        let conditions = if has_part { conditions(view) } else { Vec::new() };
        self.is_wrong = is_served && round.desired.front_end.is_none();
        self.awaited |= reads_members;
        let mut planned = Planned {
            unclaimed,
            waits_for_adoption,
            refused,
            plan,
            members,
            problems: if held_release.is_some() { Vec::new() } else { round.desired.problems },
            held_calls,
            stays_on_foreign,
            full: round.full,
            held_release,
            may_replace: round.loss == Verdict::Replaced || recorded(service).is_none(),
            held_replacement: round.held_replacement,
            inputs: round.inputs,
            reads_members,
            conditions,
        };
        self.see(service, &planned);
        planned.reads_members |= is_served && self.has_lost_members(service);
        planned
    }

    /// Records which members are held, and if the load balancer has the nodes of this digest.
    fn see_members(&mut self, members: &Decision, nodes: Option<Digest>) {
        let is_known = self.membership.is_known();
        if !members.changes && is_known {
            // The nodes are again as they were: nothing is left to be repeated.
            self.state.failed.retain(|failed| failed.call != CallKind::Members);
        }
        self.held = members.held.len();
        self.agrees = nodes.filter(|_| is_known && !members.changes && self.held == 0);
    }

    /// Returns true if a user has approved the deletion of the load balancer, or has changed the class.
    fn may_release(&mut self, service: &Service, classes: &Classes, now: At) -> bool {
        let Some(details) = &service.details else { return false };
        if classes.cover(service) {
            self.class = Some(ServedClass { name: details.class.clone() });
        }
        is_marked_at(service.annotation(RELEASE_APPROVED), None, now)
            || self.class.as_ref().is_some_and(|served| served.name != details.class)
    }

    /// Records what a Service shows, and what its plan leaves out.
    fn see(&mut self, service: &Service, planned: &Planned) {
        self.decided = Some(Box::new(planned.decided()));
        let writes =
            matches!(planned.plan, Plan::Next(Step::Protect | Step::Release | Step::Write(_)));
        self.refused_write = self.refused_write.take().filter(|_| writes);
        self.is_release_held = planned.held_release.is_some();
        self.is_replacement_held = planned.held_replacement.is_some();
        self.refused.clone_from(&planned.refused);
        self.see_addresses(service);
        if self.is_release_held {
            // service-ccm makes no other calls about it.
            self.state.failed.retain(|failed| failed.call == CallKind::Members);
        }
    }

    /// Has the members read again if another client has overwritten the condition. Returns true if that is
    /// news.
    fn has_lost_members(&mut self, service: &Service) -> bool {
        let is_overwritten = service.condition(SERVING).is_some() && !shows_members(service);
        let is_idle = self.state.pending.is_none() && !self.awaited;
        let has_lost = is_idle && is_overwritten && self.lacks_members();
        self.awaited |= has_lost;
        has_lost
    }
}

/// Returns true if the plan gives the Service a load balancer, or keeps its one.
fn is_served(service: &Service, plan: &Plan) -> bool {
    service.is_load_balancer && !service.deleting && *plan != Plan::NotOurs
}

/// Why the Service stays on a load balancer of others, and the calls that wait because they have failed.
fn stays_on_foreign(view: View<'_>, is_served: bool) -> (Option<String>, Vec<(Step, Failed)>) {
    let stays = view.state.stays_on_foreign(view.service, view.traits).filter(|_| is_served);
    let held_calls = if stays.is_some() { Vec::new() } else { failed_calls(view) };
    (stays, held_calls)
}

fn failed_calls(view: View<'_>) -> Vec<(Step, Failed)> {
    held_calls(view).into_iter().map(|(step, failed)| (step, failed.clone())).collect()
}
