//! The changes from a list or a lookup: pure functions over entries sorted by provider ID.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{Instance, ProviderId};
use tokio::time::Instant;

use super::{Changes, Entry};

/// The instances of each provider ID; more than one if the cloud contradicts itself.
type Groups = BTreeMap<ProviderId, Vec<Instance>>;

/// The entries after a list that was requested at `at`, and its changes.
pub(super) fn apply(old: &[Entry], listed: Vec<Instance>, at: Instant) -> (Vec<Entry>, Changes) {
    let mut groups = Groups::new();
    for instance in listed {
        let group = groups.entry(instance.provider_id.clone()).or_default();
        // Overlapping pages repeat an instance; only a difference is a contradiction.
        if !group.contains(&instance) {
            group.push(instance);
        }
    }
    let mut entries = Vec::with_capacity(groups.len());
    let mut changes = Changes::default();
    for known in old.chunk_by(|a, b| a.id() == b.id()) {
        let listed = known.first().and_then(|first| groups.remove(first.id())).unwrap_or_default();
        if known.iter().any(|entry| entry.seen > at) {
            entries.extend_from_slice(known);
        } else if listed.is_empty() {
            changes.missing.extend(known.iter().map(|entry| Arc::clone(&entry.instance)));
        } else if same(known, &listed) {
            keep(&mut entries, known, at);
        } else {
            take(&mut entries, &mut changes.changed, listed, at);
        }
    }
    for listed in groups.into_values() {
        take(&mut entries, &mut changes.new, listed, at);
    }
    (entries, changes)
}

/// The entries after a lookup that began at `at`, and the instances that changed.
pub(super) fn update(
    old: &[Entry],
    found: impl IntoIterator<Item = Instance>,
    at: Instant,
) -> (Vec<Entry>, Vec<Arc<Instance>>) {
    // If an instance was found for two nodes, the last answer is the newest.
    let mut groups: Groups =
        found.into_iter().map(|instance| (instance.provider_id.clone(), vec![instance])).collect();
    let mut entries = Vec::with_capacity(old.len() + groups.len());
    let mut changed = Vec::new();
    for known in old.chunk_by(|a, b| a.id() == b.id()) {
        match known.first().and_then(|first| groups.remove(first.id())) {
            Some(found) if same(known, &found) => keep(&mut entries, known, at),
            Some(found) if known.iter().all(|entry| entry.seen <= at) => {
                take(&mut entries, &mut changed, found, at);
            }
            _ => entries.extend_from_slice(known),
        }
    }
    for found in groups.into_values() {
        take(&mut entries, &mut changed, found, at);
    }
    (entries, changed)
}

fn same(old: &[Entry], new: &[Instance]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| *old.instance == *new)
}

/// Keeps the allocation of unchanged instances and updates when they were seen.
fn keep(entries: &mut Vec<Entry>, known: &[Entry], at: Instant) {
    let seen =
        |entry: &Entry| Entry { instance: Arc::clone(&entry.instance), seen: entry.seen.max(at) };
    entries.extend(known.iter().map(seen));
}

fn take(
    entries: &mut Vec<Entry>,
    changes: &mut Vec<Arc<Instance>>,
    instances: Vec<Instance>,
    at: Instant,
) {
    for instance in instances.into_iter().map(Arc::new) {
        changes.push(Arc::clone(&instance));
        entries.push(Entry { instance, seen: at });
    }
}
