use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use ccm_cloud::{Fleet, ProviderId};
use ccm_objects::{Node, Shared as Name};

/// Returns the names of the nodes that a list of the fleet does not show. Nodes are compared by
/// provider ID, and by name if they do not have one. `spell` returns the list's spelling of a
/// provider ID. A node that an unreadable entry may be about counts as shown.
pub fn unlisted<'a>(
    fleet: &Fleet,
    spell: impl Fn(&str) -> String,
    nodes: impl Iterator<Item = &'a Arc<Node>>,
) -> BTreeSet<Name> {
    let ids = fleet.instances.iter().flat_map(|instance| {
        std::iter::once(&instance.provider_id).chain(&instance.other_ids).map(ProviderId::as_str)
    });
    let ids: HashSet<&str> = ids.collect();
    // Names of nodes are lower-case. Names in a cloud need not be.
    let names = fleet.instances.iter().map(|instance| instance.name.to_lowercase());
    let names: HashSet<String> = names.collect();
    let is_missing = |node: &&Arc<Node>| {
        let id = node.provider_id.as_deref().map(&spell);
        let is_shown = match &id {
            Some(id) => ids.contains(&**id),
            None => names.contains(&node.name.to_lowercase()),
        };
        !is_shown && !may_be_in(&fleet.malformed, &node.name, id.as_deref())
    };
    nodes.filter(is_missing).map(|node| Name::clone(&node.name)).collect()
}

/// Returns true if an unreadable entry of the list may be about this node.
fn may_be_in(unreadable: &[String], node: &str, id: Option<&str>) -> bool {
    let id = id.unwrap_or(node);
    // Names in a cloud need not be lower-case, as nodes' names are. Some providers name an instance
    // by their own part of its ID, so that part is compared too.
    let tail = id.rsplit(['/', ':']).next().filter(|tail| !tail.is_empty()).unwrap_or(id);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut words = unreadable.iter().flat_map(|line| line.split(|c| !is_word(c)));
    words.any(|word| {
        [tail, node].iter().any(|name| name.eq_ignore_ascii_case(word.trim_end_matches('.')))
    })
}

#[cfg(test)]
mod tests;
