//! How a user approves changes that a brake holds. An approval overrides breaker and
//! budget, never the proof that a change needs.
//!
//! * **One object**: a *mark* on it, a label or an annotation with the value `yes` or
//!   `true`. Its key says what is approved, for instance `quartet.dev/deletion-approved`.
//!   A label can mark many objects at once: `kubectl label nodes -l pool=batch KEY=yes`.
//! * **A set of objects**: one ConfigMap beside the program's Lease ([`config_map`]) with
//!   two entries: `selector`, a label selector that is not empty, and `expires`, a time
//!   in RFC 3339. It also covers objects that are held only later, until it expires.
//!
//! An invalid text approves nothing.

use std::collections::BTreeMap;

use ccm_base::At;
use ccm_kube::selector::{InvalidSelector, NodeSelector};
use ccm_objects::Shared;

/// The approval of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetApproval {
    selector: NodeSelector,
    expires: At,
}

/// Why the ConfigMap of an approval is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApproval {
    /// An entry is missing or empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The selector is invalid.
    #[error("selector: {0}")]
    Selector(#[from] InvalidSelector),
    /// The time is invalid.
    #[error("expires: {0:?} is not a time such as 2006-01-02T15:04:05Z")]
    Expires(String),
}

/// The name of the ConfigMap that belongs to this Lease.
pub fn config_map(lease: &str) -> String {
    format!("{lease}-approval")
}

/// Whether the value of a mark approves.
pub fn is_yes(value: &str) -> bool {
    let value = value.trim();
    ["yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

impl SetApproval {
    /// Parses the data of the ConfigMap.
    ///
    /// # Errors
    ///
    /// Why it is invalid.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, InvalidApproval> {
        let entry = |key| {
            let text = data.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
            text.ok_or(InvalidApproval::Missing(key))
        };
        let (selector, expires) = (entry("selector")?, entry("expires")?);
        Ok(Self {
            selector: selector.parse()?,
            expires: expires.parse().map_err(|_| InvalidApproval::Expires(expires.to_owned()))?,
        })
    }

    /// Whether it approves the object with these labels.
    pub fn covers(&self, now: At, labels: &BTreeMap<Shared, Shared>) -> bool {
        now < self.expires && self.selector.selects(labels)
    }
}
