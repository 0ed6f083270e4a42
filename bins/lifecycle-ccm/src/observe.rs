//! From the informer's nodes and the cloud's answers to the plain values of the court.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{Claim, CloudError, Fleet};
use ccm_kube::node::{Node, Shared as Name};
use ccm_runtime::inventory::{Inventory, Snapshot};
use tokio::time::Instant;

use crate::{
    controller::Nodes,
    court::{At, Listing, Subject},
};

/// The taint of a node that has not been initialised.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// By this annotation a person forbids the deletion of a node.
pub(crate) const PROTECTED: &str = "quartet.dev/deletion-protected";
/// By this annotation a person exempts a node from breaker and budget.
pub(crate) const APPROVED: &str = "quartet.dev/deletion-approved";

/// A node as the court sees it, given whose it is, whether it is selected, and its age.
pub(crate) fn subject(node: &Node, claim: Claim, selected: bool, age: Duration) -> Subject {
    let says = |key: &str| node.annotations.get(key).is_some_and(|value| &**value != "false");
    Subject {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        claim,
        has_id: node.provider_id.is_some(),
        selected,
        ready: node.is_ready(),
        deleting: node.deleting,
        uninitialised: node.taint(UNINITIALIZED).is_some(),
        age,
        protected: says(PROTECTED),
        approved: says(APPROVED),
    }
}

/// The shortest age that may be true: by the wall clock, which may be wrong, and by how
/// long this process knows a node that it has seen appear.
pub(crate) fn age(created: Option<Duration>, seen_for: Option<Duration>) -> Duration {
    let by_clock = created.unwrap_or_default();
    seen_for.map_or(by_clock, |seen| seen.min(by_clock))
}

/// Whether a change of a node may matter before the next pass.
pub(crate) fn wakes(old: &Node, new: &Node) -> bool {
    old.is_ready() != new.is_ready()
        || old.annotations != new.annotations
        || old.provider_id != new.provider_id
}

/// The list as the court is told of it.
pub(crate) fn listing(
    fleet: Result<Fleet, CloudError>,
    nodes: &Nodes,
    (asked, answered): (At, At),
) -> Listing {
    let fleet = match fleet {
        Ok(fleet) => fleet,
        Err(error) => return Listing::Failed(error),
    };
    let (instances, malformed) = (fleet.instances.len(), fleet.malformed.len());
    let inventory = Inventory::new();
    inventory.apply(fleet, Instant::now());
    let snapshot = inventory.snapshot();
    let missing: BTreeSet<Name> = nodes
        .iter()
        .filter(|(subject, node)| subject.in_reach() && !shows(&snapshot, node))
        .map(|(subject, _)| Arc::clone(&subject.name))
        .collect();
    Listing::Read { asked, answered, instances, malformed, missing }
}

/// Whether the list shows the node's instance. Two that claim to be it show it, too:
/// which one is meant cannot be known.
fn shows(snapshot: &Snapshot, node: &Node) -> bool {
    let found = match node.provider_id.as_deref() {
        Some(id) => snapshot.get(id),
        None => snapshot.by_name(&node.name),
    };
    !matches!(found, Ok(None))
}

#[cfg(test)]
mod tests;
