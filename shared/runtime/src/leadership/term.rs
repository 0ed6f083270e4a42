//! How long this process leads.

use std::{sync::Arc, time::Duration};

use ccm_cloud::clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

/// A moment on three clocks. A leader believes the one that has gone furthest: the
/// monotonic clock stands still while a machine sleeps, the wall clock steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    monotonic: Instant,
    since_boot: Duration,
    wall: Timestamp,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), since_boot: clock::since_boot(), wall: clock::wall() }
    }

    /// The longest that may have passed since then.
    fn elapsed(&self) -> Duration {
        let wall = clock::wall().duration_since(self.wall).unsigned_abs();
        // A wall clock that has stepped back says nothing.
        let wall = if clock::wall() > self.wall { wall } else { Duration::ZERO };
        self.monotonic.elapsed().max(clock::since_boot().saturating_sub(self.since_boot)).max(wall)
    }
}

/// A term of leadership that covers what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// How much of it is left at least.
    pub remaining: Duration,
}

/// This process does not lead, or not for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It does not lead.
    #[error("this replica does not lead")]
    NotLeading,
    /// It leads, but its term may end before the write does. The next renewal may
    /// change that: try again shortly.
    #[error("the term of leadership ends in {} ms, too soon for this write", .remaining.as_millis())]
    TooShort {
        /// What is left of the term.
        remaining: Duration,
    },
}

#[derive(Clone, Copy, Debug)]
struct Current {
    since: Moment,
    length: Duration,
}

impl Current {
    fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.since.elapsed())
    }
}

/// What the rest of the process knows of the election. Clones share it.
#[derive(Clone)]
pub struct Leadership {
    inner: Arc<Inner>,
}

struct Inner {
    // `None` inside: leads for ever, because there is no election.
    term: Mutex<Option<Option<Current>>>,
    leading: watch::Sender<bool>,
    write_timeout: Duration,
}

/// How long a write may take where there is no election.
const UNBOUNDED_WRITE: Duration = Duration::from_secs(10);

impl Leadership {
    /// Leads for ever: `--leader-elect=false`.
    pub fn unconditional() -> Self {
        Self::with(Some(None), UNBOUNDED_WRITE)
    }

    /// Does not lead yet.
    pub(super) fn standby(write_timeout: Duration) -> Self {
        Self::with(None, write_timeout)
    }

    fn with(term: Option<Option<Current>>, write_timeout: Duration) -> Self {
        let leading = watch::Sender::new(term.is_some());
        Self { inner: Arc::new(Inner { term: Mutex::new(term), leading, write_timeout }) }
    }

    /// Whether a write that takes at most `need` may begin now.
    pub fn check(&self, need: Duration) -> Result<Term, Lost> {
        let current = match &*self.inner.term.lock() {
            None => return Err(Lost::NotLeading),
            Some(None) => return Ok(Term { remaining: Duration::MAX }),
            Some(Some(current)) => *current,
        };
        let remaining = current.remaining();
        if remaining.is_zero() {
            return Err(Lost::NotLeading);
        }
        if remaining < need {
            return Err(Lost::TooShort { remaining });
        }
        Ok(Term { remaining })
    }

    /// Whether this process leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.check(Duration::ZERO).is_ok()
    }

    /// The time limit that writes should have, so that a term in good order covers them:
    /// half of what is left of it just before a renewal.
    pub fn write_timeout(&self) -> Duration {
        self.inner.write_timeout
    }

    /// Waits until this process leads.
    pub async fn wait_leading(&self) {
        // The sender lives as long as this handle: waiting cannot fail.
        self.inner.leading.subscribe().wait_for(|leading| *leading).await.ok();
    }

    /// Waits until this process has led and does so no more.
    pub async fn wait_ended(&self) {
        let mut leading = self.inner.leading.subscribe();
        leading.wait_for(|leading| *leading).await.ok();
        leading.wait_for(|leading| !*leading).await.ok();
    }

    /// Whether a term has ended while the process still believes that it leads: then
    /// something is stuck, and the process is better restarted.
    pub fn is_overdue(&self) -> bool {
        *self.inner.leading.borrow() && !self.is_leader()
    }

    /// What is left of the term; zero when not leading.
    pub fn remaining(&self) -> Duration {
        self.check(Duration::ZERO).map_or(Duration::ZERO, |term| term.remaining)
    }

    pub(super) fn renew(&self, since: Moment, length: Duration) {
        *self.inner.term.lock() = Some(Some(Current { since, length }));
        self.inner.leading.send_replace(true);
    }

    pub(super) fn end(&self) {
        *self.inner.term.lock() = None;
        self.inner.leading.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_begins_only_within_the_term() {
        let leadership = Leadership::standby(Duration::from_secs(4));
        assert_eq!(leadership.check(Duration::ZERO), Err(Lost::NotLeading));
        leadership.renew(Moment::now(), Duration::from_secs(10));
        assert!(leadership.check(Duration::from_secs(9)).is_ok());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(matches!(leadership.check(Duration::from_secs(4)), Err(Lost::TooShort { .. })));
        assert!(leadership.check(Duration::from_secs(2)).is_ok());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(leadership.check(Duration::ZERO), Err(Lost::NotLeading));
        assert!(leadership.is_overdue());
        leadership.end();
        assert!(!leadership.is_overdue());
    }

    #[tokio::test(start_paused = true)]
    async fn without_election_one_always_leads() {
        let leadership = Leadership::unconditional();
        leadership.wait_leading().await;
        assert!(leadership.check(Duration::from_secs(3600)).is_ok());
    }
}
