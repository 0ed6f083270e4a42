//! Turns: spaces out work that many keys need at the same time. Pure.
//!
//! A key whose turn has not come goes back to its queue until then. So it occupies no worker
//! while it waits, other work of the same key is not delayed, and there is nothing to drain.
//! Turns also step aside for a moment while something more urgent is under way.

use std::{collections::BTreeMap, ops::Add, time::Duration};

use ccm_base::At;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long a turn is valid. Longer than a key takes from the queue to its worker; short, so
/// that turns that were missed during a disturbance are not all used at its end.
const VALID: Duration = Duration::from_secs(10);

/// The longest time that a due turn yields to urgent work, so that a steady stream of it delays
/// turns by this time and does not lower their rate. Shorter than [`VALID`].
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest interval between two units of work.
const LONGEST: Duration = Duration::from_hours(1);

/// Limits work to a burst at once and then a steady rate.
///
/// Implements the generic cell rate algorithm of ATM: `full_at` is when the bucket is full
/// again; a unit is delayed by what exceeds the burst.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RateLimiter<T = Instant> {
    interval: Duration,
    burst: Duration,
    full_at: Option<T>,
}

/// A moment of the clock that the caller of a limiter reads.
pub(crate) trait Moment: Copy + Ord + Add<Duration, Output = Self> {
    /// The time since `earlier`; zero if it is not earlier.
    fn after(self, earlier: Self) -> Duration;
}

impl Moment for Instant {
    fn after(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

impl Moment for At {
    fn after(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl<T: Moment> RateLimiter<T> {
    /// A rate that is not positive does not limit.
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        let interval = interval(rate);
        Self { interval, burst: interval.saturating_mul(burst.saturating_sub(1)), full_at: None }
    }

    /// At most one second's worth at once, but at least one unit.
    fn per_second(rate: f64) -> Self {
        let interval = interval(rate);
        Self { interval, burst: Duration::from_secs(1).saturating_sub(interval), full_at: None }
    }

    /// Reserves one unit and returns its delay.
    pub(crate) fn reserve(&mut self, now: T) -> Duration {
        let start = self.full_at.map_or(now, |at| at.max(now));
        self.full_at = Some(start + self.interval);
        start.after(now).saturating_sub(self.burst)
    }
}

/// The time between two units.
fn interval(rate: f64) -> Duration {
    if rate > 0.0 {
        Duration::try_from_secs_f64(1.0 / rate).map_or(LONGEST, |interval| interval.min(LONGEST))
    } else {
        Duration::ZERO
    }
}

/// The turns of keys that wait for one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Turns<K: Ord> {
    rate: Option<f64>,
    limiter: RateLimiter<At>,
    waiting: BTreeMap<K, At>,
    /// Until then turns that have come step aside.
    aside_until: Option<At>,
}

impl<K: Clone + Ord> Turns<K> {
    /// At most this many units per second on average, and one second's worth at once; `None`
    /// for no limit.
    pub fn new(rate: Option<f64>) -> Self {
        let limiter = RateLimiter::per_second(rate.unwrap_or_default());
        Self { rate, limiter, waiting: BTreeMap::new(), aside_until: None }
    }

    /// Uses the key's turn for this many units of work if it has come and need not step aside.
    /// Otherwise the key has a turn from now on, and the time until then is returned.
    ///
    /// # Errors
    ///
    /// The time until the key should ask again.
    pub fn take(&mut self, key: &K, units: usize, now: At) -> Result<(), Duration> {
        let known = self.waiting.get(key).copied().filter(|turn| now < *turn + VALID);
        let turn = known.unwrap_or_else(|| {
            let waits = (0..units).map(|_| self.limiter.reserve(now));
            now + waits.last().unwrap_or_default()
        });
        let aside = self.aside_until.map_or(turn, |until| until.min(turn + PATIENCE));
        let start = turn.max(aside);
        if start <= now || self.rate.is_none() {
            self.waiting.remove(key);
            return Ok(());
        }
        self.waiting.insert(key.clone(), turn);
        Err(start.since(now))
    }

    /// Something more urgent is under way until then: turns step aside, each for a second at
    /// most. Without a rate there are no turns, and nothing steps aside.
    pub fn step_aside(&mut self, until: At) {
        self.aside_until = self.aside_until.max(Some(until));
    }

    /// Forgets a key that needs no turn any more.
    pub fn forget(&mut self, key: &K) {
        self.waiting.remove(key);
    }

    /// Changes the rate. All waiting keys lose their turns and are returned: they have to take
    /// new ones.
    pub fn configure(&mut self, rate: Option<f64>) -> Vec<K> {
        let new = Self::new(rate);
        if new.rate == self.rate {
            return Vec::new();
        }
        let old = std::mem::replace(self, new);
        old.waiting.into_keys().collect()
    }

    /// The number of keys that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: At = At(Duration::from_hours(1));

    #[test]
    fn the_rate_limiter_grants_a_burst_and_then_a_rate() {
        let now = START;
        let mut limiter = RateLimiter::new(10.0, 3);
        let waits: Vec<u128> = (0..6).map(|_| limiter.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_secs(10);
        assert_eq!(limiter.reserve(later), Duration::ZERO, "the burst has grown back");
    }

    #[test]
    fn a_rate_that_is_not_positive_is_no_limit() {
        let now = START;
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut limiter = RateLimiter::new(rate, 1);
            assert!((0..1000).all(|_| limiter.reserve(now).is_zero()), "{rate}");
        }
        let mut rare = RateLimiter::new(f64::MIN_POSITIVE, 1);
        assert_eq!([rare.reserve(now), rare.reserve(now)], [Duration::ZERO, LONGEST]);
    }

    /// The number of keys with a turn in each second, if each asks again when its turn has
    /// come.
    fn per_second(turns: &mut Turns<u32>, keys: u32, start: At, seconds: u32) -> Vec<usize> {
        let mut due: Vec<(u32, At)> = (0..keys).map(|key| (key, start)).collect();
        let in_second = |second: u32| {
            let end = start + SECOND * (second + 1);
            let (now, later) = due.drain(..).partition::<Vec<_>, _>(|(_, at)| *at < end);
            due = later;
            let mut done = 0;
            for (key, at) in now {
                match turns.take(&key, 1, at) {
                    Ok(()) => done += 1,
                    Err(wait) if at + wait < end => {
                        assert_eq!(turns.take(&key, 1, at + wait), Ok(()), "its turn has come");
                        done += 1;
                    }
                    Err(wait) => due.push((key, at + wait)),
                }
            }
            done
        };
        (0..seconds).map(in_second).collect()
    }

    #[test]
    fn many_keys_get_one_second_at_once_and_then_the_rate() {
        let mut turns = Turns::new(Some(50.0));
        let start = START;
        assert_eq!(per_second(&mut turns, 240, start, 5), [99, 50, 50, 41, 0]);
        assert_eq!(turns.waiting(), 0);
        let mut unlimited = Turns::new(None);
        assert_eq!(per_second(&mut unlimited, 240, start, 1), [240]);
    }

    #[test]
    fn a_key_keeps_its_turn_and_asks_once_for_it() {
        let (mut turns, now) = (Turns::new(Some(1.0)), START);
        assert_eq!(turns.take(&"a", 1, now), Ok(()));
        assert_eq!(turns.take(&"b", 1, now), Err(SECOND));
        assert_eq!(turns.take(&"c", 2, now), Err(3 * SECOND), "two writes take two turns");
        for early in [0, 400, 900] {
            let early = Duration::from_millis(early);
            assert_eq!(turns.take(&"b", 1, now + early), Err(SECOND - early));
        }
        assert_eq!(turns.take(&"b", 1, now + 3 * SECOND), Ok(()), "a little late is in time");
        assert_eq!(turns.waiting(), 1);
        turns.forget(&"c");
        assert_eq!(turns.waiting(), 0);
    }

    #[test]
    fn turns_step_aside_for_a_second_at_most() {
        let (mut turns, now) = (Turns::new(Some(1.0)), START);
        let ms = Duration::from_millis;
        turns.step_aside(now + ms(200));
        turns.step_aside(now + ms(100));
        assert_eq!(turns.take(&"a", 1, now), Err(ms(200)), "a shorter one ends no longer one");
        assert_eq!(turns.take(&"b", 1, now), Err(SECOND), "its turn is later");
        turns.step_aside(now + ms(700));
        assert_eq!(turns.take(&"a", 1, now + ms(200)), Err(ms(500)));
        turns.step_aside(now + ms(5000));
        assert_eq!(turns.take(&"a", 1, now + ms(700)), Err(ms(300)));
        assert_eq!(turns.take(&"a", 1, now + SECOND), Ok(()));
        assert_eq!(turns.take(&"b", 1, now + SECOND), Err(SECOND));
        assert_eq!(turns.take(&"b", 1, now + 2 * SECOND), Ok(()));
        assert_eq!(turns.waiting(), 0);

        let mut unlimited = Turns::new(None);
        unlimited.step_aside(now + SECOND);
        assert_eq!(unlimited.take(&"a", 1, now), Ok(()));
    }

    #[test]
    fn a_steady_stream_of_urgent_work_does_not_lower_the_rate() {
        let (mut turns, start) = (Turns::new(Some(50.0)), START);
        let mut due: Vec<(u32, At)> = (0..1000).map(|key| (key, start)).collect();
        let mut done = [0; 8];
        for step in 0..800_u32 {
            let now = start + Duration::from_millis(10) * step;
            turns.step_aside(now + Duration::from_millis(200));
            for (key, at) in due.extract_if(.., |(_, at)| *at <= now).collect::<Vec<_>>() {
                match turns.take(&key, 1, at) {
                    Ok(()) => done[step as usize / 100] += 1,
                    Err(wait) => due.push((key, at + wait)),
                }
            }
        }
        assert_eq!(done[0], 0, "each turn steps aside for a second");
        assert!(done[2..].iter().all(|count| (49..=51).contains(count)), "{done:?}");
    }

    /// After a disturbance all keys come at once.
    #[test]
    fn missed_turns_are_not_all_used_at_once() {
        let (mut turns, start) = (Turns::new(Some(50.0)), START);
        assert!((0..5000).filter(|key| turns.take(key, 1, start).is_ok()).count() == 50);
        let after = start + Duration::from_mins(5);
        let at_once = (0..5000).filter(|key| turns.take(key, 1, after).is_ok()).count();
        assert_eq!(at_once, 50);
    }

    #[test]
    fn a_new_rate_voids_the_turns() {
        let (mut turns, now) = (Turns::new(Some(0.01)), START);
        assert_eq!(turns.take(&"a", 1, now), Ok(()));
        assert!(turns.take(&"b", 1, now).is_err());
        assert_eq!(turns.configure(Some(0.01)), [""; 0], "the same rate");
        assert_eq!(turns.waiting(), 1);
        assert_eq!(turns.configure(Some(50.0)), ["b"]);
        assert_eq!(turns.take(&"b", 1, now), Ok(()));
        assert_eq!(turns.configure(None), [""; 0]);
    }
}
