//! Times in the future.

use std::time::Duration;

use tokio::time::Instant;

/// Returns `now` plus `wait`, capped at one year, so that a wait from an external source cannot
/// overflow the clock.
pub fn later(now: Instant, wait: Duration) -> Instant {
    now + wait.min(Duration::from_hours(365 * 24))
}
