//! The nodes as the API server has them, kept by every replica: a standby is warm.

use ccm_kube::{
    informer::{Informer, InformerConfig, InformerMetrics, Trouble},
    store::{Change, Store},
};
use ccm_objects::Node;

use ccm_runtime::{
    health::{Scope, Verdict},
    metrics::Metrics,
    program::{Context, Program},
    rights::Right,
};

/// What [`watch_nodes`] needs.
pub const RIGHTS: [Right; 2] = [Right::new("list", "nodes"), Right::new("watch", "nodes")];

/// Keeps `store` current until the process ends, and calls `on_change` for every change,
/// which must not wait. Returns when the nodes have been listed once; until then `/readyz`
/// fails and says why they could not be.
pub async fn watch_nodes<P: Program>(
    context: &Context<P>,
    store: &Store<Node>,
    on_change: impl FnMut(Change<Node>) + Send + 'static,
) {
    let metrics = InformerMetrics::default();
    context.metrics.with(|registry| metrics.register(registry));
    let informer = Informer::new(
        context.clients.watch.clone(),
        InformerConfig::default(),
        store.clone(),
        Box::new(on_change),
        &metrics,
    );
    let (seen, trouble) = (store.clone(), informer.trouble());
    context.health.add("nodes", Scope::Readiness, move || verdict(&seen, &trouble));
    context.supervisor.spawn("node-informer", informer.run(context.token.clone()));
    store.wait_synced().await;
}

/// Registers what [`watch_nodes`] measures, with one series of everything: for the
/// reference of the metrics.
pub fn specimens(metrics: &Metrics) {
    InformerMetrics::new(metrics).specimens_of::<Node>();
}

fn verdict(nodes: &Store<Node>, trouble: &Trouble) -> Verdict {
    if nodes.is_synced() {
        return Verdict::Passed(format!("{} nodes watched", nodes.len()));
    }
    let why = trouble.last_error().map(|error| format!(": {error}")).unwrap_or_default();
    Verdict::Failed(format!("the nodes have not been listed yet{why}"))
}
