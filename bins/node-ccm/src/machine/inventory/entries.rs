//! The entries after a lookup: a pure function over entries sorted by provider ID.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Instance, ProviderId};

use super::KnownInstance;

/// Returns the entries after a lookup that began at `at`.
pub(super) fn update(
    old: &[KnownInstance],
    found: impl IntoIterator<Item = Instance>,
    at: At,
) -> Vec<KnownInstance> {
    // If an instance was found for two nodes, the last answer is the newest.
    let mut found: BTreeMap<ProviderId, Instance> =
        found.into_iter().map(|instance| (instance.provider_id.clone(), instance)).collect();
    let mut entries = Vec::with_capacity(old.len() + found.len());
    for entry in old {
        entries.push(match found.remove(entry.id()) {
            Some(same) if *entry.instance == same => {
                KnownInstance { instance: Arc::clone(&entry.instance), seen: entry.seen.max(at) }
            }
            Some(newer) if entry.seen <= at => known(newer, at),
            _ => entry.clone(),
        });
    }
    entries.extend(found.into_values().map(|instance| known(instance, at)));
    entries
}

fn known(instance: Instance, seen: At) -> KnownInstance {
    KnownInstance { instance: Arc::new(instance), seen }
}
