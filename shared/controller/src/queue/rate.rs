//! The rate at which failed keys come back.

use std::time::Duration;

use tokio::time::Instant;

/// The longest interval between two keys.
const LONGEST: Duration = Duration::from_hours(1);

/// Lets a burst pass at once and then a steady rate (the generic cell rate algorithm of ATM).
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    interval: Duration,
    burst: Duration,
    /// When the last reserved interval ends.
    full_at: Option<Instant>,
}

impl RateLimiter {
    /// Creates a rate. One that is not positive does not limit.
    pub(super) fn new(rate: f64, burst: u32) -> Self {
        let interval = if rate > 0.0 {
            let interval = Duration::try_from_secs_f64(rate.recip());
            interval.map_or(LONGEST, |interval| interval.min(LONGEST))
        } else {
            Duration::ZERO
        };
        Self { interval, burst: interval.saturating_mul(burst.saturating_sub(1)), full_at: None }
    }

    /// Reserves the time for one key and returns its delay.
    pub(super) fn reserve(&mut self, now: Instant) -> Duration {
        let start = self.full_at.map_or(now, |at| at.max(now));
        self.full_at = Some(start + self.interval);
        start.duration_since(now).saturating_sub(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grants_a_burst_and_then_a_rate() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new(10.0, 3);
        let waits: Vec<u128> = (0..6).map(|_| limiter.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_secs(10);
        assert_eq!(limiter.reserve(later), Duration::ZERO, "the burst has grown back");
    }

    #[test]
    fn a_rate_that_is_not_positive_is_no_limit() {
        let now = Instant::now();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut limiter = RateLimiter::new(rate, 1);
            assert!((0..1000).all(|_| limiter.reserve(now).is_zero()), "{rate}");
        }
        let mut rare = RateLimiter::new(f64::MIN_POSITIVE, 1);
        assert_eq!([rare.reserve(now), rare.reserve(now)], [Duration::ZERO, LONGEST]);
    }
}
