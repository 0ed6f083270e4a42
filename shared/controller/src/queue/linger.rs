//! How long a batch waits for more keys.

use std::time::Duration;

use tokio::time::Instant;

/// The bounds of [`Linger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LingerConfig {
    /// How long the first batch after a quiet time waits.
    pub first: Duration,
    /// How long a batch waits at most.
    pub most: Duration,
    /// Each such time without a new key after a batch undoes half a step of growth.
    pub quiet: Duration,
}

/// How much longer each batch of a burst waits than the one before.
const GROWTH: u32 = 4;

impl Default for LingerConfig {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(10),
            most: Duration::from_secs(3),
            quiet: Duration::from_millis(125),
        }
    }
}

/// How long a batch waits for more keys after its first one.
///
/// A key that comes alone should not wait for others that never come; thousands that
/// come over half a minute should not cost thousands of calls. Which of the two it is
/// cannot be known at the first key, so the wait begins short and grows fourfold with each
/// batch while keys keep coming. Quiet shortens it again, so that a short lull in a
/// burst costs little and a key after a second of quiet waits the shortest time.
#[derive(Clone, Debug)]
pub struct Linger {
    config: LingerConfig,
    last: Option<Batch>,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    window: Duration,
    taken: Instant,
}

impl Default for Linger {
    fn default() -> Self {
        Self::new(LingerConfig::default())
    }
}

impl Linger {
    /// A policy with these bounds.
    pub fn new(config: LingerConfig) -> Self {
        Self { config, last: None }
    }

    /// How long the next batch waits, if its first key has been waiting since `oldest`.
    pub(super) fn window(&self, oldest: Instant) -> Duration {
        let LingerConfig { first, most, quiet } = self.config;
        let Some(last) = self.last else { return first };
        let idle = oldest.saturating_duration_since(last.taken);
        let halvings = idle.as_nanos() / quiet.as_nanos().max(1);
        match u32::try_from(halvings) {
            Ok(0) => last.window.saturating_mul(GROWTH).clamp(first, most.max(first)),
            Ok(halvings @ 1..32) => (last.window / (1 << halvings)).max(first),
            _ => first,
        }
    }

    /// Notes that a batch was taken now, after it could wait so long.
    pub(super) fn taken(&mut self, window: Duration, now: Instant) {
        self.last = Some(Batch { window, taken: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_window_grows_while_keys_keep_coming() {
        let mut linger = Linger::default();
        let mut now = Instant::now();
        let mut windows = Vec::new();
        for _ in 0..8 {
            let window = linger.window(now);
            windows.push(window.as_millis());
            linger.taken(window, now);
            now += ms(100);
        }
        assert_eq!(windows, [10, 40, 160, 640, 2560, 3000, 3000, 3000]);
    }

    #[test]
    fn quiet_undoes_the_growth() {
        let mut linger = Linger::default();
        let now = Instant::now();
        linger.taken(ms(2000), now);
        for (idle, expect) in [
            (0, 3000),
            (124, 3000),
            (125, 1000),
            (260, 500),
            (500, 125),
            (1000, 10),
            (3_600_000, 10),
        ] {
            assert_eq!(linger.window(now + ms(idle)), ms(expect), "{idle} ms of quiet");
        }
        assert_eq!(linger.window(now - ms(50)), ms(3000), "a key that a full batch left over");
    }

    #[test]
    fn odd_bounds_do_no_harm() {
        let config = LingerConfig { first: ms(50), most: ms(10), quiet: Duration::ZERO };
        let mut linger = Linger::new(config);
        let now = Instant::now();
        linger.taken(ms(50), now);
        assert_eq!(linger.window(now), ms(50));
        assert_eq!(linger.window(now + ms(1)), ms(50));
    }
}
