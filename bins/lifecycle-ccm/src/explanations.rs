//! Adds the nodes to the page `/explain`.

use std::sync::Arc;

use ccm_controller::{instances, machine::Door};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::program::{Context, Program};

use crate::machine::Machine;

/// Adds the nodes to the page.
pub(crate) fn add<P: Program>(context: &Context<P>, door: &Door<Machine>, store: &Store<Node>) {
    let (door, store, cloud) = (door.clone(), store.clone(), Arc::clone(&context.cloud));
    context.explanations.add(P::IDENTITY.binary, "Node", move |name| {
        let node = store.get(name);
        let why_left_out =
            |node: &Node, is_selected| instances::why_left_out(&*cloud, node, is_selected);
        door.read(|machine, now| machine.explain(node.as_deref(), &why_left_out, now))
    });
}
