//! How fast a setting reaches load balancers that stand.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time in which only some are changed.
pub(super) const WINDOW: Duration = Duration::from_mins(10);
/// How many are changed in this time at least.
const FEWEST: usize = 3;
/// The part of all load balancers that is changed in this time.
const PART: usize = 10;

/// Counts what was begun. A process that has just begun to work does not know what the one before it
/// has done, so it begins nothing for a whole window.
#[derive(Default)]
pub(super) struct Pace(Mutex<State>);

#[derive(Default)]
struct State {
    /// When this process worked first.
    since: Option<Instant>,
    /// The number of the cluster's load balancers.
    count: usize,
    begun: BTreeMap<String, Instant>,
}

impl State {
    fn room(&mut self) -> usize {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.begun.retain(|_, at| at.elapsed() < WINDOW);
        if since.elapsed() < WINDOW {
            return 0;
        }
        FEWEST.max(self.count / PART).saturating_sub(self.begun.len())
    }
}

impl Pace {
    /// A list has shown this many load balancers of the cluster.
    pub(super) fn counted(&self, count: usize) {
        self.0.lock().count = count;
    }

    /// How many more may be begun now.
    pub(super) fn room(&self) -> usize {
        self.0.lock().room()
    }

    /// Whether this one was begun within the window.
    pub(super) fn has_begun(&self, id: &str) -> bool {
        self.0.lock().begun.get(id).is_some_and(|at| at.elapsed() < WINDOW)
    }

    /// Begins with this one, if it may.
    pub(super) fn begin(&self, id: &str) -> bool {
        let mut state = self.0.lock();
        let may = state.room() > 0;
        if may {
            state.begun.insert(id.to_owned(), Instant::now());
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenth_or_three_in_ten_minutes_and_none_at_the_beginning() {
        let step = Duration::from_secs(1);
        for (count, expect) in [(0, 3), (39, 3), (50, 5)] {
            let pace = Pace::default();
            pace.counted(count);
            let begin = |round: usize| {
                (0..100).filter(|number| pace.begin(&format!("{round}-{number}"))).count()
            };
            assert_eq!((begin(0), pace.room()), (0, 0), "the process before may have begun some");
            tokio::time::advance(WINDOW).await;
            assert_eq!((begin(1), begin(2), pace.room()), (expect, 0, 0), "{count}");
            assert!(pace.has_begun("1-0") && !pace.has_begun("1-99"));
            tokio::time::advance(WINDOW.saturating_sub(step)).await;
            assert_eq!(begin(3), 0, "{count}");
            tokio::time::advance(step).await;
            assert_eq!((pace.room(), begin(4)), (expect, expect), "{count}");
        }
    }
}
