//! When a change that failed is tried again: per route, never per pass.

use std::{collections::HashMap, time::Duration};

use ccm_base::{At, Backoff, RetryClass};
use ccm_cloud::CloudError;
use ipnet::IpNet;

/// The back-off of one route.
pub const WAITS: Backoff =
    Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };

/// The last failure of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    count: u32,
    /// When it is tried again.
    pub until: At,
    /// The error.
    pub error: String,
}

/// The failed changes by destination.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    failures: HashMap<IpNet, Failure>,
}

impl Failures {
    /// The last failure, also after the time of its retry.
    pub fn get(&self, destination: IpNet) -> Option<&Failure> {
        self.failures.get(&destination)
    }

    /// Records a failure.
    pub fn add(&mut self, now: At, destination: IpNet, error: &CloudError) {
        let count = self.failures.get(&destination).map_or(0, |failure| failure.count) + 1;
        let wait = match error.class() {
            RetryClass::Retry => WAITS.after(count),
            RetryClass::RetryAfter(after) => after.clamp(WAITS.first, WAITS.longest),
            RetryClass::Permanent => WAITS.longest,
        };
        let failure = Failure { count, until: now + wait, error: error.to_string() };
        self.failures.insert(destination, failure);
    }

    /// The change has succeeded, or what it depends on has changed.
    pub fn forget(&mut self, destination: IpNet) {
        self.failures.remove(&destination);
    }

    /// Keeps the failures of these destinations.
    pub fn retain(&mut self, keep: impl Fn(IpNet) -> bool) {
        self.failures.retain(|destination, _| keep(*destination));
    }
}
