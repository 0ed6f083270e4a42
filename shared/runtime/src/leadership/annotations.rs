//! Annotations of the Lease: what a leader leaves to the next one, and what users tell the leader.
//!
//! They are read and written with the Lease, so they need neither requests nor rights of their own.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, watch};

/// The annotation that a leader leaves to the next one.
pub const HANDOVER: &str = "quartet.dev/handover";
/// The cloud that this program works with: the leader records it, and a person approves another one
/// here.
pub const CLOUD_IDENTITY: &str = "quartet.dev/cloud-identity";
/// Only these annotations are kept in memory.
const PREFIX: &str = "quartet.dev/";
/// The longest text of a leader. The API server refuses an object with more than 256 KiB of
/// annotations, and then the Lease could not be renewed.
const LONGEST: usize = 64 * 1024;

/// The annotations of the Lease as last read, and the annotations that this leader writes. Clones
/// share both. Both are empty without election.
#[derive(Clone, Debug, Default)]
pub struct LeaseAnnotations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    annotations: Mutex<Annotations>,
    /// True if an election writes the annotations to a Lease.
    is_elected: bool,
    /// How many changes of the leader's annotations the API server has stored.
    stored: watch::Sender<u64>,
    /// Somebody waits for the next renewal.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct Annotations {
    read: BTreeMap<String, String>,
    /// The text that the previous leader left.
    found: String,
    left: Option<LeftAnnotation>,
    /// How many times `left` has changed.
    changes: u64,
    /// The identity of the cloud that this leader records, until it has read it.
    recording: Option<Recording>,
}

/// An annotation that this leader leaves. Its text is made again for each renewal of the Lease,
/// because its times follow the wall clock, which may have been set in between.
#[derive(Clone)]
struct LeftAnnotation {
    /// The text when it was left.
    text: String,
    make: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for LeftAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[derive(Clone, Debug)]
struct Recording {
    identity: String,
    /// The expected current text: if it differs, a person has decided in the meantime.
    instead_of: Option<String>,
}

impl Annotations {
    fn identity(&self) -> Option<&String> {
        let read = self.read.get(CLOUD_IDENTITY);
        match &self.recording {
            Some(Recording { identity, instead_of }) if read == instead_of.as_ref() => {
                Some(identity)
            }
            _ => read,
        }
    }
}

impl LeaseAnnotations {
    /// Returns annotations as if they were read from a Lease, for tests.
    pub fn with<'a>(texts: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let read = texts.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        Self::new(Annotations { read, ..Annotations::default() })
    }

    fn new(annotations: Annotations) -> Self {
        Self(Arc::new(Shared { annotations: Mutex::new(annotations), ..Shared::default() }))
    }

    /// Returns the annotations of a Lease that an election writes.
    pub(super) fn elected() -> Self {
        Self(Arc::new(Shared { is_elected: true, ..Shared::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Annotations> {
        self.0.annotations.lock()
    }

    /// Returns the value as of the last read of the Lease. A leader reads it every 2 s.
    pub fn get(&self, key: &str) -> Option<String> {
        self.lock().read.get(key).cloned()
    }

    /// Returns the text that the last leader left; empty if it left no text.
    pub fn found(&self) -> String {
        self.lock().found.clone()
    }

    /// Leaves this text to the next leader. It is written with the next renewal; a leader that dies
    /// earlier loses it ([`LeaseAnnotations::stored`]). An empty text removes the annotation. Only
    /// a leader calls this. Returns true if the text is short enough; otherwise the previous text
    /// stays. `make` makes the text, now and for each renewal.
    pub fn leave(&self, make: impl Fn() -> String + Send + Sync + 'static) -> bool {
        let text = make();
        let is_short = text.len() <= LONGEST;
        if is_short {
            let mut annotations = self.lock();
            let is_new = annotations.left.as_ref().is_none_or(|left| left.text != text);
            annotations.changes += u64::from(is_new);
            annotations.left = Some(LeftAnnotation { text, make: Arc::new(make) });
        }
        is_short
    }

    /// Waits until the API server has stored what this leader has left; the Lease is renewed at
    /// once for it. A program calls this before a deletion that a budget allows, so that a leader
    /// that dies of its deletions does not leave a new budget. Without election nothing is stored,
    /// and this returns at once. It does not return while renewals fail: the caller ends with the
    /// term.
    pub async fn stored(&self) {
        let changes = self.lock().changes;
        let mut stored = self.0.stored.subscribe();
        if !self.0.is_elected || *stored.borrow_and_update() >= changes {
            return;
        }
        self.0.urgent.notify_one();
        // The sender lives as long as this handle: waiting cannot fail.
        stored.wait_for(|stored| *stored >= changes).await.ok();
    }

    /// Returns when somebody waits in [`LeaseAnnotations::stored`].
    pub(super) async fn until_urgent(&self) {
        self.0.urgent.notified().await;
    }

    /// Records that the API server has stored the Lease with this many changes.
    pub(super) fn store(&self, changes: u64) {
        self.0.stored.send_modify(|stored| *stored = changes.max(*stored));
    }

    /// Returns the recorded identity of the cloud, from the Lease or from this leader's own record.
    /// Without election it is recorded for as long as the process lives.
    pub fn cloud_identity(&self) -> Option<String> {
        self.lock().identity().cloned()
    }

    /// Records the identity of the cloud with the next renewal, instead of the one that is recorded
    /// now. If a person changes it before that, the change stays. Only a leader calls this.
    pub fn record_cloud(&self, identity: &str) {
        let mut annotations = self.lock();
        if annotations.identity().is_none_or(|recorded| recorded != identity) {
            let instead_of = annotations.read.get(CLOUD_IDENTITY).cloned();
            annotations.recording = Some(Recording { identity: identity.to_owned(), instead_of });
        }
    }

    /// Returns the annotations of the next leader.
    #[must_use]
    pub fn handed_over(&self) -> Self {
        let last = self.lock();
        let found = last.left.as_ref().map_or_else(|| last.found.clone(), |left| (left.make)());
        let mut read = last.read.clone();
        if let Some(identity) = last.identity() {
            read.insert(CLOUD_IDENTITY.to_owned(), identity.clone());
        }
        Self::new(Annotations { read, found, ..Annotations::default() })
    }

    /// Turns these into the annotations of the leader after `last`, for tests.
    pub(super) fn succeed(&self, last: &Self) {
        let next = std::mem::take(&mut *last.handed_over().lock());
        *self.lock() = next;
    }

    /// Changes an annotation as a person does, for tests: renews the Lease before, and reads it
    /// after.
    pub fn annotate(&self, key: &str, text: Option<&str>) {
        let mut lease = serde_json::json!({"metadata": {"annotations": self.lock().read.clone()}});
        let changes = self.write(&mut lease);
        self.read(&lease, true);
        self.store(changes);
        lease["metadata"]["annotations"][key] = text.into();
        self.read(&lease, true);
    }

    /// Reads a Lease.
    pub(super) fn read(&self, lease: &Value, is_mine: bool) {
        let mut annotations = self.lock();
        annotations.read.clear();
        for (key, value) in lease["metadata"]["annotations"].as_object().into_iter().flatten() {
            let Some(text) = value.as_str().filter(|_| key.starts_with(PREFIX)) else { continue };
            annotations.read.insert(key.clone(), text.to_owned());
        }
        let identity = annotations.read.get(CLOUD_IDENTITY).cloned();
        annotations.recording.take_if(|recording| recording.instead_of != identity);
        // A leader's own text does not count as found.
        if !is_mine {
            annotations.found = annotations.read.get(HANDOVER).cloned().unwrap_or_default();
        }
    }

    /// Adds the leader's annotations to a Lease that is about to be written. Returns the number of
    /// changes that they contain.
    pub(super) fn write(&self, lease: &mut Value) -> u64 {
        let annotations = self.lock();
        let changes = annotations.changes;
        if annotations.left.is_none() && annotations.recording.is_none() {
            return changes;
        }
        let stored = &mut lease["metadata"]["annotations"];
        if !stored.is_object() {
            *stored = Value::Object(serde_json::Map::new());
        }
        let Some(stored) = stored.as_object_mut() else { return changes };
        match annotations.left.as_ref().map(|left| (left.make)()) {
            Some(text) if text.is_empty() => drop(stored.remove(HANDOVER)),
            Some(text) => drop(stored.insert(HANDOVER.to_owned(), text.into())),
            None => (),
        }
        if let Some(Recording { identity, instead_of }) = &annotations.recording
            && stored.get(CLOUD_IDENTITY).and_then(Value::as_str) == instead_of.as_deref()
        {
            stored.insert(CLOUD_IDENTITY.to_owned(), identity.as_str().into());
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_too_long_for_the_lease_is_not_left() {
        let annotations = LeaseAnnotations::default();
        assert!(annotations.leave(|| "a".to_owned()));
        assert!(!annotations.leave(|| "b".repeat(LONGEST + 1)));
        let mut lease = json!({"metadata": {"annotations": null}});
        annotations.write(&mut lease);
        assert_eq!(lease["metadata"]["annotations"], json!({HANDOVER: "a"}));
        assert!(annotations.leave(String::new));
        annotations.write(&mut lease);
        assert_eq!(lease["metadata"]["annotations"], json!({}));
    }

    /// Its times follow the wall clock.
    #[test]
    fn what_is_left_is_made_anew_for_each_renewal() {
        let (annotations, texts) = (LeaseAnnotations::default(), AtomicU64::new(0));
        assert!(annotations.leave(move || texts.fetch_add(1, Ordering::Relaxed).to_string()));
        let mut lease = json!({"metadata": {}});
        for renewal in 1..3 {
            let changes = annotations.write(&mut lease);
            let text = lease["metadata"]["annotations"][HANDOVER].as_str();
            assert_eq!((text, changes), (Some(&*renewal.to_string()), 1));
        }
        assert_eq!(annotations.handed_over().found(), "3");
    }

    #[test]
    fn a_persons_word_about_the_cloud_is_not_overwritten() {
        let lease = |identity: Option<&str>| match identity {
            Some(identity) => json!({"metadata": {"annotations": {CLOUD_IDENTITY: identity}}}),
            None => json!({"metadata": {}}),
        };
        let annotations = LeaseAnnotations::default();
        annotations.read(&lease(None), true);
        annotations.record_cloud("one");
        assert_eq!(annotations.cloud_identity().as_deref(), Some("one"), "before it is written");
        assert_eq!(annotations.get(CLOUD_IDENTITY), None);
        let mut written = lease(None);
        annotations.write(&mut written);
        assert_eq!(written, lease(Some("one")));

        // A person writes the Lease at the same time.
        let mut theirs = lease(Some("two"));
        annotations.write(&mut theirs);
        assert_eq!(theirs, lease(Some("two")));
        annotations.read(&theirs, true);
        assert_eq!(annotations.cloud_identity().as_deref(), Some("two"));

        annotations.read(&lease(None), true);
        assert_eq!(annotations.cloud_identity(), None, "removed");
        annotations.read(&theirs, true);

        // The text replaces the current one. A text that a person removes is not written again.
        annotations.record_cloud("three");
        annotations.write(&mut theirs);
        assert_eq!(theirs, lease(Some("three")));
        annotations.read(&theirs, true);
        annotations.read(&lease(None), true);
        let mut removed = lease(None);
        annotations.write(&mut removed);
        assert_eq!((annotations.cloud_identity(), removed), (None, lease(None)));
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
