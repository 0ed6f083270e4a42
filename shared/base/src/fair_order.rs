//! The order of urgent and routine work.

/// Prefers urgent items, but lets one routine item through after every `streak` urgent
/// ones, so that routine work does not starve.
#[derive(Clone, Debug)]
pub struct FairOrder {
    streak: u32,
    urgent_in_a_row: u32,
}

impl FairOrder {
    /// Lets one routine item through after `streak` urgent ones (0 counts as 1).
    pub fn new(streak: u32) -> Self {
        Self { streak: streak.max(1), urgent_in_a_row: 0 }
    }

    /// Returns true if an urgent item is next, given which kinds are waiting.
    pub fn urgent_next(&self, urgent_waits: bool, routine_waits: bool) -> bool {
        urgent_waits && !(routine_waits && self.urgent_in_a_row >= self.streak)
    }

    /// Records which kind was taken, and whether routine items are still waiting.
    pub fn took(&mut self, urgent: bool, routine_waits: bool) {
        self.urgent_in_a_row =
            if urgent && routine_waits { self.urgent_in_a_row.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_gets_one_turn_after_each_streak() {
        let mut turns = FairOrder::new(3);
        let mut order = String::new();
        for _ in 0..9 {
            let urgent = turns.urgent_next(true, true);
            turns.took(urgent, true);
            order.push(if urgent { 'u' } else { 'r' });
        }
        assert_eq!(order, "uuuruuuru");
    }

    #[test]
    fn a_streak_counts_only_while_routine_waits() {
        let mut turns = FairOrder::new(2);
        for _ in 0..10 {
            assert!(turns.urgent_next(true, false));
            turns.took(true, false);
        }
        assert!(turns.urgent_next(true, true), "routine came just now");
        assert!(!turns.urgent_next(false, true));
        assert!(!turns.urgent_next(false, false));
    }
}
