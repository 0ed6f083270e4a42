//! How a user approves changes that a brake holds. An approval overrides breaker and
//! budget, never the proof that a change needs.
//!
//! * **One object**: a *mark* on it, a label or an annotation with the value `yes` or
//!   `true`. Its key says what is approved, for instance `quartet.dev/deletion-approved`.
//!   A label can mark many objects at once: `kubectl label nodes -l pool=batch KEY=yes`.
//! * **A set of objects**: two annotations of the program's Lease: [`SELECTOR`], a label
//!   selector or `*` for all, and [`UNTIL`], a time in RFC 3339. They also cover objects that
//!   are held only later, until that time.
//!
//! An invalid text approves nothing, and the texts that ask for the approval say so.

use std::{collections::BTreeMap, fmt};

use ccm_base::{At, message::one_line};
use ccm_kube::selector::{InvalidSelector, NodeSelector};
use ccm_objects::Shared;
use serde::{Deserialize, Serialize};

/// The approval of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetApproval {
    #[serde(skip, default = "keys")]
    keys: Keys,
    selector: NodeSelector,
    until: At,
}

/// The annotations of the Lease with the approval of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The one with the label selector of the approved objects.
    pub selector: &'static str,
    /// The one with the time at which the approval ends.
    pub until: &'static str,
}

/// The annotation of the Lease with the label selector of the approved objects.
pub const SELECTOR: &str = "quartet.dev/approved-selector";
/// The annotation of the Lease with the time at which the approval ends.
pub const UNTIL: &str = "quartet.dev/approved-until";

/// The annotations with which a user approves the main changes of a program.
pub const KEYS: Keys = Keys { selector: SELECTOR, until: UNTIL };

/// Returns where an approval is found, for texts about it.
const fn keys() -> Keys {
    KEYS
}

/// Why the annotations of an approval are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApproval {
    /// An annotation is missing or empty.
    #[error("annotation {0} is missing")]
    Missing(&'static str),
    /// The selector is invalid.
    #[error("annotation {0}: {1}, or * for all")]
    Selector(&'static str, InvalidSelector),
    /// The time is invalid.
    #[error("annotation {0}: {1:?} is not a time such as 2006-01-02T15:04:05Z")]
    Until(&'static str, String),
    /// The deadline has passed.
    #[error("annotation {0}: {1} is over; set a later time, in UTC")]
    Over(&'static str, At),
}

/// The most characters of the value of a mark in a text.
const LONGEST_VALUE: usize = 40;

/// Returns true if the value of a mark approves.
pub fn is_yes(value: &str) -> bool {
    let value = value.trim();
    ["yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Returns true if a mark on an object approves: its annotation of the key, or else its label.
pub fn is_marked(annotation: Option<&str>, label: Option<&Shared>) -> bool {
    annotation.or(label.map(|value| &**value)).is_some_and(is_yes)
}

/// Returns true if a mark on an object approves now: as [`is_marked`], or until the time that it
/// names in RFC 3339. The value of a label cannot be a time.
pub fn is_marked_at(annotation: Option<&str>, label: Option<&Shared>, now: At) -> bool {
    let until = annotation.and_then(|text| text.trim().parse::<At>().ok());
    until.map_or_else(|| is_marked(annotation, label), |until| now < until)
}

/// Returns the mark that approves, for texts that ask for it: `KEY=yes`. If the object has a mark with
/// another value, also that the value does not approve: a word that is misspelled, or a time that is
/// over.
pub fn to_set(key: &str, annotation: Option<&str>, label: Option<&Shared>) -> String {
    match ignored(annotation, label) {
        Some(value) => format!("{key}=yes (its present value {value:?} does not approve)"),
        None => format!("{key}=yes"),
    }
}

/// Returns the command that sets the mark of an object, such as `node a`. If the object has a mark with
/// another value, the text says before the command that the value does not approve.
pub fn command(
    object: &str,
    key: &str,
    annotation: Option<&str>,
    label: Option<&Shared>,
) -> String {
    let command = format!("kubectl annotate {object} --overwrite {key}=yes");
    match ignored(annotation, label) {
        Some(value) => format!("the present value {value:?} does not approve: {command}"),
        None => command,
    }
}

/// Returns the value of a mark if it is neither `yes` nor `true`.
pub fn ignored(annotation: Option<&str>, label: Option<&Shared>) -> Option<String> {
    let value = annotation.or(label.map(|value| &**value)).filter(|value| !is_yes(value))?;
    Some(one_line(value, LONGEST_VALUE))
}

/// In words: `pool=batch until 2026-01-02T15:04:05.000Z`.
impl fmt::Display for SetApproval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selector = self.selector.to_string();
        let selector = if selector.is_empty() { "all" } else { &selector };
        write!(f, "{selector} until {}", self.until)
    }
}

impl SetApproval {
    /// Parses these annotations of the Lease. `None` if the Lease has neither.
    ///
    /// # Errors
    ///
    /// Why they are invalid.
    pub fn read(
        keys: Keys,
        annotation: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidApproval> {
        let entry = |key| annotation(key).map(|text| text.trim().to_owned());
        let (selector, until) = match (entry(keys.selector), entry(keys.until)) {
            (None, None) => return Ok(None),
            (selector, until) => (selector.unwrap_or_default(), until.unwrap_or_default()),
        };
        if selector.is_empty() {
            return Err(InvalidApproval::Missing(keys.selector));
        }
        if until.is_empty() {
            return Err(InvalidApproval::Missing(keys.until));
        }
        let selector = match &*selector {
            "*" => NodeSelector::default(),
            selector => {
                selector.parse().map_err(|error| InvalidApproval::Selector(keys.selector, error))?
            }
        };
        let until = until.parse().map_err(|_| InvalidApproval::Until(keys.until, until))?;
        Ok(Some(Self { keys, selector, until }))
    }

    /// Returns the approval if its time is not over.
    ///
    /// # Errors
    ///
    /// Its time is over: returns when it ended.
    pub fn unless_over(self, now: At) -> Result<Self, InvalidApproval> {
        match self.is_over(now) {
            false => Ok(self),
            true => Err(InvalidApproval::Over(self.keys.until, self.until)),
        }
    }

    /// Returns true if its time is over, by the wall clock.
    pub fn is_over(&self, now: At) -> bool {
        now >= self.until
    }

    /// Returns true if the selector matches these labels. [`Self::unless_over`] checks the time.
    pub fn covers(&self, labels: &BTreeMap<Shared, Shared>) -> bool {
        self.selector.selects(labels)
    }
}
