//! Objects by key, every change in order, and one version counter for all.
//!
//! Each table keeps its latest changes. A watch can thus begin in the past, and a list can
//! show an earlier version: the present state with later changes undone.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    object::Object,
    resources::{Resource, SLOTS},
};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    /// The new state; for a delete, the last state with the version of the delete.
    pub(super) object: Arc<Object>,
    pub(super) previous: Option<Arc<Object>>,
}

/// The requested version is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted {
    /// The oldest version that a watch may begin after.
    pub(super) oldest: u64,
}

/// Another client wrote in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raced;

#[derive(Default)]
struct Table {
    objects: BTreeMap<String, Arc<Object>>,
    log: VecDeque<Arc<Change>>,
    /// Changes up to this version are compacted.
    compacted: u64,
}

struct State {
    revision: u64,
    tables: Vec<Table>,
}

/// All objects of one server.
pub(super) struct Store {
    state: RwLock<State>,
    history: usize,
    tip: watch::Sender<u64>,
}

/// A part of a collection, at one version.
pub(super) struct Page {
    pub(super) revision: u64,
    pub(super) objects: Vec<Arc<Object>>,
    /// The last key of this page, if there are more.
    pub(super) after: Option<String>,
    /// How many objects remain, ignoring selectors.
    pub(super) remaining: usize,
}

/// The part of a collection to read.
pub(super) struct Range<'a> {
    /// The prefix of the keys: a namespace with its slash, or empty.
    pub(super) prefix: &'a str,
    /// Keys greater than this one.
    pub(super) after: Option<&'a str>,
    /// The most objects; 0 for all.
    pub(super) limit: usize,
}

impl Store {
    /// Creates a store that keeps `history` changes of each kind.
    pub(super) fn new(history: usize) -> Self {
        let tables = (0..SLOTS).map(|_| Table::default()).collect();
        Self {
            state: RwLock::new(State { revision: 1, tables }),
            history,
            tip: watch::channel(1).0,
        }
    }

    /// Returns the newest version.
    pub(super) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// Notifies about each new version.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.tip.subscribe()
    }

    pub(super) fn get(&self, resource: &Resource, key: &str) -> Option<Arc<Object>> {
        self.state.read().tables.get(resource.slot)?.objects.get(key).cloned()
    }

    /// Writes an object if the stored one still has version `expected` (`None`: does not exist).
    pub(super) fn put(
        &self,
        resource: &Resource,
        expected: Option<u64>,
        value: Value,
    ) -> Result<Arc<Object>, Raced> {
        let mut state = self.state.write();
        let revision = state.revision + 1;
        let Some(table) = state.tables.get_mut(resource.slot) else { return Err(Raced) };
        let object = Arc::new(Object::new(resource, value, revision));
        let previous = table.objects.get(&object.key).cloned();
        if previous.as_ref().map(|previous| previous.revision) != expected {
            return Err(Raced);
        }
        table.objects.insert(object.key.clone(), Arc::clone(&object));
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        table.remember(Change { kind, object: Arc::clone(&object), previous }, self.history);
        state.revision = revision;
        self.tip.send_replace(revision);
        Ok(object)
    }

    /// Removes an object if it still has version `expected`. Returns its last state.
    pub(super) fn remove(
        &self,
        resource: &Resource,
        key: &str,
        expected: u64,
    ) -> Result<Arc<Object>, Raced> {
        let mut state = self.state.write();
        let revision = state.revision + 1;
        let Some(table) = state.tables.get_mut(resource.slot) else { return Err(Raced) };
        if table.objects.get(key).is_none_or(|object| object.revision != expected) {
            return Err(Raced);
        }
        let Some(previous) = table.objects.remove(key) else { return Err(Raced) };
        let object = Arc::new(previous.at(resource, revision));
        let change = Change {
            kind: ChangeKind::Deleted,
            object: Arc::clone(&object),
            previous: Some(previous),
        };
        table.remember(change, self.history);
        state.revision = revision;
        self.tip.send_replace(revision);
        Ok(object)
    }

    /// Compacts all changes: clients with an older version must list again.
    pub(super) fn compact(&self) {
        let mut state = self.state.write();
        let revision = state.revision;
        for table in &mut state.tables {
            table.log.clear();
            table.compacted = revision;
        }
    }

    /// Returns a part of a collection at version `at`, or its current state.
    pub(super) fn page(
        &self,
        resource: &Resource,
        at: Option<u64>,
        range: &Range<'_>,
        selects: impl Fn(&Object) -> bool,
    ) -> Result<Page, Compacted> {
        let state = self.state.read();
        let at = at.unwrap_or(state.revision).min(state.revision);
        let Some(table) = state.tables.get(resource.slot) else {
            return Err(Compacted { oldest: 0 });
        };
        let past;
        let objects = if at < table.newest() {
            past = table.rewound(at)?;
            &past
        } else {
            &table.objects
        };
        let lower = match range.after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(range.prefix),
        };
        let mut page = Page { revision: at, objects: Vec::new(), after: None, remaining: 0 };
        let in_range = objects
            .range::<str, _>((lower, Bound::Unbounded))
            .map(|(_, object)| object)
            .take_while(|object| object.key.starts_with(range.prefix));
        for object in in_range.filter(|object| selects(object)) {
            if range.limit > 0 && page.objects.len() >= range.limit {
                page.remaining += 1;
                continue;
            }
            page.objects.push(Arc::clone(object));
        }
        if page.remaining > 0 {
            page.after = page.objects.last().map(|object| object.key.clone());
        }
        Ok(page)
    }

    /// Returns an object at version `at`, or at the oldest version in the history.
    pub(super) fn get_at(&self, resource: &Resource, key: &str, at: u64) -> Option<Arc<Object>> {
        let state = self.state.read();
        let table = state.tables.get(resource.slot)?;
        let later =
            table.log.iter().find(|change| change.object.revision > at && change.object.key == key);
        match later {
            Some(change) => change.previous.clone(),
            None => table.objects.get(key).cloned(),
        }
    }

    /// Returns at most `max` changes after version `after`, and the version they lead up to.
    pub(super) fn since(
        &self,
        resource: &Resource,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Arc<Change>>, u64), Compacted> {
        let state = self.state.read();
        let Some(table) = state.tables.get(resource.slot) else {
            return Err(Compacted { oldest: 0 });
        };
        if after < table.compacted {
            return Err(Compacted { oldest: table.compacted });
        }
        let start = table.log.partition_point(|change| change.object.revision <= after);
        let changes: Vec<_> = table.log.range(start..).take(max).cloned().collect();
        let reached = match changes.last() {
            Some(last) if changes.len() == max => last.object.revision,
            _ => state.revision.max(after),
        };
        Ok((changes, reached))
    }

    /// Returns the oldest version that can still be listed.
    pub(super) fn oldest(&self, resource: &Resource) -> u64 {
        self.state.read().tables.get(resource.slot).map_or(0, |table| table.compacted)
    }
}

impl Table {
    fn remember(&mut self, change: Change, history: usize) {
        self.log.push_back(Arc::new(change));
        while self.log.len() > history {
            if let Some(forgotten) = self.log.pop_front() {
                self.compacted = forgotten.object.revision;
            }
        }
    }

    fn newest(&self) -> u64 {
        self.log.back().map_or(self.compacted, |change| change.object.revision)
    }

    /// Returns the objects with all changes after version `at` undone.
    fn rewound(&self, at: u64) -> Result<BTreeMap<String, Arc<Object>>, Compacted> {
        if at < self.compacted {
            return Err(Compacted { oldest: self.compacted });
        }
        let mut objects = self.objects.clone();
        for change in self.log.iter().rev().take_while(|change| change.object.revision > at) {
            match &change.previous {
                Some(previous) => objects.insert(previous.key.clone(), Arc::clone(previous)),
                None => objects.remove(&change.object.key),
            };
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests;
