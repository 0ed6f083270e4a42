//! Watches objects on every replica, so that a standby has a warm cache.

use std::borrow::Cow;

use ccm_kube::{
    informer::{Informer, InformerMetrics, Trouble},
    store::{Change, Store, Stored},
};
use ccm_runtime::{
    health::{Health, Scope, Verdict},
    metrics::Metrics,
    program::{Context, Program},
    rights::Right,
    supervisor::Supervisor,
};
use kube::Resource as _;
use tokio_util::sync::CancellationToken;

use crate::kind::{plural, right};

/// The rights that [`Watches::watch`] needs for this kind.
pub fn rights<K: Stored>() -> [Right; 2] {
    [right::<K>("list", ""), right::<K>("watch", "")]
}

/// Registers the informers' metrics. Call it once per registry.
pub fn metrics(metrics: &Metrics) -> InformerMetrics {
    InformerMetrics::new(metrics)
}

/// The watches of a process, of any number of kinds. Create it once: it registers the
/// metrics that they share.
pub struct Watches {
    client: kube::Client,
    health: Health,
    supervisor: Supervisor,
    token: CancellationToken,
    metrics: InformerMetrics,
}

impl Watches {
    /// Watches with the program's clients, until the process ends.
    pub fn new<P: Program>(context: &Context<P>) -> Self {
        Self {
            client: context.clients.watch.clone(),
            health: context.health.clone(),
            supervisor: context.supervisor.clone(),
            token: context.token.clone(),
            metrics: metrics(&context.metrics),
        }
    }

    /// Keeps `store` current and calls `on_change` for every change; it must not block. Returns
    /// after the first complete list; until then `/readyz` fails and shows the last error.
    pub async fn watch<K: Stored>(
        &self,
        store: &Store<K>,
        on_change: impl FnMut(Change<K>) + Send + 'static,
    ) {
        let informer =
            Informer::new(self.client.clone(), store.clone(), Box::new(on_change), &self.metrics);
        let (seen, trouble) = (store.clone(), informer.trouble());
        self.health.add(plural::<K>(), Scope::Readiness, move || verdict(&seen, &trouble));
        let task = format!("{}-informer", K::Wire::kind(&()).to_ascii_lowercase());
        self.supervisor.spawn(task, informer.run(self.token.clone()));
        store.wait_synced().await;
    }
}

fn verdict<K: Stored>(store: &Store<K>, trouble: &Trouble) -> Verdict {
    let kind: Cow<'_, str> = plural::<K>();
    if store.is_synced() {
        return Verdict::Passed(format!("{} {kind} watched", store.len()));
    }
    let why = trouble.last_error().map(|error| format!(": {error}")).unwrap_or_default();
    Verdict::Failed(format!("the {kind} have not been listed yet{why}"))
}

#[cfg(test)]
mod tests;
