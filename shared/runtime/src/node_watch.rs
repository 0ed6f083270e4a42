//! The nodes as the API server has them, kept by every replica: a standby is warm.

use ccm_kube::{
    informer::{Informer, InformerConfig, InformerMetrics},
    node::Node,
    store::{Change, Store},
};

use crate::{
    health::{Scope, Verdict},
    program::{Context, Program},
};

/// Keeps `store` current until the process ends, and calls `on_change` for every change,
/// which must not wait. `/readyz` fails until the nodes have been listed once.
pub fn watch_nodes<P: Program>(
    context: &Context<P>,
    store: &Store<Node>,
    on_change: impl FnMut(Change<Node>) + Send + 'static,
) {
    let seen = store.clone();
    context.health.add("nodes", Scope::Readiness, move || {
        if seen.is_synced() {
            Verdict::Passed(format!("{} nodes watched", seen.len()))
        } else {
            Verdict::Failed("the nodes have not been listed yet".to_owned())
        }
    });
    let metrics = InformerMetrics::default();
    context.metrics.with(|registry| metrics.register(registry));
    let informer = Informer::new(
        context.clients.watch.clone(),
        InformerConfig::default(),
        store.clone(),
        Box::new(on_change),
        &metrics,
    );
    context.supervisor.spawn("node-informer", informer.run(context.token.clone()));
}
