//! Remembers the refusals of admission policies. The answers show them, so this does not cost a request.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::Status;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::error::denied_by_policy;

/// The most policies that are remembered.
const MOST: usize = 16;

/// The last write that a policy has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The policy's message, on one line.
    pub message: String,
    /// The time of the last refusal.
    pub at: Instant,
    /// How many writes the policy has refused.
    pub count: u64,
}

/// The last denial of each `ValidatingAdmissionPolicy`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Denials(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    by_policy: Mutex<BTreeMap<String, Denial>>,
    news: Notify,
}

impl Denials {
    /// Remembers the refusal if a policy has made it.
    pub(super) fn refused(&self, status: &Status) {
        let Some((policy, message)) = denied_by_policy(&status.message) else { return };
        let mut by_policy = self.0.by_policy.lock();
        if by_policy.len() >= MOST && !by_policy.contains_key(policy) {
            return;
        }
        let count = by_policy.get(policy).map_or(0, |denial| denial.count) + 1;
        let denial = Denial { message, at: Instant::now(), count };
        by_policy.insert(policy.to_owned(), denial);
        self.0.news.notify_one();
    }

    /// Returns the last denial of this policy.
    pub fn last(&self, policy: &str) -> Option<Denial> {
        self.0.by_policy.lock().get(policy).cloned()
    }

    /// Returns when a policy has refused a write. One task waits.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(policy: &str, words: &str) -> Status {
        let text = format!(
            "nodes \"n\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding 'b' denied request: {words}"
        );
        Status::failure(&text, "Forbidden")
    }

    #[test]
    fn the_last_denial_of_each_policy_is_kept_and_not_more_than_a_few() {
        let denials = Denials::default();
        denials
            .refused(&Status::failure("nodes is forbidden: User \"x\" cannot patch", "Forbidden"));
        denials.refused(&denied("a", "one"));
        denials.refused(&denied("b", "other"));
        denials.refused(&denied("a", "two\nlines"));
        let of = |policy| denials.last(policy).map(|denial| (denial.message, denial.count));
        assert_eq!(of("a"), Some(("two lines".to_owned(), 2)));
        assert_eq!(of("b"), Some(("other".to_owned(), 1)));
        assert_eq!(of("c"), None);
        for number in 0..100 {
            denials.refused(&denied(&format!("p{number}"), "no"));
        }
        denials.refused(&denied("a", "three"));
        assert_eq!(denials.0.by_policy.lock().len(), MOST);
        assert_eq!(of("a"), Some(("three".to_owned(), 3)), "a known one goes on");
    }
}
