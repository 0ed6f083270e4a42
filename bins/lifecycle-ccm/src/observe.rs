//! From the informer's nodes and the cloud's answers to the plain values of the court.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{Claim, CloudError, Fleet};
use ccm_controller::{
    brake::approval::is_yes,
    inventory::{Inventory, Snapshot},
};
use ccm_objects::{Node, Shared as Name};
use tokio::time::Instant;

use crate::{
    controller::Nodes,
    court::{At, Listing, Subject},
};

/// By this annotation a person forbids the deletion of a node.
pub(crate) const PROTECTED: &str = "quartet.dev/deletion-protected";
/// By this annotation, if it says `yes` or `true`, a person exempts a node from breaker
/// and budget until it is Ready again.
pub(crate) const APPROVED: &str = "quartet.dev/deletion-approved";

/// A node as the court sees it, given whose it is, whether it is selected, and its age.
pub(crate) fn subject(node: &Node, claim: Claim, selected: bool, age: Duration) -> Subject {
    Subject {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        claim,
        has_id: node.provider_id.is_some(),
        selected,
        ready: node.is_ready(),
        deleting: node.deleting,
        uninitialised: node.is_uninitialised(),
        age,
        protected: node.annotations.get(PROTECTED).is_some_and(|value| &**value != "false"),
        approved: !node.is_ready() && is_approved(node),
    }
}

/// Whether a person has approved the node's deletion. A word that is not understood
/// approves nothing.
pub(crate) fn is_approved(node: &Node) -> bool {
    node.annotations.get(APPROVED).is_some_and(|value| is_yes(value))
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
        || old.labels != new.labels
        || old.taints != new.taints
}

/// The list as the court is told of it. `spell` says how the list spells a
/// provider ID.
pub(crate) fn listing(
    fleet: Result<Fleet, CloudError>,
    spell: impl Fn(&str) -> String,
    nodes: &Nodes,
    (asked, answered): (At, At),
) -> Listing {
    let fleet = match fleet {
        Ok(fleet) => fleet,
        Err(error) => return Listing::Failed(error),
    };
    let (instances, unreadable) = (fleet.instances.len(), fleet.malformed.clone());
    let inventory = Inventory::new();
    inventory.apply(fleet, Instant::now());
    let snapshot = inventory.snapshot();
    let missing: BTreeSet<Name> = nodes
        .iter()
        .filter(|(subject, node)| {
            let id = node.provider_id.as_deref().map(&spell);
            let (id, name) = (id.as_deref(), &*node.name);
            subject.in_reach() && !shows(&snapshot, name, id) && !may_be_in(&unreadable, name, id)
        })
        .map(|(subject, _)| Arc::clone(&subject.name))
        .collect();
    Listing::Read { asked, answered, instances, malformed: unreadable.len(), missing }
}

/// Whether the list shows the node's instance. Two that claim to be it show it, too:
/// which one is meant cannot be known.
fn shows(snapshot: &Snapshot, node: &str, id: Option<&str>) -> bool {
    let found = match id {
        Some(id) => snapshot.get(id),
        None => snapshot.by_name(node),
    };
    !matches!(found, Ok(None))
}

/// Whether an entry of the list that could not be understood may be about this node.
fn may_be_in(unreadable: &[String], node: &str, id: Option<&str>) -> bool {
    let id = id.unwrap_or(node);
    // The provider's own part of an ID, as some providers name an instance by it.
    let tail = id.rsplit(['/', ':']).next().filter(|tail| !tail.is_empty()).unwrap_or(id);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut words = unreadable.iter().flat_map(|line| line.split(|c| !is_word(c)));
    words.any(|word| [tail, node].contains(&word.trim_end_matches('.')))
}

#[cfg(test)]
mod tests;
