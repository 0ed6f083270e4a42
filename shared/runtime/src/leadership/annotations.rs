//! Annotations of the Lease: what a leader leaves to the next one, and what users tell the leader.
//!
//! They are read and written with the Lease, so they cost no request and no right.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

/// What a leader leaves to the next one.
pub const HANDOVER: &str = "quartet.dev/handover";
/// Only these annotations are kept in memory.
const PREFIX: &str = "quartet.dev/";
/// The longest text of a leader. The API server refuses an object with more than 256 KiB of
/// annotations, and then the Lease could not be renewed.
const LONGEST: usize = 64 * 1024;

/// The annotations of the Lease as last read, and the text that this leader leaves. Clones share
/// both. Empty without election.
#[derive(Clone, Debug, Default)]
pub struct LeaseAnnotations(Arc<Mutex<Annotations>>);

#[derive(Debug, Default)]
struct Annotations {
    read: BTreeMap<String, String>,
    /// That of the leader before this one.
    found: String,
    left: Option<String>,
}

impl LeaseAnnotations {
    /// Returns annotations as if they were read from a Lease, for tests.
    pub fn with<'a>(texts: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let read = texts.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        Self(Arc::new(Mutex::new(Annotations { read, ..Annotations::default() })))
    }

    /// The value when the Lease was last read: a leader reads it every 2 s.
    pub fn get(&self, key: &str) -> Option<String> {
        self.0.lock().read.get(key).cloned()
    }

    /// What the last leader has left; empty if there is nothing.
    pub fn found(&self) -> String {
        self.0.lock().found.clone()
    }

    /// Leaves this text to the next leader: it is written with the next renewal, so a leader that
    /// dies suddenly loses what it left after its last one. An empty text removes the annotation.
    /// Only a leader calls this. Returns whether the text is short enough; otherwise the text
    /// before stays.
    pub fn leave(&self, text: String) -> bool {
        let is_short = text.len() <= LONGEST;
        if is_short {
            self.0.lock().left = Some(text);
        }
        is_short
    }

    /// Those of the next leader.
    #[must_use]
    pub fn handed_over(&self) -> Self {
        let last = self.0.lock();
        let found = last.left.as_ref().unwrap_or(&last.found).clone();
        let read = last.read.clone();
        Self(Arc::new(Mutex::new(Annotations { read, found, left: None })))
    }

    /// Reads a Lease.
    pub(super) fn read(&self, lease: &Value, is_mine: bool) {
        let mut annotations = self.0.lock();
        annotations.read.clear();
        for (key, value) in lease["metadata"]["annotations"].as_object().into_iter().flatten() {
            let Some(text) = value.as_str().filter(|_| key.starts_with(PREFIX)) else { continue };
            annotations.read.insert(key.clone(), text.to_owned());
        }
        // A leader's own text is not what it has found.
        if !is_mine {
            annotations.found = annotations.read.get(HANDOVER).cloned().unwrap_or_default();
        }
    }

    /// Adds what is left to a Lease that is about to be written.
    pub(super) fn write(&self, lease: &mut Value) {
        let annotations = self.0.lock();
        let Some(text) = &annotations.left else { return };
        let stored = &mut lease["metadata"]["annotations"];
        if !stored.is_object() {
            *stored = Value::Object(serde_json::Map::new());
        }
        let Some(stored) = stored.as_object_mut() else { return };
        if text.is_empty() {
            stored.remove(HANDOVER);
        } else {
            stored.insert(HANDOVER.to_owned(), text.as_str().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_too_long_for_the_lease_is_not_left() {
        let annotations = LeaseAnnotations::default();
        assert!(annotations.leave("a".to_owned()));
        assert!(!annotations.leave("b".repeat(LONGEST + 1)));
        let mut lease = json!({"metadata": {"annotations": null}});
        annotations.write(&mut lease);
        assert_eq!(lease["metadata"]["annotations"], json!({HANDOVER: "a"}));
        assert!(annotations.leave(String::new()));
        annotations.write(&mut lease);
        assert_eq!(lease["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn what_users_write_is_read_from_every_lease() {
        let annotations = LeaseAnnotations::default();
        let lease = |handover: &str, user: &str| {
            json!({"metadata": {"annotations":
                {HANDOVER: handover, "quartet.dev/x": user, "y": "z", "quartet.dev/number": 1}}})
        };
        annotations.read(&lease("of the last", "one"), false);
        annotations.read(&lease("of this one", "two"), true);
        assert_eq!(annotations.found(), "of the last");
        assert_eq!(annotations.get("quartet.dev/x").as_deref(), Some("two"));
        assert_eq!((annotations.get("y"), annotations.get("quartet.dev/number")), (None, None));
        annotations.read(&json!({"metadata": {}}), true);
        assert_eq!(annotations.get("quartet.dev/x"), None);
    }
}
