//! Time, UIDs and generated names, all reproducible with a seed and a fixed start.

use jiff::Timestamp;
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

/// The source of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Wall,
    /// Starts at this time and follows tokio's clock, which tests can pause.
    From(Timestamp),
}

/// The letters of generated names: no vowels and no ambiguous characters.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates the values that the server writes into objects.
pub(super) struct Identity {
    clock: Clock,
    start: Instant,
    rng: Mutex<StdRng>,
    taint_new_nodes: bool,
}

impl Identity {
    pub(super) fn new(clock: Clock, seed: u64, taint_new_nodes: bool) -> Self {
        Self {
            clock,
            start: Instant::now(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            taint_new_nodes,
        }
    }

    pub(super) fn taints_new_nodes(&self) -> bool {
        self.taint_new_nodes
    }

    /// Returns the time since the server was created.
    pub(super) fn uptime(&self) -> std::time::Duration {
        self.start.elapsed()
    }

    pub(super) fn now(&self) -> Timestamp {
        match self.clock {
            Clock::Wall => ccm_base::clock::wall(),
            Clock::From(moment) => moment.saturating_add(self.start.elapsed()).unwrap_or(moment),
        }
    }

    /// Returns the current time in whole seconds.
    pub(super) fn now_text(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(super) fn uid(&self) -> String {
        uuid::Builder::from_random_bytes(self.rng.lock().random()).into_uuid().to_string()
    }

    /// Returns five letters for `generateName`.
    pub(super) fn suffix(&self) -> String {
        let mut rng = self.rng.lock();
        (0..5)
            .map(|_| {
                LETTERS.get(rng.random_range(0..LETTERS.len())).copied().map_or('x', char::from)
            })
            .collect()
    }

    /// Returns the duration of a watch without a client timeout: from `least` to twice that.
    pub(super) fn watch_timeout(&self, least: std::time::Duration) -> std::time::Duration {
        least.mul_f64(self.rng.lock().random_range(1.0..2.0))
    }
}
