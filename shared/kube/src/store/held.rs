//! The objects, and the choice between two versions of an object.

use std::{collections::HashMap, mem, sync::Arc};

use super::{Change, Stored};
use ccm_objects::Shared;

/// The objects of one kind.
pub(super) struct Objects<K> {
    by_key: HashMap<Shared, Held<K>, ahash::RandomState>,
    /// The number of the last list that began, from 1.
    list: u32,
}

struct Held<K> {
    object: Arc<K>,
    /// The last list that contained it.
    listed: u32,
    /// The last list that had begun when the response to our own write put the object here; 0 if
    /// a list or a watch has shown it since.
    written: u32,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_key: HashMap::default(), list: 0 }
    }
}

impl<K: Stored> Objects<K> {
    pub(super) fn get(&self, key: &str) -> Option<Arc<K>> {
        self.by_key.get(key).map(|held| Arc::clone(&held.object))
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.by_key.values().map(|held| Arc::clone(&held.object)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn apply_written(&mut self, object: Arc<K>) {
        let list = self.list;
        if let Some(held) = self.by_key.get_mut(object.key())
            && held.object.uid() == object.uid()
            && is_newer(&*object, &*held.object)
        {
            held.object = object;
            held.written = list;
        }
    }

    pub(super) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// A list is authoritative even if it is older than the stored object: after a restore from
    /// a backup versions go back. Only objects written after the list began may be missing.
    pub(super) fn apply_listed(&mut self, object: K) -> Vec<Change<K>> {
        let list = self.list;
        let Some(held) = self.by_key.get_mut(object.key()) else { return self.add(object) };
        held.listed = list;
        if held.object.uid() == object.uid()
            && held.written == list
            && is_newer(&*held.object, &object)
        {
            return Vec::new();
        }
        held.replace(object)
    }

    pub(super) fn end_list(&mut self) -> Vec<Change<K>> {
        let list = self.list;
        let gone = self.by_key.extract_if(|_, held| held.listed != list);
        gone.map(|(_, held)| Change::Deleted(held.object)).collect()
    }

    pub(super) fn apply_watched(&mut self, object: K) -> Vec<Change<K>> {
        let Some(held) = self.by_key.get_mut(object.key()) else { return self.add(object) };
        if held.object.uid() == object.uid() && is_newer(&*held.object, &object) {
            return Vec::new();
        }
        held.replace(object)
    }

    /// An object that was created anew under the same name stays.
    pub(super) fn remove_watched(&mut self, object: &K) -> Option<Change<K>> {
        if self.by_key.get(object.key())?.object.uid() != object.uid() {
            return None;
        }
        self.by_key.remove(object.key()).map(|held| Change::Deleted(held.object))
    }

    fn add(&mut self, object: K) -> Vec<Change<K>> {
        let object = Arc::new(object);
        let held = Held { object: Arc::clone(&object), listed: self.list, written: 0 };
        self.by_key.insert(Arc::clone(object.key()), held);
        vec![Change::Added(object)]
    }
}

impl<K: Stored> Held<K> {
    fn replace(&mut self, object: K) -> Vec<Change<K>> {
        self.written = 0;
        if *self.object == object {
            if self.object.resource_version() != object.resource_version() {
                Arc::make_mut(&mut self.object).set_resource_version(object.resource_version());
            }
            return Vec::new();
        }
        let new = Arc::new(object);
        let old = mem::replace(&mut self.object, Arc::clone(&new));
        if old.uid() == new.uid() {
            vec![Change::Updated { old, new }]
        } else {
            vec![Change::Deleted(old), Change::Added(new)]
        }
    }
}

/// Whether `left` has a later version than `right`. Versions are comparable numbers
/// (KEP-5504); one that is not a number is never later.
fn is_newer<K: Stored>(left: &K, right: &K) -> bool {
    match (left.resource_version().parse::<u64>(), right.resource_version().parse::<u64>()) {
        (Ok(left), Ok(right)) => left > right,
        _ => false,
    }
}
