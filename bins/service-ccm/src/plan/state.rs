//! What is known of one load balancer.

use ccm_base::At;
use ccm_cloud::{CloudError, Digest, ErrorKind, FrontEnd, LoadBalancer, Members};
use ccm_objects::Service;

use super::{
    View,
    named::{named, to_adopt},
    status::{ID, Written},
};

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

/// How often the cloud may refuse a call because of another change before it is reported: after 5, 10,
/// 20 and 40 s.
const PASSES: u32 = 5;

/// A call that failed, and was not made with success since.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// The call.
    pub call: CallKind,
    /// The configuration that it was about.
    pub digest: Option<Digest>,
    /// The load balancer that the Service asked to adopt, and the one that it named its own.
    pub named: [Option<Box<str>>; 2],
    /// The error.
    pub error: CloudError,
    /// How often it has failed in a row.
    pub times: u32,
    /// When it is made again.
    pub retry_at: At,
}

impl Failed {
    /// Whether another client's change in passing is the reason, which is no failure. One that does
    /// not pass within a minute is.
    pub fn may_pass(&self) -> bool {
        self.error.kind == ErrorKind::Busy && self.times < PASSES
    }

    /// Whether it is not made again until the Service changes.
    pub fn is_final(&self) -> bool {
        self.call == CallKind::Ensure
            && matches!(self.error.kind, ErrorKind::Invalid | ErrorKind::Unsupported)
    }
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
    pub condition_written: Option<Written>,
    /// Whether the answer to a deletion has proved that nothing of this owner exists, or that
    /// another controller is responsible.
    pub proved_absent: bool,
    /// A load balancer that another controller made for this Service, and what shows that.
    pub adoptable: Option<(String, String)>,
    /// Whether the cloud is to be asked what it has, by a call, because no list shows it.
    pub look: bool,
    /// What the cloud would change for this configuration, one line each.
    pub previewed: Option<(Digest, Vec<String>)>,
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

    /// Whether this call has failed and is not to be made yet.
    pub(super) fn waits_after_failure(&self, call: CallKind, now: At) -> bool {
        self.failure(call).is_some_and(|failed| now < failed.retry_at)
    }

    /// The same for this configuration: another one is tried at once. What the cloud refuses as
    /// invalid is not tried again until it changes.
    pub(super) fn waits_to_ensure(&self, view: View<'_>, front_end: &FrontEnd) -> bool {
        let failed = self.failure(CallKind::Ensure).filter(|failed| {
            failed.digest == Some(front_end.digest)
                && failed.named.iter().map(Option::as_deref).eq(named(view.service))
        });
        failed.is_some_and(|failed| failed.is_final() || view.now < failed.retry_at)
    }

    /// Whether the last call to create or update has not ended well: the load balancer may have a part
    /// of its configuration or of another one. That holds as well if the configuration is the one that
    /// the load balancer had before: a change may have been taken back when a part of it was made.
    pub(super) fn may_be_partial(&self) -> bool {
        let is_ensure = |last: &Pending| last.call == Some(CallKind::Ensure);
        self.pending.as_ref().is_some_and(is_ensure) || self.failure(CallKind::Ensure).is_some()
    }

    /// When the plan may be another one although nothing changes: a failed call is due again, or a
    /// condition may be rewritten.
    pub fn next_look(&self, now: At) -> Option<At> {
        let retries = self.failed.iter().map(|failed| failed.retry_at);
        let written = self.condition_written.into_iter();
        let rewrites = written.flat_map(|one| [true, false].map(|moves| one.next(moves)));
        retries.chain(rewrites).filter(|at| now < *at).min()
    }

    /// Whether there is a load balancer of another controller that no user has approved to adopt.
    pub fn waits_for_adoption(&self, view: View<'_>) -> bool {
        let is_requested = view.adopts || to_adopt(view.service).is_some();
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

    /// The ID by which the cloud is to look for the load balancer: the known one; else what the
    /// Service says, which may be the copy of another Service's annotation. To delete what is known
    /// not to exist, or what the cloud says is another's, no ID is needed: everything of the owner
    /// goes.
    pub fn to_look_for<'a>(&'a self, service: &'a Service, call: CallKind) -> Option<&'a str> {
        let is_anothers = |failed: &Failed| failed.error.kind == ErrorKind::Conflict;
        let is_useless = call == CallKind::Delete
            && (self.known == Known::Absent || self.failure(call).is_some_and(is_anothers));
        self.id().or_else(|| service.annotation(ID).filter(|_| !is_useless))
    }
}

#[cfg(test)]
mod tests {
    use ccm_objects::ServiceDetails;

    use super::*;

    #[test]
    fn a_copied_annotation_delays_no_deletion() {
        let annotations = [(ID.into(), "lb-1".into())].into();
        let details = ServiceDetails { annotations, ..ServiceDetails::default() };
        let copy = Service { details: Some(Box::new(details)), ..Service::default() };
        let mut state = State::default();
        let id = |state: &State, call| state.to_look_for(&copy, call).map(str::to_owned);
        let named = || Some("lb-1".to_owned());
        assert_eq!(id(&state, CallKind::Ensure), named());
        assert_eq!(id(&state, CallKind::Delete), named(), "nothing else is known");
        state.failed.push(Failed {
            call: CallKind::Delete,
            digest: None,
            named: [None, None],
            error: CloudError::new(ErrorKind::Conflict, "load balancer lb-1 is another's"),
            times: 1,
            retry_at: At::default(),
        });
        assert_eq!(id(&state, CallKind::Delete), None, "the cloud says that it is another's");
        state.failed.clear();
        state.known = Known::Absent;
        assert_eq!(id(&state, CallKind::Delete), None, "the list shows none of this Service");
        assert_eq!(id(&state, CallKind::Ensure), named(), "no second one is made by mistake");
        state.known = Known::There(Box::new(LoadBalancer::new("lb-2", "", None)));
        for call in [CallKind::Ensure, CallKind::Delete] {
            assert_eq!(id(&state, call), Some("lb-2".to_owned()), "what the cloud has shown");
        }
    }
}
