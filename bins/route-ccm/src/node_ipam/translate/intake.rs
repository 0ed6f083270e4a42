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
            follow(node, |name| perform.store.get(name), tell);
        }
    }
    for node in changed {
        follow(Arc::clone(node), |name| perform.store.get(name), tell);
    }
}

/// Tells of a node, and of what the store has of its name then: the informer may have told of that before.
fn follow(mut node: Arc<Node>, get: impl Fn(&str) -> Option<Arc<Node>>, tell: impl Fn(Event)) {
    loop {
        tell(new(&node));
        let now = get(&node.name);
        if now.as_ref().is_none_or(|now| now.uid != node.uid) {
            tell(Event::Gone(Arc::clone(&node)));
        }
        match now {
            Some(now) if !Arc::ptr_eq(&now, &node) => node = now,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Arc};

    use super::*;

    fn node(uid: &str, version: &str) -> Arc<Node> {
        let (uid, resource_version) = (uid.into(), version.into());
        Arc::new(Node { name: "n".into(), uid, resource_version, ..Node::default() })
    }

    #[test]
    fn the_last_word_about_a_node_is_what_the_store_has() {
        let (old, new) = (node("a", "1"), node("b", "2"));
        for (then, expect) in [
            (vec![Some(&old)], "+a1"),
            (vec![None], "+a1 -a1"),
            (vec![Some(&new), Some(&new)], "+a1 -a1 +b2"),
            (vec![Some(&new), None], "+a1 -a1 +b2 -b2"),
        ] {
            let (then, told) = (RefCell::new(then.into_iter()), RefCell::new(Vec::new()));
            let get = |_: &str| then.borrow_mut().next().flatten().cloned();
            let tell = |event| {
                let (sign, node) = match event {
                    Event::Changed { after, .. } => ('+', after),
                    Event::Gone(node) => ('-', node),
                    _ => return,
                };
                told.borrow_mut().push(format!("{sign}{}{}", node.uid, node.resource_version));
            };
            follow(Arc::clone(&old), get, tell);
            assert_eq!(told.into_inner().join(" "), expect);
        }
    }
}
