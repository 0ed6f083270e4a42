//! Changes of nodes, and the beginning of a term.

use std::{collections::HashMap, sync::Arc};

use ccm_controller::machine::Door;
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};

use crate::{
    networks::BlockSizes,
    node_ipam::{
        ipam::HeldBlocks,
        machine::{Begin, Event, Machine},
        perform::Perform,
    },
};

/// A change of a node.
pub(crate) fn event(change: &Change<Node>) -> Event {
    match change {
        Change::Added(node) => new(node),
        Change::Updated { old, new } => {
            Event::Changed { before: Some(Arc::clone(old)), after: Arc::clone(new) }
        }
        Change::Deleted(node) => Event::Gone(Arc::clone(node)),
    }
}

fn new(node: &Arc<Node>) -> Event {
    Event::Changed { before: None, after: Arc::clone(node) }
}

/// Begins the term with the nodes in the store, which have been read in it.
pub(crate) fn begin(
    door: &Door<Machine>,
    perform: &Perform,
    held: Vec<HeldBlocks>,
    sizes: BlockSizes,
) {
    let tell = |event| drop(perform.perform(door.apply(event)));
    let nodes = perform.store.list();
    tell(Event::Begin(Begin { nodes: nodes.clone(), held, sizes }));
    // Changes that came after the list, and before the term began with it, were for nobody.
    let mut listed: HashMap<Name, Arc<Node>> =
        nodes.into_iter().map(|node| (Name::clone(&node.name), node)).collect();
    let now = perform.store.list();
    let is_other = |node: &&Arc<Node>| {
        let before = listed.get(&node.name);
        before.is_none_or(|before| !Arc::ptr_eq(before, node))
    };
    let changed: Vec<&Arc<Node>> = now.iter().filter(is_other).collect();
    for node in &now {
        if listed.get(&node.name).is_some_and(|before| before.uid == node.uid) {
            listed.remove(&node.name);
        }
    }
    for gone in listed.into_values() {
        let name = Name::clone(&gone.name);
        tell(Event::Gone(gone));
        if let Some(node) = perform.store.get(&name) {
            tell(new(&node));
        }
    }
    for node in changed {
        tell(new(node));
        // The informer may have told of what came after it: a change, its end, the next node of its name.
        let now = perform.store.get(&node.name);
        if now.as_ref().is_none_or(|now| now.uid != node.uid) {
            tell(Event::Gone(Arc::clone(node)));
        }
        now.iter().filter(|now| !Arc::ptr_eq(now, node)).for_each(|now| tell(new(now)));
    }
}
