//! Throttles log lines about a failure that repeats.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two log lines.
const EVERY: Duration = Duration::from_secs(30);

/// The throttle for one kind of failure.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Instant>,
}

impl LogThrottle {
    /// Returns true if a line is due. The next period begins with it.
    pub fn allow(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn logs_at_once_and_then_rarely() {
        let mut throttle = LogThrottle::default();
        let mut logged = Vec::new();
        for second in 0..100 {
            if throttle.allow() {
                logged.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 30, 60, 90]);
    }
}
