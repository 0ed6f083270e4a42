//! The arithmetic of a token bucket: its current rate, and the time of the next token.

use std::time::Duration;

use ccm_base::later;
use serde::Serialize;
use tokio::time::Instant;

/// Upper limit for the wait for a token. A waiter then checks again, so that tiny rates cannot
/// overflow the clock.
const HORIZON: Duration = Duration::from_hours(24);

/// A shortfall below this is a rounding error.
const EPSILON: f64 = 1e-9;

/// The minimum share of the configured rate, however often the server refuses.
const FLOOR: f64 = 0.1;
/// Time to recover from nothing to the full rate while requests succeed.
const RESTORE: Duration = Duration::from_mins(1);
/// Refusals within this time after a halving do not halve again: they answer requests that
/// were sent before it.
const HALVE_GAP: Duration = Duration::from_secs(1);
/// The longest time for which a bucket closes, so that a wrong `Retry-After` cannot block a
/// service for days.
pub(crate) const MAX_CLOSED: Duration = Duration::from_mins(5);

/// A request rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Requests per second on average; `None` for no limit.
    pub per_second: Option<f64>,
    /// How many requests may be sent at once after an idle period. At least 1.
    pub burst: u32,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self { per_second: None, burst: 1 };

    /// Creates a rate of `per_second` with a burst.
    pub const fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second: Some(per_second), burst }
    }

    /// Returns the requests per second, if they are limited.
    fn limit(self) -> Option<f64> {
        self.per_second.filter(|rate| *rate > 0.0 && rate.is_finite())
    }

    /// Returns the burst. One below 1 would block all requests.
    fn most(self) -> f64 {
        f64::from(self.burst.max(1))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    /// The current share of the configured rate.
    share: f64,
    tokens: f64,
    /// The time up to which tokens have been added.
    filled: Instant,
    closed_until: Option<Instant>,
    halved: Option<Instant>,
    /// When the share was last raised or halved.
    adjusted: Instant,
    /// The number of refusals.
    pub(super) throttled: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            share: 1.0,
            tokens: rate.most(),
            filled: now,
            closed_until: None,
            halved: None,
            adjusted: now,
            throttled: 0,
        }
    }

    /// Returns the current rate; `None` if the bucket does not limit requests.
    pub(super) fn in_force(&self) -> Option<f64> {
        Some(self.rate.limit()? * self.share)
    }

    /// Returns the configured rate and burst; `None` if the bucket does not limit requests.
    pub(super) fn configured(&self) -> Option<(f64, f64)> {
        Some((self.rate.limit()?, self.rate.most()))
    }

    pub(super) fn tokens(&mut self, now: Instant) -> f64 {
        self.fill(now);
        self.tokens
    }

    /// Returns the remaining time for which the bucket is closed.
    pub(super) fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.closed_until
            .and_then(|until| until.checked_duration_since(now))
            .filter(|left| !left.is_zero())
    }

    /// Takes a token, or returns the time to try again.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let earliest = self.earliest(0, now);
        if earliest > now {
            return Err(earliest);
        }
        if self.rate.limit().is_some() {
            self.tokens -= 1.0;
        }
        Ok(())
    }

    /// Returns the earliest start of a request behind `ahead` others, in the current state.
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
        // The time is rounded up, so that the token exists then.
        opens.max(now + wait + Duration::from_nanos(1))
    }

    pub(super) fn configure(&mut self, rate: Rate, now: Instant) {
        self.fill(now);
        if self.rate.limit().is_none() {
            self.tokens = rate.most();
        }
        self.rate = rate;
    }

    /// Closes the bucket for this time. Never shortens an earlier closing. Returns true if the
    /// bucket was open.
    pub(super) fn close(&mut self, time: Duration, now: Instant) -> bool {
        let was_open = self.closed_for(now).is_none();
        let until = later(now, time.min(MAX_CLOSED));
        self.closed_until = Some(self.closed_until.map_or(until, |old| old.max(until)));
        was_open
    }

    /// Records that the server refused a request as too many.
    pub(super) fn refused(&mut self, now: Instant) {
        self.throttled += 1;
        self.fill(now);
        if self.halved.is_some_and(|at| now.saturating_duration_since(at) < HALVE_GAP) {
            return;
        }
        self.share = (self.share / 2.0).max(FLOOR);
        self.halved = Some(now);
        self.adjusted = now;
    }

    /// Records that the server processed a request: raises the share by the time since the last
    /// change, but by at most one second's worth per response.
    pub(super) fn succeeded(&mut self, now: Instant) {
        if self.share >= 1.0 {
            return;
        }
        self.fill(now);
        let since = now.saturating_duration_since(self.adjusted).min(Duration::from_secs(1));
        let step = since.as_secs_f64() / RESTORE.as_secs_f64();
        self.share = (self.share + step).min(1.0);
        self.adjusted = now;
    }

    /// Adds the tokens for the elapsed time, at the rate then in force.
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = self.filled.max(now);
        let grown =
            self.in_force().map_or(f64::INFINITY, |per_second| passed.as_secs_f64() * per_second);
        self.tokens = (self.tokens + grown).min(self.rate.most());
    }
}

#[cfg(test)]
mod tests;
