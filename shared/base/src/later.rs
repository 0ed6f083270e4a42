//! Times in the future.

use std::time::Duration;

use tokio::time::Instant;

/// `now` plus `wait`, at most a year ahead, so that no wait that comes from outside can
/// overflow the clock.
pub fn later(now: Instant, wait: Duration) -> Instant {
    now + wait.min(Duration::from_hours(365 * 24))
}
