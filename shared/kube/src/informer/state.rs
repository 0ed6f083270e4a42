//! The health of a running informer's watch, shared with those that act on it.

use std::{fmt, sync::Arc, time::Duration};

use ccm_base::{clock, duration};
use ccm_metrics::{FloatGauge, Text};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::health::{Comparison, WatchHealth};
use crate::error::ApiError;

/// The state of an informer's watch. Clones refer to the same informer.
#[derive(Clone)]
pub struct WatchState(Arc<Inner>);

struct Inner {
    resource: Text,
    health: Mutex<WatchHealth>,
    /// When the watch was last known to work.
    proven: FloatGauge,
    /// Set when everything must be listed.
    list: Notify,
    /// Set when a comparison is useful now.
    compare: Notify,
}

/// A watch that does not work, for pages and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWatch {
    resource: Text,
    why: String,
    /// How long it has not worked.
    pub lasted: Duration,
}

impl fmt::Display for FailedWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, why, lasted } = self;
        let lasted = duration::format(Duration::from_secs(lasted.as_secs()));
        write!(f, "the watch of {resource} has not worked for {lasted}: {why}")
    }
}

impl WatchState {
    /// Creates the state of an informer that begins now. The gauge holds the time when the watch
    /// was last known to work, or else the time of the beginning.
    pub(super) fn new(resource: Text, proven: FloatGauge) -> Self {
        proven.set(clock::unix_seconds());
        Self(Arc::new(Inner {
            resource,
            health: Mutex::new(WatchHealth::new(Instant::now())),
            proven,
            list: Notify::new(),
            compare: Notify::new(),
        }))
    }

    /// Returns the watched resource.
    pub(super) fn resource(&self) -> &Text {
        &self.0.resource
    }

    /// Returns the reason why the watch does not work, or `None` if it works. At the start it must
    /// first show that it works.
    pub fn failure(&self) -> Option<FailedWatch> {
        let now = Instant::now();
        let silence = self.0.health.lock().silence(now)?;
        let lasted = now.saturating_duration_since(silence.since);
        Some(FailedWatch { resource: self.0.resource.clone(), why: silence.why, lasted })
    }

    /// Returns the last error, if nothing succeeded since.
    pub fn last_error(&self) -> Option<ApiError> {
        self.0.health.lock().error().cloned()
    }

    /// Asks for a new list of everything.
    pub(super) fn want_list(&self, after: Instant) {
        self.update(|health| health.want_list(after));
        self.0.list.notify_one();
    }

    pub(super) fn accepted(&self) {
        self.update(|health| health.accepted(Instant::now()));
        self.0.compare.notify_one();
    }

    pub(super) fn refused(&self, error: ApiError) {
        self.0.compare.notify_one();
        self.update(|health| health.refused(error));
    }

    pub(super) fn failed(&self, error: ApiError) {
        self.0.compare.notify_one();
        self.update(|health| health.failed(error));
    }

    pub(super) fn compared(&self, comparison: Comparison, answer: Result<String, ApiError>) {
        let answer = answer.as_deref().map_err(Clone::clone);
        self.update(|health| health.compared(comparison, answer));
        if self.must_list() {
            self.0.list.notify_one();
        }
    }

    pub(super) fn must_list(&self) -> bool {
        self.0.health.lock().must_list()
    }

    /// Waits until everything must be listed.
    pub(super) async fn list_needed(&self) {
        while !self.must_list() {
            self.0.list.notified().await;
        }
    }

    /// Waits until a watch begins or fails.
    pub(super) async fn comparison_wanted(&self) {
        self.0.compare.notified().await;
    }

    /// Answers a question about the health.
    pub(super) fn read<T>(&self, read: impl FnOnce(&WatchHealth) -> T) -> T {
        read(&self.0.health.lock())
    }

    /// Changes the health, and the metric that shows when the watch was last seen to work.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut WatchHealth) -> T) -> T {
        let mut health = self.0.health.lock();
        let before = health.proven();
        let result = change(&mut health);
        if health.proven() != before {
            self.0.proven.set(clock::unix_seconds());
        }
        result
    }
}
