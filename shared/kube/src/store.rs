//! The last seen state of the API server, by name, and which of two versions of an object
//! counts.

use std::{collections::HashMap, mem, sync::Arc};

use kube::Resource;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use ccm_objects::Shared;

pub use crate::rule::Rule;

/// An object that an informer keeps.
///
/// Equality must ignore the resource version: a controller sees no difference between two equal
/// objects.
pub trait Stored: PartialEq + Clone + Send + Sync + 'static {
    /// Its wire format.
    type Wire: Resource<DynamicType = ()>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static;

    /// The parts of an object that the store keeps, if they change while the process runs.
    type Kept: Default + PartialEq + Send + Sync + 'static;

    /// Returns its name, prefixed with namespace and slash if it has a namespace.
    fn key(&self) -> &Shared;

    /// Distinguishes it from an earlier object of the same name.
    fn uid(&self) -> &str;

    /// Returns its version.
    fn resource_version(&self) -> &str;

    /// Returns the number of the rule by which it was read; see [`Store::keep`].
    fn rule(&self) -> u32 {
        0
    }

    /// Takes over the parts that an earlier version of the object has as well, to save memory.
    fn share(&mut self, _earlier: &Self) {}

    /// Converts the wire format. The error says in one line why that failed.
    fn read(wire: Self::Wire, rule: &Rule<Self::Kept>) -> Result<Self, String>;
}

/// Implements [`Stored`] for a plain object that is read by its fields
/// ([`Kind`](crate::wire::Kind)). Its field `$key` has the key; further items follow.
macro_rules! stored {
    ($object:ty, $key:ident $(, $more:item)*) => {
        impl $crate::store::Stored for $object {
            type Wire = $crate::wire::Received<Self>;
            type Kept = <Self as $crate::wire::Kind>::Kept;

            fn key(&self) -> &ccm_objects::Shared {
                &self.$key
            }

            fn uid(&self) -> &str {
                &self.uid
            }

            fn resource_version(&self) -> &str {
                &self.resource_version
            }

            fn read(
                wire: $crate::wire::Received<Self>,
                rule: &$crate::store::Rule<Self::Kept>,
            ) -> Result<Self, String> {
                wire.into_object(rule)
            }

            $($more)*
        }
    };
}

pub(crate) use stored;

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
pub struct Store<K: Stored> {
    inner: Arc<Inner<K>>,
}

struct Inner<K: Stored> {
    objects: RwLock<Objects<K>>,
    synced: watch::Sender<bool>,
    rule: watch::Sender<Arc<Rule<K::Kept>>>,
}

struct Objects<K> {
    by_key: HashMap<Shared, HeldObject<K>, ahash::RandomState>,
    /// The number of the last list that began, from 1.
    list: u32,
}

struct HeldObject<K> {
    object: Arc<K>,
    /// The last list that contained it.
    listed: u32,
    /// The last list that had begun when the response to our own write put the object here; 0 if
    /// a list or a watch has shown it since.
    written: u32,
}

impl<K: Stored> Clone for Store<K> {
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
    /// Creates an empty store that is not synced.
    pub fn new() -> Self {
        let objects = RwLock::new(Objects { by_key: HashMap::default(), list: 0 });
        let (synced, rule) = (watch::Sender::new(false), watch::Sender::default());
        Self { inner: Arc::new(Inner { objects, synced, rule }) }
    }

    /// Sets the parts that are kept of each object, and returns the number of this rule. If the
    /// last rule differs, the informer lists all objects again.
    pub fn keep(&self, kept: K::Kept) -> u32 {
        self.inner.rule.send_if_modified(|rule| {
            let is_new = rule.kept != kept;
            if is_new {
                *rule = Arc::new(Rule { number: rule.number.wrapping_add(1), kept });
            }
            is_new
        });
        self.rule().number
    }

    /// Returns the rule by which objects are read now.
    pub fn rule(&self) -> Arc<Rule<K::Kept>> {
        Arc::clone(&self.inner.rule.borrow())
    }

    /// Returns a receiver of that rule.
    pub(crate) fn rules(&self) -> watch::Receiver<Arc<Rule<K::Kept>>> {
        self.inner.rule.subscribe()
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.inner.objects.read().by_key.get(key).map(|held| Arc::clone(&held.object))
    }

    /// Returns all objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.inner.objects.read();
        objects.by_key.values().map(|held| Arc::clone(&held.object)).collect()
    }

    /// Returns the objects that match, in no order.
    pub fn matching(&self, is_meant: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.inner.objects.read();
        let all = objects.by_key.values().map(|held| &held.object);
        all.filter(|object| is_meant(object)).map(Arc::clone).collect()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.inner.objects.read().by_key.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the first list is complete.
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
    /// therefore have carried the version that it was decided on, so that changes by other clients
    /// are not hidden.
    ///
    /// Returns the object.
    pub fn apply_written(&self, mut object: K) -> Arc<K> {
        let Objects { by_key, list } = &mut *self.inner.objects.write();
        let held = by_key.get_mut(object.key());
        let Some(held) = held.filter(|held| is_later(&object, &*held.object)) else {
            return Arc::new(object);
        };
        object.share(&held.object);
        held.object = Arc::new(object);
        held.written = *list;
        Arc::clone(&held.object)
    }

    /// Begins a list, possibly because an earlier one failed.
    pub(crate) fn begin_list(&self) {
        self.inner.objects.write().list += 1;
    }

    /// Applies an object from a list. Returns the changes to report, in order. The list is empty if
    /// nothing relevant differs.
    ///
    /// A list is authoritative even if it is older than the stored object: after a restore from
    /// a backup versions go back. Only objects written after the list began may be missing.
    pub(crate) fn apply_listed(&self, object: K) -> Vec<Change<K>> {
        let mut objects = self.inner.objects.write();
        let list = objects.list;
        let Some(held) = objects.by_key.get_mut(object.key()) else { return objects.add(object) };
        held.listed = list;
        if held.written == list && is_later(&*held.object, &object) {
            Vec::new()
        } else {
            held.replace(object)
        }
    }

    /// Completes the list: objects that it did not contain are gone.
    pub(crate) fn end_list(&self) -> Vec<Change<K>> {
        let Objects { by_key, list } = &mut *self.inner.objects.write();
        let gone = by_key.extract_if(|_, held| held.listed != *list);
        let gone = gone.map(|(_, held)| Change::Deleted(held.object)).collect();
        self.inner.synced.send_replace(true);
        gone
    }

    /// Applies an object from a watch, unless it is older than the stored one.
    pub(crate) fn apply_watched(&self, object: K) -> Vec<Change<K>> {
        let mut objects = self.inner.objects.write();
        let Some(held) = objects.by_key.get_mut(object.key()) else { return objects.add(object) };
        if is_later(&*held.object, &object) { Vec::new() } else { held.replace(object) }
    }

    /// Removes an object that a watch reports as deleted. An object that was created again under
    /// the same name stays.
    pub(crate) fn remove_watched(&self, object: &K) -> Option<Change<K>> {
        let by_key = &mut self.inner.objects.write().by_key;
        if by_key.get(object.key())?.object.uid() != object.uid() {
            return None;
        }
        by_key.remove(object.key()).map(|held| Change::Deleted(held.object))
    }
}

impl<K: Stored> Objects<K> {
    fn add(&mut self, object: K) -> Vec<Change<K>> {
        let object = Arc::new(object);
        let held = HeldObject { object: Arc::clone(&object), listed: self.list, written: 0 };
        self.by_key.insert(Arc::clone(object.key()), held);
        vec![Change::Added(object)]
    }
}

impl<K: Stored> HeldObject<K> {
    fn replace(&mut self, mut object: K) -> Vec<Change<K>> {
        self.written = 0;
        if *self.object == object {
            let is_newer = self.object.resource_version() != object.resource_version();
            if is_newer || self.object.rule() != object.rule() {
                object.share(&self.object);
                // This is not a change, but some parts do not count for equality.
                self.object = Arc::new(object);
            }
            return Vec::new();
        }
        object.share(&self.object);
        let new = Arc::new(object);
        let old = mem::replace(&mut self.object, Arc::clone(&new));
        if old.uid() == new.uid() {
            vec![Change::Updated { old, new }]
        } else {
            vec![Change::Deleted(old), Change::Added(new)]
        }
    }
}

/// Returns true if `left` is a later version of the same object as `right`. Versions are comparable
/// numbers (KEP-5504). A version that is not a number is never later.
fn is_later<K: Stored>(left: &K, right: &K) -> bool {
    let version = |object: &K| object.resource_version().parse::<u64>().ok();
    left.uid() == right.uid()
        && version(left).zip(version(right)).is_some_and(|(left, right)| left > right)
}

#[cfg(test)]
mod tests;
