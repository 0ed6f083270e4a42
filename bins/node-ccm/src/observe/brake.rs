//! The brake over changes of Ready nodes: one wrong answer of the cloud must not reach the whole
//! fleet.

use std::sync::Arc;

use ccm_controller::{
    brake::Pause,
    guard::{Guard, Guarded},
    instances,
};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::program::{Context, Program};

use crate::{
    plan::{Plan, is_approved, is_protected},
    settings::NodeSettings,
};

/// The brake of this program.
pub(crate) fn guard<P: Program<Settings = NodeSettings>>(
    context: &Context<P>,
    store: &Store<Node>,
) -> Guard {
    let (store, cloud, settings) =
        (store.clone(), Arc::clone(&context.cloud), context.settings.clone());
    let selects = context.settings.clone();
    let counts = move |node: &&Arc<Node>| {
        is_protected(node)
            && selects.borrow().node_selector.matches(node)
            && instances::is_ours(&*cloud, node) == Some(true)
    };
    Guard::new(
        context,
        Guarded {
            objects: "Ready nodes",
            change: "the cloud returns another first InternalIP, address family, zone, region or type",
            population: Box::new(move || store.list().iter().filter(&counts).count()),
            budget: Box::new(move || settings.borrow().budget()),
        },
    )
}

/// Whether the plan of an initialised node may be executed now. The error is why not.
pub(crate) fn check(guard: &Guard, node: &Node, plan: &Plan) -> Result<(), Pause> {
    guard.note(&node.uid, plan.needs_brake(), node.is_ready());
    if !plan.needs_brake() {
        return Ok(());
    }
    guard.request(&node.uid, &node.labels, is_approved(node))
}
