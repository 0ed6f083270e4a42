//! Changes of nodes, and the beginning of a term.

use std::sync::Arc;

use ccm_controller::machine::{Door, log_unexpected};
use ccm_kube::store::Change;
use ccm_objects::Node;

use crate::{
    networks::BlockSizes,
    node_ipam::{
        ipam::HeldBlocks,
        machine::{Begin, Event, Machine},
        perform::Performer,
    },
};

/// Returns the event for a change of a node.
pub(crate) fn event(change: &Change<Node>) -> Event {
    match change {
        Change::Added(node) => Event::Changed { before: None, after: Arc::clone(node) },
        Change::Updated { old, new } => {
            Event::Changed { before: Some(Arc::clone(old)), after: Arc::clone(new) }
        }
        Change::Deleted(node) => Event::Gone(Arc::clone(node)),
    }
}

/// Begins the term with the nodes in the store, which have been read in it. The store tells of a change after it has
/// made it: what the list does not have yet is applied after the list.
pub(crate) fn begin(
    door: &Door<Machine>,
    performer: &Performer,
    held: Vec<HeldBlocks>,
    sizes: BlockSizes,
) {
    let list = || Event::Begin(Begin { nodes: performer.store.list(), held, sizes });
    performer.perform(door.apply_made(list)).iter().for_each(log_unexpected);
}
