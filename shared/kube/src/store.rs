//! The last seen state of the API server, by name.

mod held;

use std::sync::Arc;

use kube::Resource;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::held::Objects;
use ccm_objects::Shared;

/// An object that an informer keeps.
///
/// Equality must ignore the resource version: two equal objects differ in nothing that a
/// controller reads.
pub trait Stored: PartialEq + Clone + Send + Sync + 'static {
    /// Its wire format.
    type Wire: Resource<DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static;

    /// Its name, prefixed with namespace and slash if it has a namespace.
    fn key(&self) -> &Shared;

    /// Distinguishes it from an earlier object of the same name.
    fn uid(&self) -> &str;

    /// Its version.
    fn resource_version(&self) -> &str;

    /// Applies a version that came without any other change.
    fn set_resource_version(&mut self, version: &str);

    /// Converts the wire format; the error says in one line why that failed.
    fn read(wire: Self::Wire) -> Result<Self, String>;
}

/// A change that a controller may react to.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// The object is new.
    Added(Arc<K>),
    /// A relevant field has changed.
    Updated {
        /// The old state.
        old: Arc<K>,
        /// The new state.
        new: Arc<K>,
    },
    /// The object is gone; this is its last known state.
    Deleted(Arc<K>),
}

/// The objects of one kind. Clones share them.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    objects: RwLock<Objects<K>>,
    synced: watch::Sender<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Stored> Default for Store<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Stored> Store<K> {
    /// An empty store that is not synced.
    pub fn new() -> Self {
        let inner = Inner { objects: RwLock::default(), synced: watch::Sender::new(false) };
        Self { inner: Arc::new(inner) }
    }

    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.inner.objects.read().get(key)
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.inner.objects.read().list()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner.objects.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn wait_synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this store: waiting cannot fail.
        synced.wait_for(|synced| *synced).await.ok();
    }

    /// Applies the API server's response to a write of this process, so that the next read does
    /// not see the old state. A newer version in the store stays, and an object that is already
    /// gone does not come back.
    ///
    /// Reports no change, neither now nor when the watch shows the same version. The write must
    /// therefore have carried the version it was decided on: then no change by another client is
    /// hidden.
    pub fn apply_written(&self, object: impl Into<Arc<K>>) {
        self.inner.objects.write().apply_written(object.into());
    }

    /// A list begins, possibly because an earlier one failed.
    pub(crate) fn begin_list(&self) {
        self.inner.objects.write().begin_list();
    }

    /// Applies an object from a list. Returns the changes to report, in order; none if nothing
    /// relevant differs.
    pub(crate) fn apply_listed(&self, object: K) -> Vec<Change<K>> {
        self.inner.objects.write().apply_listed(object)
    }

    /// Completes the list: objects that it did not contain are gone.
    pub(crate) fn end_list(&self) -> Vec<Change<K>> {
        let gone = self.inner.objects.write().end_list();
        self.inner.synced.send_replace(true);
        gone
    }

    /// Applies an object from a watch, unless it is older than the stored one.
    pub(crate) fn apply_watched(&self, object: K) -> Vec<Change<K>> {
        self.inner.objects.write().apply_watched(object)
    }

    /// Removes an object that a watch reports as deleted.
    pub(crate) fn remove_watched(&self, object: &K) -> Option<Change<K>> {
        self.inner.objects.write().remove_watched(object)
    }
}

#[cfg(test)]
mod tests;
