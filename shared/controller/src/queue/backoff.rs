//! The back-off of failed keys.

use std::time::Duration;

use super::QueueConfig;

/// Returns the wait after this many failures of one key (1 is the first), minus a random share.
/// `unit` is the random number, between 0 and 1.
pub(super) fn delay(config: &QueueConfig, failures: u32, unit: f64) -> Duration {
    let full = config.waits.after(failures);
    full.mul_f64(1.0 - config.jitter.clamp(0.0, 1.0) * unit.clamp(0.0, 1.0))
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
}
