//! What the last lookups have found, so that routine work costs no further ones.
//!
//! It never proves absence: an instance can be missing because the cloud failed briefly, an entry
//! was malformed, or the instance is younger. Only a lookup can prove that an instance is gone.
//!
//! Readers get an immutable snapshot without a lock; every change replaces it.

mod entries;
mod index;
mod metrics;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use ccm_cloud::{Call, Cloud, CloudError, Detail, Instance, Lookup, LookupResult, ProviderId};
use ccm_objects::Node;
use ccm_runtime::metrics::Metrics;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::index::Index;
use crate::{instances, lookups::SizedLookups};

/// One instance, and when it was last seen in this state.
#[derive(Clone, Debug)]
pub struct Known {
    /// The instance.
    pub instance: Arc<Instance>,
    /// The start of the request that returned this state.
    pub seen: Instant,
}

impl Known {
    fn id(&self) -> &ProviderId {
        &self.instance.provider_id
    }
}

/// The cloud's answer about a node, without the instance, which the inventory has.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The instance of this ID.
    Found(ProviderId),
    /// Any other.
    Other(LookupResult),
}

impl Answer {
    /// Why there is no answer.
    pub const fn error(&self) -> Option<&CloudError> {
        match self {
            Self::Other(Err(error)) => Some(error),
            _ => None,
        }
    }
}

/// An immutable set of instances, sorted by provider ID.
#[derive(Debug, Default)]
struct Snapshot {
    entries: Vec<Known>,
    ids: Index,
}

impl Snapshot {
    fn new(mut entries: Vec<Known>) -> Self {
        entries.sort_by(|a, b| a.id().cmp(b.id()));
        let ids = Index::new(&entries);
        Self { entries, ids }
    }

    /// The instance with this provider ID, in any of its spellings; `None` also if several claim
    /// it: the right one cannot be determined.
    fn get(&self, id: &str) -> Option<&Known> {
        let mut found = self.ids.find(&self.entries, id);
        found.next().filter(|_| found.next().is_none())
    }
}

/// The instances that lookups have found. Clones share the inventory.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    /// The start of the last refresh.
    refreshed: Mutex<Option<Instant>>,
    /// Held while a new snapshot is built from the old one.
    changing: Mutex<()>,
}

/// Registers `ccm_inventory_*`, for the metrics reference.
pub fn specimens(metrics: &Metrics) {
    let inventory = Inventory::new();
    inventory.register(metrics);
    // The age is unknown before the first refresh.
    inventory.refreshed(Instant::now());
}

impl Inventory {
    /// An empty inventory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the instances from a lookup that began at `at`.
    ///
    /// Each call costs a pass over the whole inventory: apply a batch at once. Unchanged
    /// instances keep their allocation.
    pub fn update(&self, found: impl IntoIterator<Item = Instance>, at: Instant) {
        let _changing = self.shared.changing.lock();
        let entries = entries::update(&self.shared.snapshot.load().entries, found, at);
        self.shared.snapshot.store(Arc::new(Snapshot::new(entries)));
    }

    /// Looks up all of these nodes and keeps what is found. `answered` hears each answer of the
    /// cloud. Returns exactly one for each node.
    pub async fn look_up(
        &self,
        nodes: &[Arc<Node>],
        lookups: &SizedLookups,
        call: impl Fn() -> Call,
        answered: impl Fn(&LookupResult),
    ) -> Vec<Answer> {
        let mut answers: BTreeMap<usize, Answer> = BTreeMap::new();
        let take = |started, part: Vec<(usize, LookupResult)>| {
            let mut found: Vec<Instance> = Vec::new();
            for (at, answer) in part {
                answered(&answer);
                let answer = match answer {
                    Ok(Lookup::Found(instance)) => {
                        let id = instance.provider_id.clone();
                        found.push(*instance);
                        Answer::Found(id)
                    }
                    other => Answer::Other(other),
                };
                answers.insert(at, answer);
            }
            self.update(found, started);
        };
        let late = lookups.ask_all(nodes, Detail::Everything, call, take).await;
        answers.extend(late.into_iter().map(|(at, answer)| (at, Answer::Other(answer))));
        answers.into_values().collect()
    }

    /// Removes instances of none of these nodes: otherwise every instance that a lookup found would
    /// stay.
    pub fn keep_those_of(&self, cloud: &dyn Cloud, nodes: &[Arc<Node>]) {
        let ids: HashSet<_> =
            nodes.iter().filter_map(|node| instances::canonical_id(cloud, node)).collect();
        let names: HashSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        self.prune(|instance| {
            let mut known = std::iter::once(&instance.provider_id).chain(&instance.other_ids);
            names.contains(&*instance.name) || known.any(|id| ids.contains(id.as_str()))
        });
    }

    fn prune(&self, is_needed: impl Fn(&Instance) -> bool) {
        let _changing = self.shared.changing.lock();
        let old = self.shared.snapshot.load_full();
        let kept: Vec<Known> =
            old.entries.iter().filter(|entry| is_needed(&entry.instance)).cloned().collect();
        if kept.len() < old.entries.len() {
            self.shared.snapshot.store(Arc::new(Snapshot::new(kept)));
        }
    }

    /// Notes that a lookup of all nodes, which began at `at`, was answered.
    pub fn refreshed(&self, at: Instant) {
        *self.shared.refreshed.lock() = Some(at);
    }

    /// The instance with this provider ID, in any of its spellings; `None` also if two instances
    /// claim it.
    pub fn get(&self, id: &str) -> Option<Known> {
        self.shared.snapshot.load().get(id).cloned()
    }

    /// The instance of this main ID, whatever other instances claim it.
    pub fn found(&self, id: &ProviderId) -> Option<Arc<Instance>> {
        let snapshot = self.shared.snapshot.load();
        let place = snapshot.entries.binary_search_by(|entry| entry.id().cmp(id)).ok()?;
        snapshot.entries.get(place).map(|entry| Arc::clone(&entry.instance))
    }

    /// The number of known instances.
    pub fn len(&self) -> usize {
        self.shared.snapshot.load().entries.len()
    }

    /// Whether no instance is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The age of the last refresh; `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.shared.refreshed.lock().map(|at| at.elapsed())
    }

    /// Registers `ccm_inventory_*`. Call it once per registry.
    pub fn register(&self, metrics: &Metrics) {
        let this = self.clone();
        metrics.collect(metrics::INVENTORY.collector(move || vec![(Vec::new(), this.clone())]));
    }
}

#[cfg(test)]
mod tests;
