//! Limits how fast a setting reaches existing load balancers.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time to which the limit applies.
pub const WINDOW: Duration = Duration::from_mins(10);
/// The limit for few load balancers: this many may change in one window.
const FEWEST: usize = 3;
/// The limit for many load balancers: one out of this number may change in one window.
const PART: usize = 10;

/// Limits how many load balancers begin to change in one window. A new process does not know which
/// changes the previous process has begun, so it does not begin any in its first window.
#[derive(Default)]
pub struct Pace(Mutex<PaceState>);

#[derive(Default)]
struct PaceState {
    /// The time at which this process first asked for room.
    since: Option<Instant>,
    /// The number of load balancers of the cluster.
    count: usize,
    begun: BTreeMap<String, Instant>,
}

impl PaceState {
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
    /// Stores how many load balancers of the cluster a list has shown.
    pub fn counted(&self, count: usize) {
        self.0.lock().count = count;
    }

    /// Returns how many more load balancers may begin now.
    pub fn room(&self) -> usize {
        self.0.lock().room()
    }

    /// Returns true if this load balancer has begun within the window.
    pub fn has_begun(&self, id: &str) -> bool {
        self.0.lock().begun.get(id).is_some_and(|at| at.elapsed() < WINDOW)
    }

    /// Begins with this load balancer if the limit allows it. Returns true if it has begun.
    pub fn begin(&self, id: &str) -> bool {
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
            assert_eq!((begin(0), pace.room()), (0, 0), "the previous process may have begun some");
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
