//! Decides when a load balancer that no list shows is checked: pure.
//!
//! Such a check costs a whole `ensure`, so each load balancer has one turn per period. The turns
//! are spread over the period by UID, and are the same for every leader: a restart neither repeats
//! nor bunches them.

use std::time::Duration;

use ccm_base::At;
use sha2::{Digest as _, Sha256};

/// Returns true if the Service with this UID has a turn after `from`, and not after `to`. A period
/// of zero has no turns.
pub fn is_due(uid: &str, period: Duration, from: At, to: At) -> bool {
    let period = period.as_millis();
    if period == 0 {
        return false;
    }
    let hash = Sha256::digest(uid).first_chunk().copied().unwrap_or_default();
    let offset = u128::from(u64::from_be_bytes(hash)) % period;
    let turns = |at: At| (at.0.as_millis() + offset) / period;
    turns(from) < turns(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const STEP: Duration = Duration::from_mins(5);

    fn at(step: u32) -> At {
        At(Duration::from_hours(500_000) + STEP * step)
    }

    #[test]
    fn each_has_one_turn_per_period_and_they_are_spread() {
        let mut busiest = 0;
        let mut turns = vec![0; 1000];
        for step in 0..288 {
            let mut now = 0;
            for (number, turns) in turns.iter_mut().enumerate() {
                if is_due(&format!("u-{number}"), DAY, at(step), at(step + 1)) {
                    *turns += 1;
                    now += 1;
                }
            }
            busiest = busiest.max(now);
        }
        assert!(turns.iter().all(|turns| *turns == 1), "{turns:?}");
        assert!(busiest <= 15, "{busiest} of 1000 within five minutes");
    }

    #[test]
    fn the_turns_do_not_depend_on_when_one_looks() {
        for uid in ["u-1", "u-2", "u-3"] {
            let step = (0..288).find(|step| is_due(uid, DAY, at(*step), at(step + 1))).unwrap();
            assert!(is_due(uid, DAY, at(step), at(step + 288)));
            assert!(!is_due(uid, DAY, at(step + 1), at(step + 288)));
            assert!(is_due(uid, DAY, at(step + 288), at(step + 289)), "the next day");
        }
    }

    #[test]
    fn a_period_of_zero_switches_looks_off() {
        assert!(!is_due("u-1", Duration::ZERO, at(0), at(1000)));
    }
}
