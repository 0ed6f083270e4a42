//! What the API server was last seen to hold, by name.

use std::{collections::HashMap, sync::Arc};

use kube::Resource;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::node::Shared;

/// An object that an informer keeps.
///
/// Equality must leave the resource version out: two equal objects differ in nothing
/// that anybody looks at.
pub trait Stored: PartialEq + Clone + Send + Sync + 'static {
    /// How it arrives.
    type Wire: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static;

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
    objects: RwLock<HashMap<Shared, Arc<K>, ahash::RandomState>>,
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
        self.inner.objects.read().get(key).cloned()
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.inner.objects.read().values().cloned().collect()
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
    /// does not act on what was there before. A version that is newer already stays.
    pub fn apply_written(&self, object: K) {
        let mut objects = self.inner.objects.write();
        if let Some(held) = objects.get(object.key())
            && (held.uid() != object.uid() || !is_newer(object.resource_version(), held.resource_version()))
        {
            return;
        }
        objects.insert(Arc::clone(object.key()), Arc::new(object));
    }

    /// Takes over what a list or watch has shown. Gives the changes in the order in
    /// which they are to be told: none if nothing that is looked at differs.
    pub(crate) fn apply_seen(&self, object: K) -> Vec<Change<K>> {
        let mut objects = self.inner.objects.write();
        let Some(held) = objects.get_mut(object.key()) else {
            let object = Arc::new(object);
            objects.insert(Arc::clone(object.key()), Arc::clone(&object));
            return vec![Change::Added(object)];
        };
        if held.uid() != object.uid() {
            let new = Arc::new(object);
            let old = std::mem::replace(held, Arc::clone(&new));
            return vec![Change::Deleted(old), Change::Added(new)];
        }
        if is_newer(held.resource_version(), object.resource_version()) {
            return Vec::new();
        }
        if **held == object {
            if held.resource_version() != object.resource_version() {
                Arc::make_mut(held).set_resource_version(object.resource_version());
            }
            return Vec::new();
        }
        let new = Arc::new(object);
        let old = std::mem::replace(held, Arc::clone(&new));
        vec![Change::Updated { old, new }]
    }

    /// Removes what a watch has shown to be deleted. An object that has been created
    /// anew under the same name stays.
    pub(crate) fn remove_seen(&self, object: &K) -> Option<Change<K>> {
        let mut objects = self.inner.objects.write();
        let held = objects.get(object.key())?;
        if held.uid() != object.uid() {
            return None;
        }
        objects.remove(object.key()).map(Change::Deleted)
    }

    /// Removes everything that `keep` does not hold: what a whole list did not show.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> Vec<Change<K>> {
        let mut objects = self.inner.objects.write();
        let gone: Vec<_> = objects.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().filter_map(|key| objects.remove(key)).map(Change::Deleted).collect()
    }

    pub(crate) fn set_synced(&self) {
        self.inner.synced.send_replace(true);
    }
}

/// Whether `left` is a later resource version than `right`. They are comparable
/// numbers (KEP-5504); one that is not a number is never later.
fn is_newer(left: &str, right: &str) -> bool {
    match (left.parse::<u64>(), right.parse::<u64>()) {
        (Ok(left), Ok(right)) => left > right,
        _ => false,
    }
}
