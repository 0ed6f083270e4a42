//! The machines and their indexes.

use std::collections::{BTreeMap, BTreeSet};

use super::SimInstance;

/// Machines by ID, with indexes by name, system UUID and other spellings of the ID, so that
/// a lookup of 500 among many thousands is as cheap as in a real cloud.
#[derive(Default)]
pub(super) struct Fleet {
    by_id: BTreeMap<String, SimInstance>,
    names: Index,
    uuids: Index,
    spellings: Index,
}

/// IDs by key.
#[derive(Default)]
struct Index(BTreeMap<String, BTreeSet<String>>);

impl Index {
    fn add(&mut self, key: String, id: &str) {
        self.0.entry(key).or_default().insert(id.to_owned());
    }

    fn remove(&mut self, key: &str, id: &str) {
        if let Some(ids) = self.0.get_mut(key) {
            ids.remove(id);
            if ids.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

/// Returns a UUID in lower case, since UUIDs differ in case between firmware and cloud.
fn plain_uuid(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

impl Fleet {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SimInstance> {
        self.by_id.values()
    }

    pub(super) fn insert(&mut self, instance: SimInstance) {
        self.remove(&instance.id);
        let id = &instance.id;
        self.names.add(instance.name.clone(), id);
        if let Some(uuid) = &instance.system_uuid {
            self.uuids.add(plain_uuid(uuid), id);
        }
        for other in &instance.other_ids {
            self.spellings.add(other.as_str().to_owned(), id);
        }
        self.spellings.add(instance.provider_id().as_str().to_owned(), id);
        self.by_id.insert(id.clone(), instance);
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<SimInstance> {
        let instance = self.by_id.remove(id)?;
        self.names.remove(&instance.name, id);
        if let Some(uuid) = &instance.system_uuid {
            self.uuids.remove(&plain_uuid(uuid), id);
        }
        for other in &instance.other_ids {
            self.spellings.remove(other.as_str(), id);
        }
        self.spellings.remove(instance.provider_id().as_str(), id);
        Some(instance)
    }

    pub(super) fn get(&self, id: &str) -> Option<&SimInstance> {
        self.by_id.get(id)
    }

    pub(super) fn named(&self, name: &str) -> Vec<&SimInstance> {
        self.all(&self.names, name)
    }

    pub(super) fn with_uuid(&self, uuid: &str) -> Vec<&SimInstance> {
        self.all(&self.uuids, &plain_uuid(uuid))
    }

    pub(super) fn spelt(&self, provider_id: &str) -> Vec<&SimInstance> {
        self.all(&self.spellings, provider_id)
    }

    fn all(&self, index: &Index, key: &str) -> Vec<&SimInstance> {
        index.0.get(key).into_iter().flatten().filter_map(|id| self.by_id.get(id)).collect()
    }
}
