//! The instances that the last lookups have found, so that routine work does not need lookups.
//!
//! It never proves absence: an instance can be missing because the cloud failed briefly, an entry
//! was malformed, or the instance is newer. Only a lookup can prove that an instance is gone.

mod entries;
mod index;

use std::{collections::HashSet, mem, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, Instance, LookupResult, ProviderId};
use serde::{Deserialize, Serialize};

use self::index::Index;

/// One instance, and when it was last seen in this state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KnownInstance {
    /// The instance.
    pub(super) instance: Arc<Instance>,
    /// The start of the request that returned this state.
    pub(super) seen: At,
}

impl KnownInstance {
    fn id(&self) -> &ProviderId {
        &self.instance.provider_id
    }
}

/// The cloud's answer about a node, without the instance, which is in the inventory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum KnownAnswer {
    /// The instance of this ID.
    Found(ProviderId),
    /// Any other.
    Other(LookupResult),
}

impl KnownAnswer {
    /// Returns the error in place of an answer.
    pub(crate) const fn error(&self) -> Option<&CloudError> {
        match self {
            Self::Other(Err(error)) => Some(error),
            _ => None,
        }
    }
}

/// Instances, sorted by provider ID.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<KnownInstance>", into = "Vec<KnownInstance>")]
struct SortedInstances {
    entries: Vec<KnownInstance>,
    ids: Index,
}

impl From<SortedInstances> for Vec<KnownInstance> {
    fn from(snapshot: SortedInstances) -> Self {
        snapshot.entries
    }
}

impl From<Vec<KnownInstance>> for SortedInstances {
    fn from(entries: Vec<KnownInstance>) -> Self {
        Self::new(entries)
    }
}

impl SortedInstances {
    fn new(mut entries: Vec<KnownInstance>) -> Self {
        entries.sort_by(|a, b| a.id().cmp(b.id()));
        let ids = Index::new(&entries);
        Self { entries, ids }
    }

    /// Returns the instance with this provider ID, in any of its spellings; `None` also if several
    /// claim it: the right one cannot be determined.
    fn get(&self, id: &str) -> Option<&KnownInstance> {
        let mut found = self.ids.find(&self.entries, id);
        found.next().filter(|_| found.next().is_none())
    }
}

/// The instances that lookups have found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Inventory {
    snapshot: SortedInstances,
    /// The start of the last refresh.
    refreshed: Option<At>,
}

impl Inventory {
    /// Applies the instances from a lookup that began at `at`.
    ///
    /// Each call costs a pass over the whole inventory: apply a batch at once. Unchanged
    /// instances keep their allocation.
    pub(super) fn update(&mut self, found: impl IntoIterator<Item = Instance>, at: At) {
        self.snapshot = SortedInstances::new(entries::update(&self.snapshot.entries, found, at));
    }

    /// Removes instances that the nodes of these names and IDs do not have: otherwise every instance that a lookup found would
    /// stay.
    pub(super) fn keep_those_of<'a>(
        &mut self,
        nodes: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        let (names, ids): (HashSet<&str>, HashSet<Option<&str>>) = nodes.unzip();
        self.prune(|instance| {
            let mut known = std::iter::once(&instance.provider_id).chain(&instance.other_ids);
            names.contains(&*instance.name) || known.any(|id| ids.contains(&Some(id.as_str())))
        });
    }

    fn prune(&mut self, is_needed: impl Fn(&Instance) -> bool) {
        let is_kept = |entry: &KnownInstance| is_needed(&entry.instance);
        if !self.snapshot.entries.iter().all(is_kept) {
            let mut entries = mem::take(&mut self.snapshot).entries;
            entries.retain(is_kept);
            self.snapshot = SortedInstances::new(entries);
        }
    }

    /// Records that a lookup of all nodes that began at `at` was answered.
    pub(super) fn refreshed(&mut self, at: At) {
        self.refreshed = Some(at);
    }

    /// Returns the instance with this provider ID, in any of its spellings; `None` also if two
    /// instances claim it.
    pub(super) fn get(&self, id: &str) -> Option<&KnownInstance> {
        self.snapshot.get(id)
    }

    /// Returns the instance with this main ID, even if other instances claim the ID.
    pub(super) fn found(&self, id: &ProviderId) -> Option<&KnownInstance> {
        let entries = &self.snapshot.entries;
        let place = entries.binary_search_by(|entry| entry.id().cmp(id)).ok()?;
        entries.get(place)
    }

    /// Returns the number of known instances.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.entries.len()
    }

    /// Returns the age of the last refresh; `None` before the first.
    pub(crate) fn age(&self, now: At) -> Option<Duration> {
        self.refreshed.map(|at| now.since(at))
    }
}

#[cfg(test)]
mod tests;
