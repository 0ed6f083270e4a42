//! The term of leadership of this process.

use std::{sync::Arc, time::Duration};

use ccm_base::clock;
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};

use super::LeaseAnnotations;

/// A moment on three clocks. A leader uses the one that advanced most: the monotonic clock
/// stops while the machine is suspended, and the wall clock can step.
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

    /// Returns the longest time that may have passed until `later`. A clock that stepped back is
    /// ignored.
    fn until(&self, later: &Self) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        let since_boot = later.since_boot.saturating_sub(self.since_boot);
        let wall = Duration::try_from(later.wall.duration_since(self.wall)).unwrap_or_default();
        monotonic.max(since_boot).max(wall)
    }

    /// Returns the longest time that may have passed since then.
    pub(super) fn elapsed(&self) -> Duration {
        self.until(&Self::now())
    }
}

/// A term of leadership that covers the requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The minimum remaining time.
    pub remaining: Duration,
    /// Grows with each leader, so that a cloud can detect a write of an earlier one. `None`
    /// without election.
    pub number: Option<u64>,
}

/// This process does not lead, or its term ends too soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It does not lead.
    #[error("this replica does not lead")]
    NotLeading,
    /// It never writes.
    #[error("this process only observes (--mode=observe)")]
    Observing,
    /// It leads, but its term may end before the write does. Retry shortly: the next renewal may
    /// extend it.
    #[error("the term of leadership ends in {} ms, which is too short for this write", .remaining.as_millis())]
    TooShort {
        /// The remaining term.
        remaining: Duration,
    },
}

#[derive(Clone, Copy, Debug)]
struct Current {
    since: Moment,
    length: Duration,
    number: u64,
}

impl Current {
    fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.since.elapsed())
    }
}

/// The leadership state, for the rest of the process. Clones share it.
#[derive(Clone)]
pub struct Leadership {
    state: Arc<watch::Sender<TermState>>,
    write_timeout: Duration,
    annotations: LeaseAnnotations,
}

#[derive(Clone, Copy)]
enum TermState {
    /// Does not lead yet.
    Standby,
    /// Leads until the end of this term, by the clock.
    Term(Current),
    /// Leads without a limit, because there is no election.
    Unlimited,
    /// Works like a leader, but may not write.
    Observer,
    /// Has led. A process does not lead twice.
    Ended,
}

/// The time limit for a write without election.
const UNBOUNDED_WRITE: Duration = Duration::from_secs(10);

impl Leadership {
    /// Returns a leadership that never ends: `--leader-elect=false`.
    pub fn unconditional() -> Self {
        Self::with(TermState::Unlimited, UNBOUNDED_WRITE)
    }

    /// Returns a leadership that never ends, whose annotations the API server stores only with
    /// [`annotate`](LeaseAnnotations::annotate): for tests.
    pub fn storing_later() -> Self {
        let annotations = LeaseAnnotations::elected();
        Self { annotations, ..Self::with(TermState::Unlimited, UNBOUNDED_WRITE) }
    }

    /// Works like a leader, but may not write: `--mode=observe`.
    pub fn observer() -> Self {
        Self::with(TermState::Observer, UNBOUNDED_WRITE)
    }

    /// Does not lead yet.
    pub(super) fn standby(write_timeout: Duration, annotations: LeaseAnnotations) -> Self {
        Self { annotations, ..Self::with(TermState::Standby, write_timeout) }
    }

    /// Returns the annotations of the Lease.
    pub fn annotations(&self) -> &LeaseAnnotations {
        &self.annotations
    }

    /// Leads for this time from now on. With a zero length it does not lead. For tests of writers.
    pub fn for_a_term(length: Duration) -> Self {
        let leadership = Self::standby(length, LeaseAnnotations::default());
        leadership.renew(Moment::now(), length, 1);
        leadership
    }

    /// Adds what the last leader has left. For tests of a change of leader.
    #[must_use]
    pub fn after(self, last: &Self) -> Self {
        self.annotations.succeed(&last.annotations);
        self
    }

    fn with(state: TermState, write_timeout: Duration) -> Self {
        let state = Arc::new(watch::Sender::new(state));
        Self { state, write_timeout, annotations: LeaseAnnotations::default() }
    }

    /// Checks that a write that takes at most `need` may start now.
    pub fn check(&self, need: Duration) -> Result<Term, Lost> {
        let state = *self.state.borrow();
        let current = match state {
            TermState::Standby | TermState::Ended => return Err(Lost::NotLeading),
            TermState::Observer => return Err(Lost::Observing),
            TermState::Unlimited => return Ok(Term { remaining: Duration::MAX, number: None }),
            TermState::Term(current) => current,
        };
        let remaining = current.remaining();
        if remaining.is_zero() {
            return Err(Lost::NotLeading);
        }
        if remaining < need {
            return Err(Lost::TooShort { remaining });
        }
        Ok(Term { remaining, number: Some(current.number) })
    }

    /// Checks that a write to the cloud may start now: while [`Leadership::write_timeout`] is left
    /// of the term. Some cloud calls take longer than any term, so the caller waits for such a
    /// write beyond the term. A late write is harmless, because it is idempotent, carries a
    /// precondition, or can be found by its owner tag.
    pub fn check_cloud_write(&self) -> Result<Term, Lost> {
        self.check(self.write_timeout())
    }

    /// Returns true if this process leads now.
    pub fn is_leader(&self) -> bool {
        self.check(Duration::ZERO).is_ok()
    }

    /// Returns the time limit for writes that a regularly renewed term covers: half of its
    /// remaining time just before a renewal.
    pub fn write_timeout(&self) -> Duration {
        self.write_timeout
    }

    /// Waits until this process leads; an observer does not wait. Never returns once leadership
    /// was lost.
    pub async fn wait_leading(&self) {
        self.reach(|state| !matches!(state, TermState::Standby | TermState::Ended)).await;
    }

    /// Waits until leadership is lost. Time-critical code calls [`Leadership::check`] instead: a
    /// term expires by the clock before waiters are notified.
    pub async fn lost(&self) {
        self.reach(|state| matches!(state, TermState::Ended)).await;
    }

    async fn reach(&self, reached: impl FnMut(&TermState) -> bool) {
        // The sender lives as long as this handle: waiting cannot fail.
        self.state.subscribe().wait_for(reached).await.ok();
    }

    /// Returns true if a term has expired while the process still considers itself leader: a task
    /// is stuck, and the process should be restarted.
    pub fn is_overdue(&self) -> bool {
        matches!(*self.state.borrow(), TermState::Term(current) if current.remaining().is_zero())
    }

    /// Returns the remaining term; zero when not leading.
    pub fn remaining(&self) -> Duration {
        self.check(Duration::ZERO).map_or(Duration::ZERO, |term| term.remaining)
    }

    /// Renews the term of this number: it now lasts for `length` from `since`. Returns false if
    /// that has already expired: then the term does not start.
    pub(super) fn renew(&self, since: Moment, length: Duration, number: u64) -> bool {
        let current = Current { since, length, number };
        if current.remaining().is_zero() {
            return false;
        }
        self.state.send_replace(TermState::Term(current));
        true
    }

    /// Ends leadership. Returns true if this process led.
    pub(super) fn end(&self) -> bool {
        self.state.send_if_modified(|state| {
            let led = matches!(state, TermState::Term(_));
            if led {
                *state = TermState::Ended;
            }
            led
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);

    fn standby() -> Leadership {
        Leadership::standby(Duration::from_secs(4), LeaseAnnotations::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_begins_only_within_the_term() {
        let leadership = standby();
        assert_eq!(leadership.check(Duration::ZERO), Err(Lost::NotLeading));
        assert!(leadership.renew(Moment::now(), TERM, 1));
        assert!(leadership.check(Duration::from_secs(9)).is_ok());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(matches!(leadership.check(Duration::from_secs(4)), Err(Lost::TooShort { .. })));
        assert!(leadership.check(Duration::from_secs(2)).is_ok());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(leadership.check(Duration::ZERO), Err(Lost::NotLeading));
    }

    /// The rule is the same as in upstream's health check: it fails only for a process that
    /// considers itself leader after its term expired. Upstream allows 20 s more; here nothing can
    /// delay the end of a term, because each write checks the clock.
    #[tokio::test(start_paused = true)]
    async fn only_a_leader_whose_term_is_over_is_overdue() {
        let leadership = standby();
        assert!(!leadership.is_overdue(), "a standby");
        leadership.renew(Moment::now(), TERM, 1);
        assert!(!leadership.is_overdue(), "a term in good order");
        tokio::time::advance(TERM).await;
        assert!(leadership.is_overdue(), "a term that is over");
        leadership.end();
        assert!(!leadership.is_overdue(), "leadership that has ended");
        assert!(!Leadership::unconditional().is_overdue(), "no election");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_that_has_gone_furthest_counts() {
        let now = Moment::now();
        let later = |monotonic, since_boot, wall: i64| {
            let seconds = Duration::from_secs;
            Moment {
                monotonic: now.monotonic + seconds(monotonic),
                since_boot: now.since_boot + seconds(since_boot),
                wall: now.wall + jiff::SignedDuration::from_secs(wall),
            }
        };
        let check =
            |then: Moment, expect: u64| assert_eq!(now.until(&then), Duration::from_secs(expect));
        check(later(3, 3, 3), 3);
        check(later(3, 300, 3), 300); // a suspended machine
        check(later(3, 3, 300), 300); // an undetected suspend, or a clock set forward
        check(later(3, 3, -300), 3); // a clock set back
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_does_not_wake_as_leader() {
        let leadership = standby();
        let before_sleep =
            Moment { since_boot: clock::since_boot().saturating_sub(TERM), ..Moment::now() };
        assert!(!leadership.renew(before_sleep, TERM, 1));
        assert_eq!(leadership.check(Duration::ZERO), Err(Lost::NotLeading));
    }

    #[tokio::test(start_paused = true)]
    async fn without_election_one_always_leads() {
        let leadership = Leadership::unconditional();
        leadership.wait_leading().await;
        assert!(leadership.check(Duration::from_hours(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_works_at_once_and_may_never_write() {
        let leadership = Leadership::observer();
        leadership.wait_leading().await;
        for need in [Duration::ZERO, TERM] {
            assert_eq!(leadership.check(need), Err(Lost::Observing));
        }
        assert!(!leadership.is_leader() && !leadership.is_overdue());
    }

    #[tokio::test(start_paused = true)]
    async fn all_waiters_see_the_end_of_leadership() {
        let leadership = standby();
        let (first, second) = (leadership.clone(), leadership.clone());
        let story = async {
            leadership.renew(Moment::now(), TERM, 1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            leadership.end();
        };
        tokio::join!(first.lost(), second.lost(), story);
        assert!(!leadership.is_leader());
        leadership.lost().await; // a late waiter returns at once
    }
}
