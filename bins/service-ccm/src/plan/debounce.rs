//! Decides when changes of the set of nodes are passed on to the load balancers.

use std::time::Duration;

use ccm_base::At;
use serde::{Deserialize, Serialize};

/// How long the first change after a quiet time waits for more.
pub const FIRST: Duration = Duration::from_secs(1);

/// Collects changes: the first after a quiet time goes out after [`FIRST`], the next ones not
/// before an interval has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debounce {
    last: Option<At>,
    pending: Option<At>,
}

impl Debounce {
    /// Records a change. Existing changes keep their time.
    pub fn record_change(&mut self, now: At, interval: Duration) {
        let due = self.last.map_or(now + FIRST, |last| (last + interval).max(now + FIRST));
        self.pending = Some(self.pending.map_or(due, |pending| pending.min(due)));
    }

    /// Returns when the changes go out, if there are any.
    pub const fn due(&self) -> Option<At> {
        self.pending
    }

    /// Records that all changes went out.
    pub fn sent(&mut self, now: At) {
        if self.pending.take().is_some() {
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> At {
        At::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_change_waits_a_second_and_the_next_an_interval() {
        let mut debounce = Debounce::default();
        assert_eq!(debounce.due(), None);
        debounce.record_change(at(0), INTERVAL);
        debounce.record_change(at(1), INTERVAL);
        assert_eq!(debounce.due(), Some(at(1)), "a later change delays nothing");
        debounce.sent(at(1));
        debounce.record_change(at(2), INTERVAL);
        assert_eq!(debounce.due(), Some(at(11)));
        debounce.sent(at(11));
        debounce.record_change(at(60), INTERVAL);
        assert_eq!(debounce.due(), Some(at(61)));
    }

    /// Checks that 100 nodes that join within 10 s cost two rounds.
    #[test]
    fn a_burst_costs_few_rounds() {
        let (mut debounce, mut rounds) = (Debounce::default(), 0);
        for tenth in 0..300 {
            let now = At::default() + Duration::from_millis(tenth * 100);
            if tenth < 100 {
                debounce.record_change(now, INTERVAL);
            }
            if debounce.due().is_some_and(|due| due <= now) {
                debounce.sent(now);
                rounds += 1;
            }
        }
        assert_eq!(rounds, 2);
    }
}
