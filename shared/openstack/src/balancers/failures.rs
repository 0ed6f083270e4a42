//! Remembers failed load balancers: when this process saw them in `ERROR`, and what it has tried.
//! Locks and times.
//!
//! None of this memory is required: a process that does not know about a failure waits for a minute
//! and tries a fail-over once more. The cloud's own times are not used, because its clock may
//! differ from ours.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// A load balancer that has just failed is left alone for this long: Octavia may be repairing it,
/// and a cloud in which every creation fails should not be kept busy.
const REST: Duration = Duration::from_mins(1);
/// How long a driver that does not offer a fail-over is not asked for one again. Policies may
/// change.
const REFUSED: Duration = Duration::from_hours(1);
/// How long the memory of other owners' listeners on a load balancer is valid.
const OTHERS: Duration = Duration::from_mins(10);
/// The maximum number of load balancers that are failed over at a time. Each one needs new machines.
const AT_ONCE: usize = 3;
/// A fail-over does not count any more if this process has not seen its end after this time.
const LONGEST: Duration = Duration::from_mins(10);
/// The number of attempts of a fail-over that Octavia neither accepts nor refuses.
const TRIES: u32 = 3;

/// The next step for a load balancer in `ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The load balancer is left alone for this long.
    Rest(Duration),
    /// The load balancer waits until another one has been failed over.
    Turn,
    /// The load balancer is failed over.
    FailOver,
    /// Only a new load balancer helps.
    Replacement,
}

/// The outcome of the request for a fail-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    Accepted,
    /// Octavia refuses a fail-over of this load balancer.
    Refused,
    /// The driver or the policy does not offer it.
    NotOffered,
    /// Octavia did not answer, or its answer may differ later.
    Failed,
}

/// The failures of load balancers.
#[derive(Default)]
pub struct Failures(Mutex<FailureState>);

#[derive(Default)]
struct FailureState {
    by_id: HashMap<String, Failure>,
    /// The time at which each driver was found to offer no fail-over.
    not_offered: HashMap<String, Instant>,
}

/// One failure, from the first time that this process saw it until it sees the load balancer `ACTIVE`.
struct Failure {
    /// The beginning of its rest.
    since: Instant,
    /// The number of attempts of a fail-over.
    tries: u32,
    /// The time at which a fail-over began whose end was not seen yet.
    under_way: Option<Instant>,
    /// The objects of others on the load balancer, and when they were read.
    others: Option<(String, Instant)>,
    /// True if this process deletes the load balancer, so that a new one takes its place.
    is_replaced: bool,
}

impl Default for Failure {
    fn default() -> Self {
        Self { since: Instant::now(), tries: 0, under_way: None, others: None, is_replaced: false }
    }
}

/// Returns the decision about one failure: how long it has lasted, whether a fail-over may be
/// tried, and how many others are under way. Pure.
fn next(lasts: Duration, may_fail_over: bool, under_way: usize) -> Next {
    match REST.saturating_sub(lasts) {
        left if !left.is_zero() => Next::Rest(left),
        _ if !may_fail_over => Next::Replacement,
        _ if under_way >= AT_ONCE => Next::Turn,
        _ => Next::FailOver,
    }
}

impl FailureState {
    /// Returns true if the driver can fail over. The driver `ovn` has no machines that could be
    /// replaced.
    fn may_fail_over(&self, id: &str, driver: &str) -> bool {
        let at = self.not_offered.get(driver);
        let is_offered = driver != "ovn" && at.is_none_or(|at| at.elapsed() >= REFUSED);
        is_offered && self.by_id.get(id).is_none_or(|failure| failure.tries < TRIES)
    }
}

impl Failures {
    /// Sees a load balancer of this driver in `ERROR`. A fail-over that this returns has begun: its
    /// outcome is told with [`Self::tried`].
    pub fn next(&self, id: &str, driver: &str) -> Next {
        let mut state = self.0.lock();
        let may_fail_over = state.may_fail_over(id, driver);
        let failure = state.by_id.entry(id.to_owned()).or_default();
        failure.under_way = None;
        let lasts = failure.since.elapsed();
        let is_under_way =
            |it: &&Failure| it.under_way.is_some_and(|since| since.elapsed() < LONGEST);
        let under_way = state.by_id.values().filter(is_under_way).count();
        let next = next(lasts, may_fail_over, under_way);
        if next == Next::FailOver
            && let Some(failure) = state.by_id.get_mut(id)
        {
            failure.tries += 1;
            failure.under_way = Some(Instant::now());
        }
        next
    }

    /// Records the outcome of a fail-over. One that was accepted or failed is followed by another rest.
    pub fn tried(&self, id: &str, driver: &str, tried: Tried) {
        let mut state = self.0.lock();
        if tried == Tried::NotOffered {
            state.not_offered.insert(driver.to_owned(), Instant::now());
        }
        let Some(failure) = state.by_id.get_mut(id) else { return };
        match tried {
            Tried::Accepted => (failure.tries, failure.since) = (TRIES, Instant::now()),
            Tried::Refused => (failure.tries, failure.under_way) = (TRIES, None),
            Tried::NotOffered => (failure.tries, failure.under_way) = (0, None),
            Tried::Failed => (failure.since, failure.under_way) = (Instant::now(), None),
        }
    }

    /// Returns true if the next step is a fail-over, as far as this process knows.
    pub fn may_fail_over(&self, id: &str, driver: &str) -> bool {
        self.0.lock().may_fail_over(id, driver)
    }

    /// Returns why no fail-over helps, in words.
    pub fn why(&self, id: &str) -> &'static str {
        let state = self.0.lock();
        let has_tried = state.by_id.get(id).is_some_and(|failure| failure.tries > 0);
        match has_tried {
            true => "a fail-over has not helped",
            false => "this cloud offers the project no fail-over of it",
        }
    }

    /// Records what others have on a load balancer in `ERROR`, if anything.
    pub fn keep_others(&self, id: &str, others: Option<String>) {
        if let Some(failure) = self.0.lock().by_id.get_mut(id) {
            failure.others = others.map(|others| (others, Instant::now()));
        }
    }

    /// Returns what others have on it, if that was read lately.
    pub fn others(&self, id: &str) -> Option<String> {
        let state = self.0.lock();
        let (others, at) = state.by_id.get(id)?.others.as_ref()?;
        (at.elapsed() < OTHERS).then(|| others.clone())
    }

    /// Records that this process deletes the load balancer to replace it.
    pub fn replace(&self, id: &str) {
        self.0.lock().by_id.entry(id.to_owned()).or_default().is_replaced = true;
    }

    /// Returns true if this process has begun to replace it.
    pub fn is_replaced(&self, id: &str) -> bool {
        self.0.lock().by_id.get(id).is_some_and(|failure| failure.is_replaced)
    }

    /// Forgets a load balancer that is `ACTIVE`, or gone with everything that would follow.
    pub fn forget(&self, id: &str) {
        self.0.lock().by_id.remove(id);
    }

    /// Handles a complete list, which shows the load balancers of these IDs. The replacement of a
    /// deleted one must still be created.
    pub fn keep_only(&self, ids: &HashSet<&str>) {
        let mut state = self.0.lock();
        state.by_id.retain(|id, failure| ids.contains(id.as_str()) || failure.is_replaced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_then_a_fail_over_then_a_new_one() {
        let seconds = Duration::from_secs;
        for (lasts, may_fail_over, under_way, expect) in [
            (seconds(0), true, 0, Next::Rest(REST)),
            (seconds(59), false, 9, Next::Rest(seconds(1))),
            (REST, true, AT_ONCE - 1, Next::FailOver),
            (REST, true, AT_ONCE, Next::Turn),
            (REST, false, AT_ONCE, Next::Replacement),
        ] {
            assert_eq!(next(lasts, may_fail_over, under_way), expect, "{lasts:?}");
        }
    }

    /// A fail-over without a known end does not block the others forever.
    #[tokio::test(start_paused = true)]
    async fn a_fail_over_counts_for_ten_minutes() {
        let failures = Failures::default();
        let ids = ["a", "b", "c", "d"];
        let all = || ids.map(|id| failures.next(id, "amphora"));
        assert_eq!(all(), [Next::Rest(REST); 4]);
        tokio::time::advance(REST).await;
        let [first @ .., last] = all();
        assert_eq!((first, last), ([Next::FailOver; 3], Next::Turn));
        for id in &ids[..3] {
            failures.tried(id, "amphora", Tried::Accepted);
        }
        tokio::time::advance(LONGEST.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(failures.next("d", "amphora"), Next::Turn);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(failures.next("d", "amphora"), Next::FailOver);
    }

    #[tokio::test(start_paused = true)]
    async fn what_lists_lack_is_forgotten_unless_it_is_replaced() {
        let failures = Failures::default();
        for id in ["gone", "replaced", "there"] {
            failures.next(id, "amphora");
        }
        failures.replace("replaced");
        failures.keep_only(&HashSet::from(["there"]));
        tokio::time::advance(REST).await;
        assert_eq!(failures.next("gone", "amphora"), Next::Rest(REST));
        assert_eq!(failures.next("there", "amphora"), Next::FailOver);
        assert!(failures.is_replaced("replaced") && !failures.is_replaced("there"));
        failures.forget("replaced");
        assert!(!failures.is_replaced("replaced"));
    }
}
