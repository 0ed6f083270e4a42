//! What the API server was last seen to hold, by name.

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
/// Equality must leave the resource version out: two equal objects differ in nothing
/// that anybody looks at.
pub trait Stored: PartialEq + Clone + Send + Sync + 'static {
    /// How it arrives.
    type Wire: Resource<DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static;

    /// Its name, with the namespace and a slash before it if it has one.
    fn key(&self) -> &Shared;

    /// Tells it from an earlier object of the same name.
    fn uid(&self) -> &str;

    /// Its version.
    fn resource_version(&self) -> &str;

    /// Takes over a version that came with no other change.
    fn set_resource_version(&mut self, version: &str);

    /// Reads what has arrived, or says in one line why it cannot be read.
    fn read(wire: Self::Wire) -> Result<Self, String>;
}

/// A change that somebody may want to act on.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// It was not there before.
    Added(Arc<K>),
    /// It differs in something that is looked at.
    Updated {
        /// As it was.
        old: Arc<K>,
        /// As it is.
        new: Arc<K>,
    },
    /// It is gone; this is how it was last seen.
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
    /// An empty store that has not been filled yet.
    pub fn new() -> Self {
        let inner = Inner { objects: RwLock::default(), synced: watch::Sender::new(false) };
        Self { inner: Arc::new(inner) }
    }

    /// The object of this key.
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

    /// Whether the first list has been read to its end.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the first list has been read to its end.
    pub async fn wait_synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as this store: waiting cannot fail.
        synced.wait_for(|synced| *synced).await.ok();
    }

    /// Takes over the API server's answer to a write of our own, so that the next look
    /// does not act on what was there before. A version that is newer already stays,
    /// and an object that is gone by now does not come back.
    ///
    /// Nobody is told of a change by this, nor later when the watch shows the same. The
    /// write must therefore have carried the version it was decided on: then it holds
    /// no change by anybody else that would go untold.
    pub fn apply_written(&self, object: impl Into<Arc<K>>) {
        self.inner.objects.write().apply_written(object.into());
    }

    /// A list begins, perhaps because an earlier one broke off.
    pub(crate) fn begin_list(&self) {
        self.inner.objects.write().begin_list();
    }

    /// Takes over what a list has shown. Gives the changes in the order in which they
    /// are to be told: none if nothing that is looked at differs.
    pub(crate) fn apply_listed(&self, object: K) -> Vec<Change<K>> {
        self.inner.objects.write().apply_listed(object)
    }

    /// The list is complete: what it did not show is gone.
    pub(crate) fn end_list(&self) -> Vec<Change<K>> {
        let gone = self.inner.objects.write().end_list();
        self.inner.synced.send_replace(true);
        gone
    }

    /// Takes over what a watch has shown, unless it is older than what is held.
    pub(crate) fn apply_watched(&self, object: K) -> Vec<Change<K>> {
        self.inner.objects.write().apply_watched(object)
    }

    /// Removes what a watch has shown to be deleted.
    pub(crate) fn remove_watched(&self, object: &K) -> Option<Change<K>> {
        self.inner.objects.write().remove_watched(object)
    }
}

#[cfg(test)]
mod tests;
