//! A candidate's observation of the Lease.

use std::time::Duration;

use ccm_base::message::{LONGEST_LINE, one_line};
use serde_json::Value;
use tokio::time::Instant;

use super::identity;
use crate::settings::LONGEST_LEASE;

/// The Lease's record as last seen, and since when *this process* has seen it unchanged.
///
/// Only a change of the record matters, never its timestamps: clocks differ.
pub(super) struct Observed {
    me: String,
    duration: Duration,
    last: Option<Seen>,
    /// The Lease of the last read, until a write consumes it. Only a read by the library sets it:
    /// it must be the Lease that the library decided on.
    pub(super) read: Option<Value>,
}

struct Seen {
    /// The `spec` of the Lease, as stored in the API server.
    record: Value,
    /// True if the Lease was deleted since.
    absent: bool,
    /// Since when the record has been unchanged, or the Lease absent.
    since: Instant,
}

impl Observed {
    /// Starts without an observation, for the candidate `me`, which respects a record for at least
    /// `duration`.
    pub(super) fn new(me: &str, duration: Duration) -> Self {
        Self { me: me.to_owned(), duration, last: None, read: None }
    }

    /// Records that the Lease contains `record`.
    pub(super) fn saw(&mut self, record: &Value, now: Instant) {
        let unchanged = |seen: &Seen| !seen.absent && seen.record == *record;
        if !self.last.as_ref().is_some_and(unchanged) {
            self.last = Some(Seen { record: record.clone(), absent: false, since: now });
        }
    }

    /// Records that the Lease does not exist. Its holder may have renewed it just before it was
    /// deleted and still lead, so the time for which it is respected restarts.
    pub(super) fn missed(&mut self, now: Instant) {
        if let Some(seen) = self.last.as_mut().filter(|seen| !seen.absent) {
            seen.absent = true;
            seen.since = now;
        }
    }

    /// Returns the holder of the Lease when last seen, or an empty text if nobody held it.
    pub(super) fn holder(&self) -> &str {
        self.last.as_ref().map_or("", |seen| holder(&seen.record))
    }

    /// Returns the Lease's transitions as last seen, or `None` if it was never seen.
    pub(super) fn transitions(&self) -> Option<i64> {
        let seen = self.last.as_ref()?;
        Some(seen.record.get("leaseTransitions").and_then(Value::as_i64).unwrap_or_default())
    }

    /// Returns when another candidate's Lease need no longer be respected. `None` if no other
    /// candidate is known to hold it.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let seen = self.last.as_ref().filter(|_| self.is_held_by_other())?;
        Some(seen.since + self.respected(&seen.record))
    }

    /// Returns true if a candidate may acquire or create the Lease.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.expires_at().is_none_or(|expiry| now >= expiry)
    }

    /// Returns true if this record names this candidate.
    pub(super) fn is_mine(&self, record: &Value) -> bool {
        holder(record) == self.me
    }

    /// Returns the other holder and the time until a candidate may take over, as text for logs and
    /// pages. The text is empty if nobody else holds the Lease.
    pub(super) fn rival(&self, now: Instant) -> String {
        let Some(expiry) = self.expires_at() else { return String::new() };
        let holder = one_line(self.holder(), LONGEST_LINE);
        let left = expiry.saturating_duration_since(now).as_secs();
        format!("held by {holder}, free in {left} s unless renewed")
    }

    /// Returns the program that holds the Lease, if it is not the candidate's own.
    pub(super) fn other_program(&self) -> Option<&str> {
        identity::program(self.holder()).filter(|it| identity::program(&self.me) != Some(it))
    }

    /// Returns the problem if another program holds the Lease of this name, as text for logs and
    /// pages.
    pub(super) fn shared(&self, name: &str) -> Option<String> {
        let program = one_line(self.other_program()?, LONGEST_LINE);
        Some(format!(
            "the Lease {name} is held by another program, {program}: two programs with one Lease \
             exclude each other; give each program its own Lease (--leader-elect-resource-name)"
        ))
    }

    fn is_held_by_other(&self) -> bool {
        !self.holder().is_empty() && self.holder() != self.me
    }

    /// Returns the longer of the record's duration and our own, so that replicas with different
    /// settings cannot lead at the same time. A record with a longer duration than any setting
    /// accepts is a mistake.
    fn respected(&self, record: &Value) -> Duration {
        let own = record.get("leaseDurationSeconds").and_then(Value::as_u64).unwrap_or_default();
        Duration::from_secs(own).min(LONGEST_LEASE).max(self.duration)
    }
}

/// Returns the holder in this record; empty if the Lease is free.
pub(super) fn holder(record: &Value) -> &str {
    record.get("holderIdentity").and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OURS: Duration = Duration::from_secs(15);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_respected_while_it_changes_and_then_for_its_duration() {
        let check = |record: Value, expect: Option<u64>| {
            let start = Instant::now();
            let mut observed = Observed::new("me", OURS);
            observed.saw(&record, start);
            observed.saw(&record, start + seconds(3));
            let free_at = [0, 14, 15, 59, 60, 599, 600, 1_000_000_000]
                .into_iter()
                .find(|at| observed.is_free(start + seconds(*at)));
            assert_eq!(free_at, expect, "{record}");
        };
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": 15}), Some(15));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": 3}), Some(15));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": 60}), Some(60));
        check(json!({"holderIdentity": "other"}), Some(15));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": "many"}), Some(15));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": 600}), Some(600));
        // This is the longest duration that a setting accepts.
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": 601}), Some(600));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": i32::MAX}), Some(600));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": u64::MAX}), Some(600));
        check(json!({"holderIdentity": "", "leaseDurationSeconds": 15}), Some(0));
        check(json!({"leaseDurationSeconds": 15}), Some(0));
        check(json!({"holderIdentity": "other", "leaseDurationSeconds": -1}), Some(15));
        check(json!({"holderIdentity": "me", "leaseDurationSeconds": 15}), Some(0));
        check(Value::Null, Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_names_the_holder_and_when_the_lease_is_free() {
        let start = Instant::now();
        let mut observed = Observed::new("me", OURS);
        assert_eq!(observed.rival(start), "");
        observed.saw(&json!({"holderIdentity": "other\nx", "leaseDurationSeconds": 300}), start);
        let rival = |at| observed.rival(start + seconds(at));
        assert_eq!(rival(10), "held by other x, free in 290 s unless renewed");
        assert_eq!(rival(370), "held by other x, free in 0 s unless renewed");
        observed.saw(&json!({"holderIdentity": "me"}), start);
        assert_eq!(observed.rival(start), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_program_holds_is_recognised() {
        let check = |me: &str, holder: &str, expect: Option<&str>| {
            let mut observed = Observed::new(me, OURS);
            observed.saw(&json!({"holderIdentity": holder}), Instant::now());
            assert_eq!(observed.other_program(), expect, "{me}, {holder}");
        };
        let node = identity::new("node-ccm");
        check(&node, &identity::new("lifecycle-ccm"), Some("lifecycle-ccm"));
        check(&node, &identity::new("node-ccm"), None);
        check(&node, &node, None);
        check(&node, "", None);
        // This is cloud-controller-manager, whose Lease may be taken over on purpose.
        check(&node, "node-7_5f0a3c1e-6f0e-4a57-9b3e-6a6d4f2f3b10", None);
    }

    #[tokio::test(start_paused = true)]
    async fn any_change_of_the_record_starts_the_time_anew() {
        let start = Instant::now();
        let mut observed = Observed::new("me", OURS);
        observed.saw(&json!({"holderIdentity": "other", "renewTime": "b"}), start);
        // A timestamp that goes backwards is also a change.
        observed.saw(&json!({"holderIdentity": "other", "renewTime": "a"}), start + seconds(14));
        assert!(!observed.is_free(start + seconds(28)));
        assert_eq!(observed.expires_at(), Some(start + seconds(29)));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_hands_are_those_that_the_lease_counts() {
        let check = |record: Option<Value>, expect: Option<i64>| {
            let mut observed = Observed::new("me", OURS);
            if let Some(record) = &record {
                observed.saw(record, Instant::now());
            }
            assert_eq!(observed.transitions(), expect, "{record:?}");
        };
        check(None, None);
        check(Some(json!({"holderIdentity": "other", "leaseTransitions": 7})), Some(7));
        check(Some(json!({"holderIdentity": "other"})), Some(0));
        check(Some(json!({"leaseTransitions": "many"})), Some(0));
        check(Some(Value::Null), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_lease_is_respected_from_when_its_absence_is_noticed() {
        let start = Instant::now();
        let mut observed = Observed::new("me", OURS);
        observed.missed(start);
        assert!(observed.is_free(start), "no record was ever seen");
        observed.saw(&json!({"holderIdentity": "other"}), start);
        observed.missed(start + seconds(10));
        observed.missed(start + seconds(12));
        assert_eq!(observed.expires_at(), Some(start + seconds(25)));
        observed.saw(&json!({"holderIdentity": "other"}), start + seconds(20));
        assert_eq!(observed.expires_at(), Some(start + seconds(35)), "it is back");
        observed.saw(&json!({"holderIdentity": ""}), start + seconds(21));
        observed.missed(start + seconds(22));
        assert!(observed.is_free(start + seconds(22)), "the Lease was free");
    }
}
