//! The batch window: how long a batch waits for more keys.

use std::time::Duration;

use tokio::time::Instant;

use super::Priority;

/// The bounds of a [`BatchWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWindowConfig {
    /// The window of the first batch after a quiet time.
    pub first: Duration,
    /// The longest window.
    pub most: Duration,
    /// Each period of this length without a new key after a batch undoes half a step of growth.
    pub quiet: Duration,
}

/// The growth of the window from batch to batch during a burst.
const GROWTH: u32 = 8;

impl Default for BatchWindowConfig {
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
/// A single key should not wait for others that never come; thousands of keys within half
/// a minute should not cost thousands of calls. The first key does not show which case it
/// is, so the window begins short and grows eightfold with each batch while keys keep
/// coming. Quiet shortens it again: a short lull in a burst costs little, and a key after
/// a second of quiet waits the shortest time.
///
/// Each priority has a window of its own: a burst of routine keys, for instance the corrections
/// of a whole fleet, must not make the batches of new nodes wait. A batch with both kinds waits
/// as for its urgent keys.
#[derive(Clone, Debug)]
pub struct BatchWindow {
    config: BatchWindowConfig,
    urgent: Option<Batch>,
    routine: Option<Batch>,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    window: Duration,
    taken: Instant,
}

impl Default for BatchWindow {
    fn default() -> Self {
        Self::new(BatchWindowConfig::default())
    }
}

impl BatchWindow {
    /// Creates a window with these bounds.
    pub fn new(config: BatchWindowConfig) -> Self {
        Self { config, urgent: None, routine: None }
    }

    /// Returns the window of the next batch, if its first new key has this priority and has waited
    /// since then. Keys that a timer adds are not part of a burst, so a batch of them has the
    /// shortest window.
    pub(super) fn window(&self, new: Option<(Priority, Instant)>) -> Duration {
        let BatchWindowConfig { first, most, quiet } = self.config;
        let last = new.and_then(|(priority, oldest)| Some((self.last(priority)?, oldest)));
        let Some((last, oldest)) = last else { return first };
        let idle = oldest.saturating_duration_since(last.taken);
        let halvings = idle.as_nanos() / quiet.as_nanos().max(1);
        match u32::try_from(halvings) {
            Ok(0) => last.window.saturating_mul(GROWTH).clamp(first, most.max(first)),
            Ok(halvings @ 1..32) => (last.window / (1 << halvings)).max(first),
            _ => first,
        }
    }

    /// Records that a batch with this window was taken now, and whether it had new urgent and new
    /// routine keys. Routine keys that came together with urgent ones continue their burst.
    pub(super) fn taken(&mut self, new: (bool, bool), window: Duration, now: Instant) {
        match new {
            (true, has_routine) => {
                self.urgent = Some(Batch { window, taken: now });
                if let Some(routine) = self.routine.as_mut().filter(|_| has_routine) {
                    routine.taken = now;
                }
            }
            (false, true) => self.routine = Some(Batch { window, taken: now }),
            (false, false) => {}
        }
    }

    fn last(&self, priority: Priority) -> Option<Batch> {
        match priority {
            Priority::Urgent => self.urgent,
            Priority::Routine => self.routine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const URGENT: (bool, bool) = (true, false);
    const ROUTINE: (bool, bool) = (false, true);

    fn urgent(since: Instant) -> (Priority, Instant) {
        (Priority::Urgent, since)
    }

    #[test]
    fn routine_keys_do_not_widen_the_window_of_urgent_ones() {
        let mut batch_window = BatchWindow::default();
        let now = Instant::now();
        batch_window.taken(ROUTINE, ms(2000), now);
        assert_eq!(batch_window.window(Some((Priority::Routine, now))), ms(3000));
        assert_eq!(batch_window.window(Some(urgent(now))), ms(10));
        batch_window.taken(URGENT, ms(10), now);
        assert_eq!(batch_window.window(Some(urgent(now))), ms(80));
        let later = now + ms(10_000);
        assert_eq!(batch_window.window(Some((Priority::Routine, later))), ms(10));
        batch_window.taken((true, true), ms(80), later);
        assert_eq!(batch_window.window(Some((Priority::Routine, later))), ms(3000));
    }

    #[test]
    fn the_window_grows_while_keys_keep_coming() {
        let mut batch_window = BatchWindow::default();
        let mut now = Instant::now();
        let mut windows = Vec::new();
        for _ in 0..8 {
            let window = batch_window.window(Some(urgent(now)));
            windows.push(window.as_millis());
            batch_window.taken(URGENT, window, now);
            now += ms(100);
        }
        assert_eq!(windows, [10, 80, 640, 3000, 3000, 3000, 3000, 3000]);
    }

    #[test]
    fn quiet_undoes_the_growth() {
        let mut batch_window = BatchWindow::default();
        let now = Instant::now();
        batch_window.taken(URGENT, ms(2000), now);
        for (idle, expect) in [
            (0, 3000),
            (124, 3000),
            (125, 1000),
            (260, 500),
            (500, 125),
            (1000, 10),
            (3_600_000, 10),
        ] {
            assert_eq!(
                batch_window.window(Some(urgent(now + ms(idle)))),
                ms(expect),
                "{idle} ms of quiet"
            );
        }
        assert_eq!(
            batch_window.window(Some(urgent(now - ms(50)))),
            ms(3000),
            "a key that a full batch left over"
        );
        assert_eq!(batch_window.window(None), ms(10), "retries and delayed keys only");
    }

    #[test]
    fn odd_bounds_do_no_harm() {
        let config = BatchWindowConfig { first: ms(50), most: ms(10), quiet: Duration::ZERO };
        let mut batch_window = BatchWindow::new(config);
        let now = Instant::now();
        batch_window.taken(URGENT, ms(50), now);
        assert_eq!(batch_window.window(Some(urgent(now))), ms(50));
        assert_eq!(batch_window.window(Some(urgent(now + ms(1)))), ms(50));
    }
}
