//! Decides when a failed change is tried again: per route, never per pass.

use std::{collections::HashMap, time::Duration};

use ccm_base::{At, Backoff, RetryClass, Waits};
use ccm_cloud::{CloudError, ErrorKind};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Lack, node_routes::LackSource, retry::Retry};

/// The waits of one route.
pub const WAITS: Waits =
    Waits::within(Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) });

/// The last failure of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When it is tried again.
    pub retry: Retry,
    /// The error.
    pub error: String,
    /// `None` for a defect, and for a change that does not last.
    pub kind: Option<ErrorKind>,
}

impl Failure {
    /// Returns its meaning for the node of the route.
    pub fn lack(&self) -> Lack {
        let (source, has_failed) =
            (LackSource::Change, !self.kind.is_some_and(ErrorKind::is_at_work));
        Lack { source, has_failed, ..Lack::pending(&*self.error) }
    }
}

/// Returns true if others have changed the table in the meantime: not a failure, and the next list shows it.
pub fn is_conflict(error: &CloudError) -> bool {
    error.kind == ErrorKind::Busy
}

/// Returns true if the change has failed. A conflict is not a failure: the next list shows what others have changed.
/// Nor is a change that the cloud is still making: it is sent again, after a pause, until a list shows it.
pub fn is_failure(error: &CloudError) -> bool {
    !error.kind.is_at_work()
}

/// The failed changes by destination.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Failures {
    failures: HashMap<IpNet, Failure>,
}

impl Failures {
    /// Returns the last failure, also after the time of its retry.
    pub fn get(&self, destination: IpNet) -> Option<&Failure> {
        self.failures.get(&destination)
    }

    /// Records a failure.
    pub fn add(&mut self, now: At, destination: IpNet, error: &CloudError) {
        let is_conflict = is_conflict(error);
        // It is forgotten after the next list, which comes earlier if the cloud answers.
        let class = if is_conflict { RetryClass::Retry } else { error.class() };
        self.record(now, destination, class, error.to_string(), Some(error.kind));
    }

    /// Records that a route exists, but still carries no traffic.
    pub fn add_defect(&mut self, now: At, destination: IpNet, defect: &str) {
        self.record(now, destination, RetryClass::Retry, defect.to_owned(), None);
    }

    /// Delays the next attempt of a change that the cloud has confirmed and not kept.
    pub fn postpone(&mut self, destination: IpNet, until: At, why: &str) {
        let new = || Failure { retry: Retry::default(), error: why.to_owned(), kind: None };
        let failure = self.failures.entry(destination).or_insert_with(new);
        failure.retry.at = failure.retry.at.max(until);
    }

    fn record(
        &mut self,
        now: At,
        destination: IpNet,
        class: RetryClass,
        error: String,
        kind: Option<ErrorKind>,
    ) {
        let mut retry = self.failures.get(&destination).map(|last| last.retry).unwrap_or_default();
        retry.record_failure(now, &WAITS, class);
        let failure = Failure { retry, error, kind };
        self.failures.insert(destination, failure);
    }

    /// Records that the change has succeeded, or what it depends on has changed.
    pub fn forget(&mut self, destination: IpNet) {
        self.failures.remove(&destination);
    }

    /// Records that the destination has its route: the cloud has made the change that it was still
    /// making.
    pub fn forget_pending(&mut self, destination: IpNet) {
        let kind = self.failures.get(&destination).and_then(|failure| failure.kind);
        if kind == Some(ErrorKind::Pending) {
            self.failures.remove(&destination);
        }
    }

    /// Records that the cause of all failures of this kind is over: they are tried at once.
    pub fn forget_kind(&mut self, kind: ErrorKind) {
        self.failures.retain(|_, failure| failure.kind != Some(kind));
    }

    /// Keeps the failures of these destinations, and failures that still wait: a deleted route may
    /// come back.
    pub fn retain(&mut self, now: At, keep: impl Fn(IpNet) -> bool) {
        self.failures
            .retain(|destination, failure| !failure.retry.is_due(now) || keep(*destination));
    }
}
