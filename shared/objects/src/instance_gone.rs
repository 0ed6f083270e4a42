//! lifecycle-ccm's mark on a node that it is about to delete: the proof that its instance is gone.

use std::time::Duration;

use ccm_base::At;

/// The annotation. Its value is the kind of the proof, and when the cloud gave it.
pub const KEY: &str = "quartet.dev/instance-gone";

/// How long the mark counts: a node that stays although it was marked was not deleted by this proof.
pub const VALID: Duration = Duration::from_mins(10);

/// Returns the value: `by_id 2026-01-31T12:00:00.000Z`.
pub fn value(kind: &str, at: At) -> String {
    format!("{kind} {at}")
}

/// Returns true if this value is a proof that is younger than half of [`VALID`]: it need not be
/// written again.
pub fn is_fresh(value: &str, now: At) -> bool {
    is_within(value, now, VALID / 2)
}

/// Returns true if this value is a proof that counts.
pub fn counts(value: &str, now: At) -> bool {
    is_within(value, now, VALID)
}

/// Returns true if the mark is at most this old. Another process's clock may be ahead.
fn is_within(value: &str, now: At, most: Duration) -> bool {
    let at = value.split_once(' ').and_then(|(_, at)| at.parse::<At>().ok());
    at.is_some_and(|at| now.since(at).max(at.since(now)) <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_for_ten_minutes() {
        let at = |seconds: u64| At::default() + Duration::from_secs(10_000 + seconds);
        let mark = value("by_id", at(600));
        for (now, fresh, valid) in
            [(0, false, true), (300, true, true), (900, true, true), (901, false, true)]
        {
            assert_eq!((is_fresh(&mark, at(now)), counts(&mark, at(now))), (fresh, valid), "{now}");
        }
        assert!(counts(&mark, at(1200)) && !counts(&mark, at(1201)));
        for value in ["", "by_id", "by_id yesterday", "true"] {
            assert!(!counts(value, at(0)), "{value:?}");
        }
    }
}
