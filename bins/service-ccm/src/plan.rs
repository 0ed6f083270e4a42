//! The next step for one Service: pure.
//!
//! | module | what it decides |
//! |---|---|
//! | [`front_end`] | which load balancer a Service asks for, and what is wrong with the Service |
//! | [`eligible`] | which nodes are members of load balancers |
//! | [`labels`], [`marks`] | which labels of nodes count; the marks of nodes that leave |
//! | [`members`] | the members that one load balancer should have, and the members that may not leave it yet |
//! | [`losses`] | which load balancers that are gone or have failed are replaced, and when |
//! | [`orphans`] | which load balancers without a Service are deleted, and when |
//! | [`evidence`] | which controller the finalizer of a Service belongs to |
//! | [`looks`] | when a load balancer that no list shows is looked at |
//! | [`shown`] | which addresses and annotations of a provider a Service shows |
//! | [`room`] | which Services of a namespace wait, if it may have no more load balancers |
//! | [`repeated`] | when a step that was confirmed before may be repeated |
//! | [`debounce`] | when changes of the nodes go out |
//! | [`hangs`] | which Services are served by slow lanes, and when one of these makes a call |
//! | `named` | the load balancers that a Service names, and the errors about them |
//! | `state` | what is known of one load balancer |
//! | `pools` | the members behind the ports, and when the cloud is asked again if a pool is empty |
//! | [`reason`] | the conditions of a Service and their reasons |
//! | `wanted_status` | the wanted status of a Service |
//! | [`status`] | which part of it is written now |
//! | this file | what is done next: the state machine of one load balancer |

pub mod debounce;
pub mod eligible;
pub mod evidence;
pub mod front_end;
pub mod hangs;
pub mod labels;
pub mod looks;
pub mod losses;
pub mod marks;
pub mod members;
mod named;
pub mod orphans;
mod pools;
pub mod reason;
pub mod repeated;
pub mod room;
pub mod shown;
mod state;
pub mod status;
mod wanted_status;

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Cure, Digest, FrontEnd, LoadBalancerTraits, Phase};
use ccm_controller::brake::approval;
use ccm_objects::{Service, serves_class};
use serde::{Deserialize, Serialize};

use self::{
    evidence::{CleanUp, Whose},
    front_end::SpecFrontEnd,
    members::Decision,
    reason::Reason,
    status::{DIGEST, ID, NewCondition, StatusPatch, difference, has_address},
};
pub use named::{by_provider, copied, named, of_adoption, of_name, replaced, shown_id, to_adopt};
pub use state::{BalancerState, CallKind, Failed, Foreign, Inputs, Known, Pending};
pub use wanted_status::shows_members;

/// The classes of Services that this program serves, and its name on Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// `--load-balancer-classes`.
    pub served: Vec<String>,
    /// `--serve-classless-services`.
    pub classless: bool,
    /// The value of the annotation [`evidence::INSTANCE`]; `None` with the default Lease.
    pub instance: Option<String>,
}

impl Classes {
    /// Returns true if a Service of this class is served.
    pub fn serves(&self, class: Option<&str>) -> bool {
        serves_class(&self.served, self.classless, class)
    }
}

/// Everything that the plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The Service as it is now.
    pub service: &'a Service,
    /// The configuration that it asks for.
    pub spec: &'a SpecFrontEnd,
    /// The classes of the Services that are served.
    pub classes: &'a Classes,
    /// The known state of its load balancer.
    pub state: &'a BalancerState,
    /// The wanted members.
    pub members: &'a Decision,
    /// True if its current members are known.
    pub members_known: bool,
    /// True if the members are not known, and a list can show them.
    pub members_unread: bool,
    /// True if load balancers of other controllers are adopted without a request.
    pub adopts: bool,
    /// The provider's traits.
    pub traits: &'a LoadBalancerTraits,
    /// True if service-ccm may delete the load balancer when it does not serve the class of the
    /// Service: a user has approved the deletion, or has changed the class.
    pub may_release: bool,
    /// The verdict if the load balancer is gone or has failed.
    pub loss: losses::LossVerdict,
    /// The reason why the Service has to wait for a load balancer, if its namespace has as many as
    /// it may have.
    pub full: Option<&'a str>,
    /// True if its namespace has a limit.
    pub is_limited: bool,
    /// The state of the list of this cluster's load balancers.
    pub list: List,
    /// The addresses and annotations that the operator allows, and the addresses that the cluster itself uses.
    pub guard: (&'a shown::ShownRules, &'a shown::InUse),
    /// The inputs of calls besides the Service.
    pub inputs: Inputs,
    /// Now.
    pub now: At,
}

/// The list of this cluster's load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum List {
    /// It is still to come.
    #[default]
    Awaited,
    /// It has failed too often to wait for it any longer.
    Failing,
    /// It has been compared with the Services, or the provider does not have lists.
    Compared,
}

/// The next step for a Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Write the finalizer and the condition before anything is created.
    Protect,
    /// Ask the cloud what it would change.
    Preview(Arc<FrontEnd>),
    /// Create the load balancer, or bring it up to date.
    Ensure(Arc<FrontEnd>),
    /// Change its members, and nothing else.
    SetMembers(String),
    /// Delete it, or the rest of it.
    Delete,
    /// Delete the second load balancer of the same owner.
    DeleteDuplicate(String),
    /// Remove the finalizer and everything that this program wrote.
    Release,
    /// Write status and annotations.
    Write(StatusPatch),
}

impl Step {
    /// Returns the call that changes something in the cloud, if this is one.
    pub fn call(&self) -> Option<CallKind> {
        match self {
            Self::Ensure(_) => Some(CallKind::Ensure),
            Self::SetMembers(_) => Some(CallKind::Members),
            Self::Delete => Some(CallKind::Delete),
            Self::DeleteDuplicate(_) => Some(CallKind::DeleteDuplicate),
            Self::Preview(_) | Self::Protect | Self::Release | Self::Write(_) => None,
        }
    }
}

/// The next step for a Service.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// One step; then plan again.
    Next(Step),
    /// Nothing: it is as wanted.
    Settled,
    /// Nothing now: something is waited for.
    Waits,
    /// Nothing: this program has no part in it.
    NotOurs,
}

/// The annotation or label that approves that held members leave.
pub const APPROVED: &str = "quartet.dev/member-loss-approved";
/// The annotation that approves that service-ccm deletes the load balancer of a Service
/// because it does not serve the class of the Service any more.
pub const RELEASE_APPROVED: &str = "quartet.dev/release-approved";
/// The annotation or label that approves that service-ccm replaces a load balancer that is gone or
/// has failed.
pub const REPLACEMENT_APPROVED: &str = "quartet.dev/replacement-approved";
/// The annotation with the ID of a load balancer to adopt.
pub const ADOPT: &str = "quartet.dev/adopt-load-balancer";

/// Returns the mark that approves what this key means, for texts that ask for it.
pub fn approving_mark(service: &Service, key: &str) -> String {
    // Only an annotation approves the deletion of a load balancer.
    let details = service.details.as_ref().filter(|_| key != RELEASE_APPROVED);
    // A time in the future approves the loss of members, so a time is not named as a wrong value.
    let annotation = service.annotation(key).filter(|text| text.trim().parse::<At>().is_err());
    approval::to_set(key, annotation, details.and_then(|details| details.labels.get(key)))
}

/// Returns the plan for one Service.
pub fn plan(view: View<'_>) -> Plan {
    let service = view.service;
    if service.details.is_none() {
        return Plan::NotOurs;
    }
    if view.wants() {
        return provision(view);
    }
    if !service.has_finalizer {
        // Another client has removed the finalizer and changed the type: service-ccm removes what
        // it wrote, and treats its load balancer as an orphan.
        let is_left = !service.is_load_balancer && !service.deleting;
        let is_ours = is_left && view.whose() == Whose::Ours;
        let may = repeated::may_set_finalizer(&view.state.repeats, view.now, false);
        return match (is_ours, may) {
            (true, true) => Plan::Next(Step::Release),
            (true, false) => Plan::Waits,
            (false, _) => Plan::NotOurs,
        };
    }
    match view.part() {
        CleanUp::Nothing if view.list == List::Awaited => Plan::Waits,
        CleanUp::Nothing => Plan::NotOurs,
        _ if view.holds_release() => keep(view),
        part => clean_up(view, part),
    }
}

/// Returns the plan for a load balancer that stays although service-ccm does not serve the Service
/// any more: its members follow the nodes, and nothing else changes.
fn keep(view: View<'_>) -> Plan {
    let id = match &view.state.known {
        Known::There(balancer) if balancer.phase == Phase::Ready => Some(&balancer.id),
        Known::Recorded { id } => Some(id),
        _ => None,
    };
    let waits = view.state.waits_for_cloud(view.now);
    id.filter(|_| !waits).and_then(|id| members_step(view, id)).map_or(Plan::Waits, Plan::Next)
}

/// Returns the plan for a Service whose load balancer must be deleted.
fn clean_up(view: View<'_>, part: CleanUp) -> Plan {
    let state = view.state;
    if !repeated::may_set_finalizer(&state.repeats, view.now, false) {
        return Plan::Waits;
    }
    if state.proved_absent {
        return if part == CleanUp::All { Plan::Next(Step::Release) } else { Plan::NotOurs };
    }
    if view.list == List::Awaited && state.known == Known::Nothing {
        return Plan::Waits;
    }
    if state.waits_for_cloud(view.now) || state.waits_after_failure(CallKind::Delete, view) {
        return if part == CleanUp::All { settled(view) } else { Plan::Waits };
    }
    due(view, Step::Delete).map_or(Plan::Waits, Plan::Next)
}

/// Returns the plan for a Service that should have a load balancer.
fn provision(view: View<'_>) -> Plan {
    let View { service, state, .. } = view;
    if view.full.is_some() {
        return settled(view);
    }
    if !service.has_finalizer {
        return match view.spec.front_end {
            // Before the first list it is not known if the namespace has room.
            _ if view.is_limited && view.list == List::Awaited => Plan::Waits,
            Some(_) if repeated::may_set_finalizer(&state.repeats, view.now, true) => {
                Plan::Next(Step::Protect)
            }
            _ => settled(view),
        };
    }
    let wants = view.spec.front_end.as_ref().map(|front_end| front_end.digest);
    // Another configuration may be this program's.
    if state.is_elsewhere() && !state.needs_look && (wants.is_none() || wants == state.configured) {
        return duplicate(view).map_or_else(|| settled(view), Plan::Next);
    }
    if state.known == Known::Nothing && waits_for_list(view) {
        return Plan::Waits;
    }
    if view.whose() == Whose::Anothers
        && repeated::may_take_over(&state.repeats, view.now, view.classes)
    {
        return Plan::Next(Step::Write(taken_over(view)));
    }
    if let Some(step) = next_call(view) {
        return Plan::Next(step);
    }
    match (settled(view), &view.spec.front_end) {
        (Plan::Settled | Plan::Waits, Some(front_end))
            if state.waits_for_adoption(view) && !state.is_previewed(front_end) =>
        {
            Plan::Next(Step::Preview(Arc::clone(front_end)))
        }
        (plan, _) => plan,
    }
}

/// Returns the change that takes over a Service from another service-ccm: it writes the name of
/// this program. It removes the recorded ID and digest if they belong to another load balancer, and
/// the provider's annotation with the same ID: it would name a load balancer of others. If they do
/// not, the other service-ccm may be this program under another name.
fn taken_over(view: View<'_>) -> StatusPatch {
    let mut annotations = view.classes.signature();
    let named = view.service.annotation(ID);
    if named.is_some() && named != view.state.id() {
        let by_provider = view.traits.id_annotation.as_deref();
        let by_provider = by_provider.filter(|key| view.service.annotation(key) == named);
        let all = [ID, DIGEST].into_iter().chain(by_provider);
        annotations.extend(all.map(|key| (key.to_owned(), None)));
    }
    StatusPatch { annotations, ..StatusPatch::default() }
}

/// Returns true if a Service whose load balancer is unknown waits for the list: one list covers
/// more Services than calls about each of them. Only a list shows what another controller has made
/// for a Service.
fn waits_for_list(view: View<'_>) -> bool {
    match view.list {
        List::Awaited => true,
        List::Failing => has_address(view.service) && view.service.annotation(ID).is_none(),
        List::Compared => false,
    }
}

/// Returns the change that comes with the finalizer. An annotation of this program may come from a
/// copied manifest.
pub fn protection(service: &Service, classes: &Classes) -> StatusPatch {
    let mut annotations = classes.signature();
    annotations.retain(|key, value| service.annotation(key) != value.as_deref());
    let conditions = vec![(Reason::Creating, "the load balancer is being created".to_owned())];
    StatusPatch { ingress: None, conditions, annotations }
}

/// Returns the next call to the cloud, if one is due now.
fn next_call(view: View<'_>) -> Option<Step> {
    let state = view.state;
    if state.waits_for_cloud(view.now) {
        return None;
    }
    if let Some(step) = duplicate(view) {
        return Some(step);
    }
    if matches!(view.loss, losses::LossVerdict::Held(..)) {
        return None;
    }
    let (id, has_failed) = match &state.known {
        Known::There(balancer) => match &balancer.phase {
            Phase::Failed { cure: Cure::Person, .. } => return None,
            phase => (Some(&balancer.id), matches!(phase, Phase::Failed { .. })),
        },
        Known::Recorded { id } => (Some(id), false),
        _ if state.waits_for_adoption(view) => return None,
        _ if state.stays_on_foreign(view.service, view.traits).is_some() => return None,
        _ => (None, false),
    };
    if let Some(front_end) = &view.spec.front_end
        && (id.is_none() || has_failed || !is_configured(view, front_end))
        && !state.waits_to_ensure(view, front_end)
        && !awaits_members(view)
        && let Some(step) = due(view, Step::Ensure(Arc::clone(front_end)))
    {
        return Some(step);
    }
    id.and_then(|id| members_step(view, id))
}

/// Returns true if the members should be read before the load balancer is changed: such a change names
/// all nodes, and nothing would hold members back.
pub fn awaits_members(view: View<'_>) -> bool {
    let front_end = view.spec.front_end.as_ref();
    view.members_unread && front_end.is_some_and(|front_end| !is_configured(view, front_end))
}

/// Returns the change of the members of this load balancer, if it is due now.
fn members_step(view: View<'_>, id: &str) -> Option<Step> {
    let state = view.state;
    let is_blind = state.gap.as_ref().is_some_and(|gap| gap.is_blind(view.now));
    // The provider may read parts of the Service that are not known here.
    let is_cut = view.service.details.as_ref().is_some_and(|details| details.too_large.is_some());
    let changes = view.members_known
        && view.members.changes
        && !is_blind
        && !is_cut
        && !state.waits_after_failure(CallKind::Members, view);
    if changes { due(view, Step::SetMembers(id.to_owned())) } else { None }
}

/// Returns the deletion of the second load balancer of the owner, if it is due now.
fn duplicate(view: View<'_>) -> Option<Step> {
    let state = view.state;
    let waits = state.waits_for_cloud(view.now)
        || state.waits_after_failure(CallKind::DeleteDuplicate, view);
    let id = state.duplicate.clone().filter(|_| !waits)?;
    due(view, Step::DeleteDuplicate(id))
}

/// Returns this call, unless it was confirmed recently and must wait before it is repeated.
fn due(view: View<'_>, step: Step) -> Option<Step> {
    let View { state, service, members, now, .. } = view;
    repeated::may_call(&state.repeats, now, &step, service, members).then_some(step)
}

/// Returns the calls that only wait after a failure, each with its failure.
pub fn held_calls(view: View<'_>) -> Vec<(Step, &Failed)> {
    let state = view.state;
    let held = |failed: &'_ Failed| {
        let is_kept = view.holds_release() && failed.call == CallKind::Members;
        // The Service asks for something else since that call.
        if !is_kept && view.wants() == (failed.call == CallKind::Delete) {
            return None;
        }
        let step = match failed.call {
            CallKind::Ensure => {
                let front_end = view.spec.front_end.as_ref()?;
                if !state.waits_to_ensure(view, front_end) || state.waits_for_adoption(view) {
                    return None;
                }
                return Some(Step::Ensure(Arc::clone(front_end)));
            }
            CallKind::Members => Step::SetMembers(state.id()?.to_owned()),
            CallKind::Delete => Step::Delete,
            CallKind::DeleteDuplicate => Step::DeleteDuplicate(state.duplicate.clone()?),
        };
        state.waits_after_failure(failed.call, view).then_some(step)
    };
    state.failed.iter().filter_map(|failed| Some((held(failed)?, failed))).collect()
}

/// Returns true if the load balancer has this configuration.
fn is_configured(view: View<'_>, front_end: &FrontEnd) -> bool {
    let has_gap = view.state.gap.as_ref().is_some_and(|gap| gap.is_due(view.now));
    if view.state.needs_look || has_gap || view.state.may_be_partial() {
        return false;
    }
    let recorded = || {
        let text = view.service.annotation(DIGEST)?;
        text.parse::<Digest>().ok()
    };
    let configured = match view.state.known {
        Known::Recorded { .. } => view.state.configured.or_else(recorded),
        _ => view.state.configured,
    };
    configured == Some(front_end.digest)
}

/// Returns the plan when no call is due: the status, if it differs.
fn settled(view: View<'_>) -> Plan {
    let change = status_change(view);
    if !change.is_empty() {
        return Plan::Next(Step::Write(change));
    }
    let waits = view.state.pending.is_some() || !view.state.failed.is_empty();
    if waits { Plan::Waits } else { Plan::Settled }
}

/// Returns the conditions of a Service that this program serves or cleans up, with their messages.
pub fn conditions(view: View<'_>) -> Vec<NewCondition> {
    wanted_status::wanted_status(view).conditions
}

/// Returns the change of the status that is due now.
pub fn status_change(view: View<'_>) -> StatusPatch {
    let wanted = wanted_status::wanted_status(view);
    let change = difference(view.service, wanted, view.state.condition_written, view.now);
    repeated::that_may_be_written(&view.state.repeats, view.now, change)
}

/// Returns the change of the status of a Service while the provider offers no load balancers;
/// `None` if this program has no part in it. If it does not serve the Service, it cannot know its
/// load balancer then.
pub fn not_offered(
    service: &Service,
    classes: &Classes,
    why: &str,
    written: Option<At>,
    now: At,
) -> Option<StatusPatch> {
    service.details.as_ref()?;
    let serves = classes.cover(service);
    let wants = serves && !service.deleting;
    let is_left = !service.is_load_balancer && classes.whose(service) == Whose::Ours;
    if !wants && !(service.has_finalizer && (serves || is_left)) {
        return None;
    }
    let reason = if wants { Reason::LoadBalancersNotOffered } else { Reason::DeletionFailed };
    let conditions = vec![(reason, why.to_owned())];
    let annotations = if wants { classes.signature() } else { BTreeMap::new() };
    let wanted = StatusPatch { ingress: None, conditions, annotations };
    Some(difference(service, wanted, written, now))
}

#[cfg(test)]
mod tests;
