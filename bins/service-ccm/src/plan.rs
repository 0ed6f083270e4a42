//! The next step for one Service: pure.
//!
//! | module | what it decides |
//! |---|---|
//! | [`front_end`] | which load balancer a Service asks for, and what is wrong with the Service |
//! | [`eligible`] | which nodes are members of load balancers |
//! | [`members`] | which members one load balancer is to have, and which may not leave it yet |
//! | [`debounce`] | when changes of the nodes go out |
//! | [`reason`] | the conditions of a Service and their reasons |
//! | `wished` | what a Service is to show |
//! | [`status`] | what of that is written now |
//! | this file | what is done next: the state machine of one load balancer |

pub mod debounce;
pub mod eligible;
pub mod front_end;
pub mod members;
pub mod reason;
pub mod status;
mod wished;

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{
    CloudError, Cure, Digest, ErrorKind, FrontEnd, LoadBalancer, LoadBalancerTraits, Members, Phase,
};
use ccm_objects::Service;

use self::{
    front_end::Desired,
    members::Decision,
    status::{DIGEST, PAUSE, StatusChange, difference},
};

/// Which Services are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// `--load-balancer-classes`.
    pub served: Vec<String>,
    /// `--serve-classless-services`.
    pub classless: bool,
}

impl Classes {
    /// Whether a Service of this class is served.
    pub fn serves(&self, class: Option<&str>) -> bool {
        match class {
            None => self.classless,
            Some(class) => self.served.iter().any(|served| served == class),
        }
    }
}

/// What is known of the load balancer of one Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known {
    /// Nothing: no call and no list since this process leads has shown it, or its absence.
    #[default]
    Nothing,
    /// It does not exist.
    Absent,
    /// It exists.
    There(Box<LoadBalancer>),
    /// It was there when the Service was written last; the provider has no list that shows it.
    Recorded {
        /// Its ID.
        id: String,
    },
    /// Another controller is responsible.
    Elsewhere(String),
}

/// A call to the cloud about one Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Create or update.
    Ensure,
    /// Change members.
    Members,
    /// Delete.
    Delete,
    /// Delete the second load balancer of the same owner.
    DeleteDuplicate,
}

/// A call on which the cloud still works, or after which more changes are to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// The call. None if another process has made it.
    pub call: Option<CallKind>,
    /// The configuration that it was about.
    pub digest: Option<Digest>,
    /// The members that went with it.
    pub members: Option<Members>,
    /// What is waited for, in the cloud's words.
    pub what: String,
    /// When it is worth to look again.
    pub check_at: At,
    /// When the cloud began.
    pub since: At,
}

/// A call that failed, and was not made with success since.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// The call.
    pub call: CallKind,
    /// The configuration that it was about.
    pub digest: Option<Digest>,
    /// The error.
    pub error: CloudError,
    /// How often it has failed in a row.
    pub times: u32,
    /// When it is made again.
    pub retry_at: At,
}

/// What is known of one load balancer, besides its members.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// What the cloud has shown.
    pub known: Known,
    /// The configuration that the load balancer has in full, or for which another controller is
    /// responsible.
    pub configured: Option<Digest>,
    /// What the cloud works on.
    pub pending: Option<Pending>,
    /// The calls that failed, at most one of each kind.
    pub failed: Vec<Failed>,
    /// The second load balancer of this owner, to be deleted.
    pub duplicate: Option<String>,
    /// When a condition was written last.
    pub condition_written: Option<At>,
    /// Whether the answer to a deletion has proved that nothing of this owner exists, or that
    /// another controller is responsible.
    pub proved_absent: bool,
    /// A load balancer that another controller made for this Service, and what shows that.
    pub adoptable: Option<(String, String)>,
    /// What the cloud would change for this configuration, one line each.
    pub previewed: Option<(Digest, Vec<String>)>,
}

/// Everything that the plan looks at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The Service as it is now.
    pub service: &'a Service,
    /// What it asks for.
    pub desired: &'a Desired,
    /// Which Services are served.
    pub classes: &'a Classes,
    /// What is known of its load balancer.
    pub state: &'a State,
    /// What its members are to be.
    pub members: &'a Decision,
    /// Whether the members that it has are known.
    pub members_known: bool,
    /// Whether load balancers of other controllers are adopted without a request.
    pub adopts: bool,
    /// The provider's traits.
    pub traits: &'a LoadBalancerTraits,
    /// Whether the list of this cluster's load balancers is still to come.
    pub list_awaited: bool,
    /// Now.
    pub now: At,
}

/// The next step for a Service.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write finalizer and condition, before anything is created.
    Protect,
    /// Ask the cloud what it would change.
    Preview(Arc<FrontEnd>),
    /// Create the load balancer, or bring it up to date.
    Ensure(Arc<FrontEnd>),
    /// Change its members, and nothing else.
    SetMembers(String),
    /// Delete it, or what is left of it.
    Delete,
    /// Delete the second load balancer of the same owner.
    DeleteDuplicate(String),
    /// Take off the finalizer and what this program wrote.
    Release,
    /// Write status and annotations.
    Write(StatusChange),
}

/// What is to be done for a Service.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// One step; then plan again.
    Next(Step),
    /// Nothing: it is as it should be.
    Settled,
    /// Nothing now: something is waited for.
    Waits,
    /// Nothing: this program has no part in it.
    NotOurs,
}

/// The annotation or label that approves that members leave which are held.
pub const APPROVED: &str = "quartet.dev/member-loss-approved";
/// The annotation with the ID of a load balancer to adopt.
pub const ADOPT: &str = "quartet.dev/adopt-load-balancer";

/// How long the cloud may work before the Service says so.
const PATIENCE: Duration = Duration::from_mins(1);

/// The plan for one Service.
pub fn plan(view: View<'_>) -> Plan {
    let View { service, classes, state, .. } = view;
    let Some(details) = service.details.as_deref() else { return Plan::NotOurs };
    let serves = classes.serves(details.class.as_deref());
    let owns = matches!(state.known, Known::There(_));
    if service.is_load_balancer && !service.deleting && serves {
        return provision(view);
    }
    // A Service of a class that is not served may have the same finalizer from the controller of
    // its class: only what is known to be ours is cleaned up.
    let is_ours = service.has_finalizer && (serves || owns);
    if !is_ours {
        return if service.has_finalizer && view.list_awaited && !serves {
            Plan::Waits
        } else {
            Plan::NotOurs
        };
    }
    clean_up(view)
}

/// The plan for a Service whose load balancer is to be deleted.
fn clean_up(view: View<'_>) -> Plan {
    let state = view.state;
    if state.proved_absent {
        return Plan::Next(Step::Release);
    }
    if view.list_awaited && state.known == Known::Nothing {
        return Plan::Waits;
    }
    if state.waits_for_cloud(view.now)
        || state.waits_after_failure(CallKind::Delete, None, view.now)
    {
        return settled(view);
    }
    Plan::Next(Step::Delete)
}

/// The plan for a Service that is to have a load balancer.
fn provision(view: View<'_>) -> Plan {
    let View { service, state, .. } = view;
    if !service.has_finalizer {
        return match view.desired.front_end {
            Some(_) => Plan::Next(Step::Protect),
            None => settled(view),
        };
    }
    let is_elsewhere = matches!(state.known, Known::Elsewhere(_));
    let wants = view.desired.front_end.as_ref().map(|front_end| front_end.digest);
    // Another configuration may be this program's.
    if is_elsewhere && (wants.is_none() || wants == state.configured) {
        return Plan::Settled;
    }
    // A list shows more Services at once than calls about each of them.
    if view.list_awaited && state.known == Known::Nothing {
        return Plan::Waits;
    }
    if let Some(step) = next_call(view) {
        return Plan::Next(step);
    }
    match (settled(view), &view.desired.front_end) {
        (Plan::Settled | Plan::Waits, Some(front_end))
            if state.waits_for_adoption(view) && !state.is_previewed(front_end) =>
        {
            Plan::Next(Step::Preview(Arc::clone(front_end)))
        }
        (plan, _) => plan,
    }
}

/// The next call to the cloud, if one is due now.
fn next_call(view: View<'_>) -> Option<Step> {
    let state = view.state;
    if state.waits_for_cloud(view.now) {
        return None;
    }
    if let Some(id) = &state.duplicate
        && !state.waits_after_failure(CallKind::DeleteDuplicate, None, view.now)
    {
        return Some(Step::DeleteDuplicate(id.clone()));
    }
    let (id, has_failed) = match &state.known {
        Known::There(balancer) => match &balancer.phase {
            Phase::Failed { cure: Cure::Person, .. } => return None,
            phase => (Some(&balancer.id), matches!(phase, Phase::Failed { .. })),
        },
        Known::Recorded { id } => (Some(id), false),
        _ if state.waits_for_adoption(view) => return None,
        _ => (None, false),
    };
    if let Some(front_end) = &view.desired.front_end
        && (id.is_none() || has_failed || !is_configured(view, front_end))
        && !state.waits_after_failure(CallKind::Ensure, Some(front_end.digest), view.now)
    {
        return Some(Step::Ensure(Arc::clone(front_end)));
    }
    let changes = view.members_known
        && view.members.changes
        && !state.waits_after_failure(CallKind::Members, None, view.now);
    id.filter(|_| changes).cloned().map(Step::SetMembers)
}

impl State {
    /// Whether the cloud works on a call, so that there is nothing to call now.
    pub fn waits_for_cloud(&self, now: At) -> bool {
        self.pending.as_ref().is_some_and(|pending| now < pending.check_at)
    }

    /// The failure of this call.
    pub fn failure(&self, call: CallKind) -> Option<&Failed> {
        self.failed.iter().find(|failed| failed.call == call)
    }

    /// Whether this call has failed, with this configuration, and is not to be made yet. What the
    /// cloud refuses as invalid is not tried again until it changes.
    fn waits_after_failure(&self, call: CallKind, digest: Option<Digest>, now: At) -> bool {
        self.failure(call).filter(|failed| failed.digest == digest).is_some_and(|failed| {
            let is_refused = call == CallKind::Ensure
                && matches!(failed.error.kind, ErrorKind::Invalid | ErrorKind::Unsupported);
            is_refused || now < failed.retry_at
        })
    }

    /// Whether the last call was about another configuration and has not ended well: the load
    /// balancer may have a part of that one.
    fn may_have_another(&self, digest: Digest) -> bool {
        let pending = self.pending.as_ref().filter(|last| last.call == Some(CallKind::Ensure));
        let failed = self.failure(CallKind::Ensure);
        let tried = [pending.and_then(|last| last.digest), failed.and_then(|last| last.digest)];
        tried.into_iter().flatten().any(|tried| tried != digest)
    }

    /// When the plan may be another one although nothing changes: a failed call is due again, or a
    /// condition may be rewritten.
    pub fn next_look(&self, now: At) -> Option<At> {
        let retries = self.failed.iter().map(|failed| failed.retry_at);
        let rewrite = self.condition_written.map(|written| written + PAUSE);
        retries.chain(rewrite).filter(|at| now < *at).min()
    }

    /// Whether there is a load balancer of another controller that nobody has approved to adopt.
    pub fn waits_for_adoption(&self, view: View<'_>) -> bool {
        let is_requested = view.adopts || view.service.annotation(ADOPT).is_some();
        self.adoptable.is_some() && self.known == Known::Absent && !is_requested
    }

    /// Whether it is known what the cloud would change for this configuration.
    pub fn is_previewed(&self, front_end: &FrontEnd) -> bool {
        self.previewed.as_ref().is_some_and(|(digest, _)| *digest == front_end.digest)
    }

    /// The ID of the load balancer, as far as it is known.
    pub fn id(&self) -> Option<&str> {
        match &self.known {
            Known::There(balancer) => Some(&balancer.id),
            Known::Recorded { id } => Some(id),
            _ => None,
        }
    }
}

/// Whether the load balancer has this configuration.
fn is_configured(view: View<'_>, front_end: &FrontEnd) -> bool {
    if view.state.may_have_another(front_end.digest) {
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

/// The plan when no call is due: the status, if it differs.
fn settled(view: View<'_>) -> Plan {
    let change = status_change(view);
    if !change.is_empty() {
        return Plan::Next(Step::Write(change));
    }
    let waits = view.state.pending.is_some() || !view.state.failed.is_empty();
    if waits { Plan::Waits } else { Plan::Settled }
}

/// The change of the status that is due now.
pub fn status_change(view: View<'_>) -> StatusChange {
    let wished = wished::wished(view);
    difference(view.service, &wished, view.state.condition_written, view.now)
}

#[cfg(test)]
mod tests;
