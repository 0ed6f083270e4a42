//! A token bucket as arithmetic: what the rate is now, and when the next token is there.

use std::time::Duration;

use tokio::time::Instant;

use ccm_base::later;

/// How far ahead a token may lie. Beyond it a waiter looks again, so that tiny rates
/// cannot overflow the clock.
const HORIZON: Duration = Duration::from_hours(24);

/// Less than this is missing only because of rounding.
const EPSILON: f64 = 1e-9;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second in the long run; 0 or less is no limit.
    pub per_second: f64,
    /// Requests at once after a quiet time; at least 1.
    pub burst: f64,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self { per_second: 0.0, burst: 1.0 };

    /// So many a second, so many at once.
    pub const fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst }
    }

    /// Whether this limits anything.
    pub fn is_unlimited(self) -> bool {
        !(self.per_second > 0.0 && self.per_second.is_finite())
    }
}

/// How a bucket follows what the other side says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// The share of the configured rate that remains whatever the other side says,
    /// above 0 and at most 1.
    pub floor: f64,
    /// How long the way back from nothing to the full rate takes while all goes well.
    pub restore: Duration,
    /// Refusals that come within this time of a halving do not halve again: they
    /// answer requests that were sent before it.
    pub halve_gap: Duration,
    /// The longest time for which a bucket closes, so that a wrong `Retry-After`
    /// cannot stop a service for days.
    pub max_closed: Duration,
    /// After so many waiters that somebody waits for, one routine waiter gets a turn.
    pub urgent_streak: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            floor: 0.1,
            restore: Duration::from_mins(1),
            halve_gap: Duration::from_secs(1),
            max_closed: Duration::from_mins(5),
            urgent_streak: 8,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    tuning: Tuning,
    /// The share of the rate that is in force.
    share: f64,
    tokens: f64,
    /// Up to when tokens have been added.
    filled: Instant,
    closed_until: Option<Instant>,
    halved: Option<Instant>,
    /// When the share was last raised or halved.
    adjusted: Instant,
    throttled: u64,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: Rate, tuning: Tuning, now: Instant) -> Self {
        let rate = sane(rate);
        Self {
            rate,
            tuning,
            share: 1.0,
            tokens: rate.burst,
            filled: now,
            closed_until: None,
            halved: None,
            adjusted: now,
            throttled: 0,
        }
    }

    /// The rate in force; `None` if there is no limit.
    pub(super) fn in_force(&self) -> Option<f64> {
        (!self.rate.is_unlimited()).then_some(self.rate.per_second * self.share)
    }

    /// The rate and burst that were asked for; `None` if there is no limit.
    pub(super) fn configured(&self) -> Option<Rate> {
        (!self.rate.is_unlimited()).then_some(self.rate)
    }

    pub(super) fn tokens(&mut self, now: Instant) -> f64 {
        self.fill(now);
        self.tokens
    }

    pub(super) fn throttled_total(&self) -> u64 {
        self.throttled
    }

    /// For how much longer the bucket is closed.
    pub(super) fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.closed_until
            .and_then(|until| until.checked_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// Takes a token, or tells when there may be one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let earliest = self.earliest(0, now);
        if earliest > now {
            return Err(earliest);
        }
        if !self.rate.is_unlimited() {
            self.tokens -= 1.0;
        }
        Ok(())
    }

    /// When the request behind `ahead` others can start at the earliest, as things are.
    pub(super) fn earliest(&mut self, ahead: usize, now: Instant) -> Instant {
        self.fill(now);
        let opens = self.closed_until.map_or(now, |until| until.max(now));
        let Some(per_second) = self.in_force() else { return opens };
        let missing = ahead as f64 + 1.0 - self.tokens;
        if missing <= EPSILON {
            return opens;
        }
        let wait = Duration::try_from_secs_f64(missing / per_second)
            .map_or(HORIZON, |wait| wait.min(HORIZON));
        // Rounded up: at the time told the token is there.
        opens.max(now + wait + Duration::from_nanos(1))
    }

    pub(super) fn configure(&mut self, rate: Rate, now: Instant) {
        self.fill(now);
        let rate = sane(rate);
        if self.rate.is_unlimited() && !rate.is_unlimited() {
            self.tokens = rate.burst;
        }
        self.rate = rate;
    }

    /// Nothing before this time has passed. An end that was later stays. Returns
    /// whether the bucket was open.
    pub(super) fn close(&mut self, time: Duration, now: Instant) -> bool {
        let was_open = self.closed_for(now).is_none();
        let until = later(now, time.min(self.tuning.max_closed));
        self.closed_until = Some(self.closed_until.map_or(until, |old| old.max(until)));
        was_open
    }

    /// The other side said that this is too much.
    pub(super) fn refused(&mut self, now: Instant) {
        self.throttled += 1;
        self.fill(now);
        if self.halved.is_some_and(|at| now.saturating_duration_since(at) < self.tuning.halve_gap) {
            return;
        }
        self.share = (self.share / 2.0).max(self.tuning.floor.clamp(0.001, 1.0));
        self.halved = Some(now);
        self.adjusted = now;
    }

    /// The other side did what was asked: raises the share by the time since the last
    /// change, but by no more than a second's worth for one answer.
    pub(super) fn succeeded(&mut self, now: Instant) {
        if self.share >= 1.0 {
            return;
        }
        self.fill(now);
        let since = now.saturating_duration_since(self.adjusted).min(Duration::from_secs(1));
        let step = since.as_secs_f64() / self.tuning.restore.as_secs_f64().max(EPSILON);
        self.share = (self.share + step).min(1.0);
        self.adjusted = now;
    }

    /// Adds the tokens of the time that has passed, at the rate that was in force.
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = self.filled.max(now);
        let grown =
            self.in_force().map_or(f64::INFINITY, |per_second| passed.as_secs_f64() * per_second);
        self.tokens = (self.tokens + grown).min(self.rate.burst);
    }
}

/// A burst below 1 would never let anything through.
fn sane(rate: Rate) -> Rate {
    Rate { per_second: rate.per_second, burst: if rate.burst >= 1.0 { rate.burst } else { 1.0 } }
}

#[cfg(test)]
mod tests;
