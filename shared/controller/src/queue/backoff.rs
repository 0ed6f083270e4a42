//! The back-off of failed keys.

use std::time::Duration;

use tokio::time::Instant;

use super::QueueConfig;

/// The wait after this many failures of one key (1 is the first), minus a random share.
/// `unit` is the random number, between 0 and 1.
pub(super) fn delay(config: &QueueConfig, failures: u32, unit: f64) -> Duration {
    let full = config.waits.after(failures);
    full.mul_f64(1.0 - config.jitter.clamp(0.0, 1.0) * unit.clamp(0.0, 1.0))
}

/// Limits the retries of all keys together: a burst at once, then a steady rate.
///
/// Implements the generic cell rate algorithm of ATM: `full_at` is when the bucket is full
/// again; a retry is delayed by what exceeds the burst.
#[derive(Clone, Debug)]
pub(super) struct RetryLimiter {
    interval: Duration,
    burst: Duration,
    full_at: Option<Instant>,
}

impl RetryLimiter {
    /// A rate that is not positive is no limit.
    pub(super) fn new(rate: f64, burst: u32) -> Self {
        let interval = if rate > 0.0 {
            Duration::try_from_secs_f64(1.0 / rate).unwrap_or_default()
        } else {
            Duration::ZERO
        };
        let interval = interval.min(Duration::from_mins(1));
        Self { interval, burst: interval.saturating_mul(burst.saturating_sub(1)), full_at: None }
    }

    /// Reserves one retry and returns its delay.
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
    fn jitter_only_shortens() {
        let config = QueueConfig { jitter: 0.2, ..QueueConfig::default() };
        for (unit, expect) in [(0.0, 60_000), (0.5, 54_000), (1.0, 48_000), (7.0, 48_000)] {
            assert_eq!(delay(&config, 40, unit), Duration::from_millis(expect), "{unit}");
        }
    }

    #[test]
    fn the_retry_limiter_grants_a_burst_and_then_a_rate() {
        let now = Instant::now();
        let mut retry_limiter = RetryLimiter::new(10.0, 3);
        let waits: Vec<u128> = (0..6).map(|_| retry_limiter.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        let later = now + Duration::from_secs(10);
        assert_eq!(retry_limiter.reserve(later), Duration::ZERO, "the burst has grown back");
    }

    #[test]
    fn no_rate_is_no_limit() {
        let now = Instant::now();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut retry_limiter = RetryLimiter::new(rate, 1);
            assert!((0..1000).all(|_| retry_limiter.reserve(now).is_zero()), "{rate}");
        }
    }
}
