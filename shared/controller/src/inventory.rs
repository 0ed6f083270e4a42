//! The last list of the fleet, so that routine work costs one list instead of a lookup per
//! node.
//!
//! The inventory confirms presence and shows changes; it never proves absence. An instance
//! can be missing from a list because the cloud failed briefly, a page was shifted, an
//! entry was malformed, or the instance is younger than the list. Only a lookup can prove
//! that an instance is gone.
//!
//! Readers get an immutable snapshot without a lock; every change replaces it.

mod diff;
mod index;
mod metrics;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ccm_cloud::{Fleet, Instance, ProviderId};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::index::Index;
use ccm_runtime::metrics::Metrics;

/// The differences between a new list of the fleet and the previous state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Instances that were not known.
    pub new: Vec<Arc<Instance>>,
    /// Instances that differ from the previous state, as they are now.
    pub changed: Vec<Arc<Instance>>,
    /// Instances that are not in the list, in their previous state. Missing does not mean
    /// gone: use [`ccm_cloud::Instances::lookup`].
    pub missing: Vec<Arc<Instance>>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty() && self.missing.is_empty()
    }
}

/// Two or more instances claim the same ID or name. The right one cannot be determined, so
/// none is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is used by {} entries of the cloud's list: {}", claimed_by.len(), join(claimed_by))]
pub struct Ambiguous {
    /// `provider ID` or `instance name`.
    pub what: &'static str,
    /// The ID or name.
    pub text: String,
    /// The provider IDs of the instances that claim it.
    pub claimed_by: Vec<ProviderId>,
}

fn join(ids: &[ProviderId]) -> String {
    ids.iter().map(ProviderId::as_str).collect::<Vec<_>>().join(", ")
}

/// One instance, and when it was last seen in this state.
#[derive(Clone, Debug)]
struct Entry {
    instance: Arc<Instance>,
    /// The start of the request that returned this state.
    seen: Instant,
}

impl Entry {
    fn id(&self) -> &ProviderId {
        &self.instance.provider_id
    }
}

/// An immutable state of the fleet.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Sorted by provider ID. An ID occurs twice if the cloud's list had two different
    /// entries for it.
    entries: Vec<Entry>,
    ids: Index,
    names: Index,
    listed: Option<Instant>,
    malformed: usize,
}

impl Snapshot {
    fn new(mut entries: Vec<Entry>, listed: Option<Instant>, malformed: usize) -> Self {
        entries.sort_by(|a, b| a.id().cmp(b.id()));
        let ids = Index::new(&entries, index::spellings);
        let names = Index::new(&entries, index::names);
        Self { entries, ids, names, listed, malformed }
    }

    /// The instance with this provider ID, in any of its spellings.
    pub fn get(&self, id: &str) -> Result<Option<Arc<Instance>>, Ambiguous> {
        one("provider ID", id, self.ids.find(&self.entries, index::spellings, id))
    }

    /// The instance with exactly this name.
    pub fn by_name(&self, name: &str) -> Result<Option<Arc<Instance>>, Ambiguous> {
        one("instance name", name, self.names.find(&self.entries, index::names, name))
    }

    /// The instances, sorted by provider ID.
    pub fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.entries.iter().map(|entry| &entry.instance)
    }

    /// The number of known instances.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no instance is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The start of the last applied list; `None` before the first.
    pub fn listed(&self) -> Option<Instant> {
        self.listed
    }

    /// The number of malformed entries in the last list.
    pub fn malformed(&self) -> usize {
        self.malformed
    }
}

/// The entry that was found; an error if there are several.
fn one<'a>(
    what: &'static str,
    text: &str,
    mut found: impl Iterator<Item = &'a Entry>,
) -> Result<Option<Arc<Instance>>, Ambiguous> {
    let Some(first) = found.next() else { return Ok(None) };
    let claimed_by: Vec<ProviderId> =
        std::iter::once(first).chain(found).map(|entry| entry.id().clone()).collect();
    if claimed_by.len() > 1 {
        return Err(Ambiguous { what, text: text.to_owned(), claimed_by });
    }
    Ok(Some(Arc::clone(&first.instance)))
}

/// The last list of the fleet. Clones share the inventory.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    /// Held while a new snapshot is built from the old one.
    changing: Mutex<()>,
}

impl Inventory {
    /// An empty inventory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Applies a list of the whole fleet that was requested at `at`.
    ///
    /// What [`Inventory::update`] learned after `at` is newer than the list and stays.
    /// Unchanged instances keep their allocation.
    pub fn apply(&self, fleet: Fleet, at: Instant) -> Changes {
        let _changing = self.shared.changing.lock();
        let old = self.snapshot();
        let (entries, changes) = diff::apply(&old.entries, fleet.instances, at);
        self.shared.snapshot.store(Arc::new(Snapshot::new(
            entries,
            Some(at),
            fleet.malformed.len(),
        )));
        changes
    }

    /// Applies the instances from a lookup that began at `at`. Returns those that differ from
    /// the previous state.
    ///
    /// Each call costs a pass over the whole inventory: apply a batch at once.
    pub fn update(
        &self,
        found: impl IntoIterator<Item = Instance>,
        at: Instant,
    ) -> Vec<Arc<Instance>> {
        let _changing = self.shared.changing.lock();
        let old = self.snapshot();
        let (entries, changed) = diff::update(&old.entries, found, at);
        self.shared.snapshot.store(Arc::new(Snapshot::new(entries, old.listed, old.malformed)));
        changed
    }

    /// Removes instances that are no longer needed. For programs that never list: without it,
    /// every instance that a lookup found would stay.
    pub fn prune(&self, is_needed: impl Fn(&Instance) -> bool) {
        let _changing = self.shared.changing.lock();
        let old = self.snapshot();
        let kept: Vec<Entry> =
            old.entries.iter().filter(|entry| is_needed(&entry.instance)).cloned().collect();
        if kept.len() < old.len() {
            self.shared.snapshot.store(Arc::new(Snapshot::new(kept, old.listed, old.malformed)));
        }
    }

    /// See [`Snapshot::get`].
    pub fn get(&self, id: &str) -> Result<Option<Arc<Instance>>, Ambiguous> {
        self.shared.snapshot.load().get(id)
    }

    /// The age of the last list; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.shared.snapshot.load().listed.map(|at| at.elapsed())
    }

    /// Registers `ccm_inventory_*`. Call it once per registry.
    pub fn register(&self, metrics: &Metrics) {
        let this = self.clone();
        metrics.collect(metrics::INVENTORY.collector(move || vec![(Vec::new(), this.clone())]));
    }
}

#[cfg(test)]
mod tests;
