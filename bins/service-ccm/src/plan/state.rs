//! The known state of one load balancer.

use std::time::Duration;

use ccm_base::At;
use ccm_cloud::{
    CloudError, Cure, Digest, ErrorKind, FrontEnd, LoadBalancer, LoadBalancerTraits, Members,
    Phase, Pool,
};
use ccm_controller::repeats::Repeats;
use ccm_objects::Service;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{
    View,
    named::{by_provider, named, to_adopt},
    pools::{self, Gap},
    reason::Reason,
    status::{ID, PAUSE},
};

/// How long the cloud may work before the Service shows that.
const PATIENCE: Duration = Duration::from_mins(1);

/// The known state of the load balancer of one Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Known {
    /// Nothing: since this process leads, neither a call nor a list has shown it or its absence.
    #[default]
    Nothing,
    /// It does not exist.
    Absent,
    /// It exists.
    There(Box<LoadBalancer>),
    /// It existed when the Service was last written. The provider has no list that shows it.
    Recorded {
        /// Its ID.
        id: String,
    },
    /// Another controller is responsible.
    Elsewhere(String),
}

/// A call to the cloud about one Service.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum CallKind {
    /// Create or update.
    Ensure,
    /// Change members.
    #[strum(serialize = "set_members")]
    Members,
    /// Delete.
    Delete,
    /// Delete the second load balancer of the same owner.
    DeleteDuplicate,
}

/// A call on which the cloud still works, or after which more changes will follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The call. `None` if another process has made it.
    pub call: Option<CallKind>,
    /// The configuration that it was about.
    pub digest: Option<Digest>,
    /// The members that went with it.
    pub members: Option<Members>,
    /// The cloud's text about what it is waiting for.
    pub what: String,
    /// When another look is useful.
    pub check_at: At,
    /// When the cloud began to work.
    pub since: At,
}

/// How often the cloud may refuse a call because of another change before it is reported: after 5, 10,
/// 20 and 40 s.
const PASSES: u32 = 5;

/// A call that failed, and was not made with success since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The call.
    pub call: CallKind,
    /// The configuration that it was about.
    pub digest: Option<Digest>,
    /// The load balancers that the Service named, in the order of [`named`].
    pub named: [Option<Box<str>>; 3],
    /// The error.
    pub error: CloudError,
    /// How often it has failed in a row.
    pub times: u32,
    /// When the call is repeated although nothing has changed.
    pub retry_at: At,
    /// When the call is repeated at the earliest if something that it depends on has changed.
    pub soonest: At,
    /// Its inputs besides the Service.
    pub inputs: Inputs,
}

/// The inputs of a call besides its Service. A user's mistake may be correct with other inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The digest of the nodes.
    pub nodes: Option<Digest>,
    /// How often the settings of the program and the provider's configuration have changed.
    pub revision: u64,
}

impl Failed {
    /// Returns true if a change that is under way in the cloud caused this, or a call without enough
    /// time for all its items. This does not count as a failure unless it lasts for a minute.
    pub fn may_pass(&self) -> bool {
        (self.error.kind.is_at_work() || self.error.unsent) && self.times < PASSES
    }

    /// Returns when it is made again.
    pub fn due(&self, inputs: Inputs) -> At {
        if self.inputs == inputs { self.retry_at } else { self.soonest.min(self.retry_at) }
    }
}

/// A load balancer that a Service shares with others, or that it names although it does not belong
/// to this Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// Its ID.
    pub id: String,
    /// Its owner, in words: `it is shared by 2 Services`.
    pub whose: String,
    /// True if only the annotation of [`by_provider`] leads to it.
    pub is_named: bool,
}

/// The known state of one load balancer, besides its members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalancerState {
    /// The state that the cloud has shown.
    pub known: Known,
    /// The members by port, from the last answer or full read. `None` before that, or if the
    /// provider does not know them.
    pub pools: Option<Vec<Pool>>,
    /// The members that it lacks, or that the provider could not see.
    pub gap: Option<Gap>,
    /// The configuration that the load balancer has completely, or for which another controller is
    /// responsible.
    pub configured: Option<Digest>,
    /// The call that the cloud works on.
    pub pending: Option<Pending>,
    /// The calls that failed, at most one of each kind.
    pub failed: Vec<Failed>,
    /// The second load balancer of this owner, to be deleted.
    pub duplicate: Option<String>,
    /// When a condition was written last.
    pub condition_written: Option<At>,
    /// The recent writes and calls that were confirmed.
    pub repeats: Repeats,
    /// The provider's words about its entry in the cloud's list, if they cannot be read.
    pub unreadable: Option<String>,
    /// True if the answer to a deletion has proved that nothing of this owner exists, or that
    /// another controller is responsible.
    pub proved_absent: bool,
    /// True if the Service has shown a mark of a service-ccm since the last call to create or update.
    pub was_marked: bool,
    /// True if this process has set the finalizer: the Service shows the address of a load balancer that
    /// is not in this cloud.
    pub is_new: bool,
    /// A load balancer that another controller made for this Service, and the evidence for that.
    pub adoptable: Option<(String, String)>,
    /// A load balancer of others that this Service has or names.
    pub foreign: Option<Foreign>,
    /// The ID on the Service that is the copy of another Service's ([`copied`](super::copied)).
    pub copied: Option<Box<str>>,
    /// True if only a call can show its state: the provider has no list, or another client has
    /// changed the load balancer.
    pub needs_look: bool,
    /// The changes that the cloud would make for this configuration, one line each.
    pub previewed: Option<(Digest, Vec<String>)>,
}

impl BalancerState {
    /// Applies the members that an answer or a full read has shown. `wants`: the load balancer
    /// should have members. `is_full`: a full call has just ended.
    pub fn saw_pools(&mut self, pools: Option<Vec<Pool>>, wants: bool, is_full: bool, now: At) {
        let empty = pools::empty(pools.as_deref().unwrap_or_default(), None);
        let lacks = wants && empty.iter().any(|one| one.why.is_none());
        self.pools = pools;
        if lacks {
            pools::open(&mut self.gap, None, is_full, now);
        } else {
            pools::close(&mut self.gap, now);
        }
    }

    /// Records that a change of members could not see the members.
    pub fn saw_nothing(&mut self, why: String, now: At) {
        pools::open(&mut self.gap, Some(why), false, now);
    }

    /// Returns why the provider leaves pools empty.
    pub fn why_empty(&self) -> Option<String> {
        let mut empty = pools::empty(self.pools.as_deref()?, None);
        empty.retain(|one| one.why.is_some());
        (!empty.is_empty()).then(|| pools::in_words(&empty))
    }

    /// Returns true if the cloud works on a call, so that there is nothing to call now.
    pub fn waits_for_cloud(&self, now: At) -> bool {
        self.pending.as_ref().is_some_and(|pending| now < pending.check_at)
    }

    /// Returns the failure of this call.
    pub fn failure(&self, call: CallKind) -> Option<&Failed> {
        self.failed.iter().find(|failed| failed.call == call)
    }

    /// Returns true if this call has failed and must not be repeated yet.
    pub(super) fn waits_after_failure(&self, call: CallKind, view: View<'_>) -> bool {
        self.failure(call).is_some_and(|failed| view.now < failed.due(view.inputs))
    }

    /// Returns true if the creation or update to this configuration has failed and must not be
    /// repeated yet. Another configuration is tried at once.
    pub(super) fn waits_to_ensure(&self, view: View<'_>, front_end: &FrontEnd) -> bool {
        let failed = self.failure(CallKind::Ensure).filter(|failed| {
            failed.digest == Some(front_end.digest)
                && failed.named.iter().map(Option::as_deref).eq(named(view.service, view.traits))
        });
        failed.is_some_and(|failed| view.now < failed.due(view.inputs))
    }

    /// Returns true if the last call to create, update or delete has failed or still runs: the load
    /// balancer may have a part of its configuration or of another configuration, or may be gone. The
    /// configuration may even be the former one: a user may undo a change or a deletion when the cloud
    /// has made a part of it.
    pub(super) fn may_be_partial(&self) -> bool {
        [CallKind::Ensure, CallKind::Delete].into_iter().any(|call| {
            let is_under_way = self.pending.as_ref().is_some_and(|last| last.call == Some(call));
            is_under_way || self.failure(call).is_some()
        })
    }

    /// Returns true if this load balancer was complete once, as this process has seen or the
    /// Service says. A load balancer started by another process may be incomplete, whatever its
    /// digest is.
    pub fn was_complete(&self, service: &Service, id: &str) -> bool {
        let is_known = self.id() == Some(id) && self.configured.is_some();
        is_known || service.annotation(ID) == Some(id)
    }

    /// Returns when the Service should say that the cloud still works on the load balancer.
    pub(super) fn long_pending_at(&self) -> Option<At> {
        self.pending.as_ref().map(|pending| pending.since + PATIENCE)
    }

    /// Returns when the plan may change although no object changes: a failed call or a call about a
    /// gap is due, a condition or another write may be repeated, or the cloud has worked for long.
    pub fn next_look(&self, inputs: Inputs, now: At) -> Option<At> {
        let retries = self.failed.iter().map(|failed| failed.due(inputs));
        let rewrites = self.condition_written.map(|written| written + PAUSE);
        let gap = self.gap.iter().filter_map(Gap::next);
        let others = self.repeats.next(now).into_iter().chain(self.long_pending_at());
        retries.chain(rewrites).chain(gap).chain(others).filter(|at| now < *at).min()
    }

    /// Returns true if a load balancer of another controller waits for a user to approve its
    /// adoption.
    pub fn waits_for_adoption(&self, view: View<'_>) -> bool {
        let is_requested = view.adopts || to_adopt(view.service).is_some();
        self.adoptable.is_some() && self.known == Known::Absent && !is_requested
    }

    /// Returns true if the Service is known to have a load balancer of another controller, or names
    /// one.
    pub fn is_of_others(&self) -> bool {
        self.adoptable.is_some() || self.foreign.is_some()
    }

    /// Returns why the Service does not get its own load balancer, if there is one of others that
    /// it has or names. What a user wants to be adopted instead is tried.
    pub fn stays_on_foreign(
        &self,
        service: &Service,
        traits: &LoadBalancerTraits,
    ) -> Option<String> {
        let Foreign { id, whose, is_named } = self.foreign.as_ref()?;
        if self.known != Known::Absent || to_adopt(service).is_some() {
            return None;
        }
        let what = format!("load balancer {id} does not belong to this Service alone: {whose}");
        if !is_named {
            return Some(format!("{what}; it stays unchanged, and no other one is created"));
        }
        let (key, _) = by_provider(service, traits).filter(|(_, named)| named == id)?;
        Some(format!(
            "annotation {key}: {what}; remove the annotation if the Service should get another one"
        ))
    }

    /// Returns true if the changes of the cloud for this configuration are known.
    pub fn is_previewed(&self, front_end: &FrontEnd) -> bool {
        self.previewed.as_ref().is_some_and(|(digest, _)| *digest == front_end.digest)
    }

    /// Returns what the cloud shows to be wrong with the load balancer, and no call has said: it has failed
    /// and no call repairs it now, or it cannot be read.
    pub fn trouble(&self) -> Option<(Reason, String)> {
        if let Known::There(balancer) = &self.known
            && let Phase::Failed { why, cure } = &balancer.phase
            && (self.pending.is_none() || *cure == Cure::Person)
        {
            let next = match cure {
                Cure::Person => "repair it in the cloud",
                Cure::Ensure => "service-ccm tries to repair it, with growing pauses",
            };
            let text = format!("load balancer {} has failed: {why}; {next}", balancer.id);
            return Some((Reason::LoadBalancerFailed, text));
        }
        let line = self.unreadable.as_ref()?;
        let text = format!("its entry in the cloud's list cannot be read: {line}");
        Some(match &self.pending {
            Some(pending) => (
                Reason::WaitingForCloud,
                format!("waiting for the cloud: {}; {text}", pending.what),
            ),
            None => (Reason::CloudUnavailable, text),
        })
    }

    /// Returns true if only a person can repair the load balancer.
    pub(super) fn needs_person(&self) -> bool {
        let phase = self.balancer().map(|balancer| &balancer.phase);
        matches!(phase, Some(Phase::Failed { cure: Cure::Person, .. }))
    }

    /// Returns the load balancer as the cloud showed it last.
    pub fn balancer(&self) -> Option<&LoadBalancer> {
        match &self.known {
            Known::There(balancer) => Some(balancer),
            _ => None,
        }
    }

    /// Returns true if another controller is responsible.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.known, Known::Elsewhere(_))
    }

    /// Returns the ID of the load balancer, as far as it is known.
    pub fn id(&self) -> Option<&str> {
        match &self.known {
            Known::There(balancer) => Some(&balancer.id),
            Known::Recorded { id } => Some(id),
            _ => None,
        }
    }

    /// Returns the ID by which the cloud should look for the load balancer, the first of these:
    ///
    /// 1. The known ID.
    /// 2. The ID in the Service's annotation. It is not used if it is a copy of another Service's
    ///    ID, nor for a deletion if the load balancer is known to be absent or belongs to another
    ///    owner: a deletion without an ID removes everything of this owner.
    /// 3. To create or change only: the ID that another controller has recorded, or that the
    ///    Service requests in the provider's annotation, so that no second load balancer is made.
    pub fn to_look_for<'a>(
        &'a self,
        service: &'a Service,
        traits: &'a LoadBalancerTraits,
        call: CallKind,
    ) -> Option<&'a str> {
        let is_anothers = |failed: &Failed| failed.error.kind == ErrorKind::Conflict;
        let is_useless = call == CallKind::Delete
            && (self.known == Known::Absent || self.failure(call).is_some_and(is_anothers));
        let by_others = || {
            let named = by_provider(service, traits).map(|(_, id)| id);
            named.filter(|_| call == CallKind::Ensure && to_adopt(service).is_none())
        };
        let is_copy = |id: &&str| self.copied.as_deref() == Some(*id);
        let recorded = || service.annotation(ID).filter(|id| !is_useless && !is_copy(id));
        self.id().or_else(recorded).or_else(by_others)
    }
}

#[cfg(test)]
mod tests;
