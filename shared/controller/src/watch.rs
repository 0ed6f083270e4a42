//! Watches objects on every replica, so that a standby has a warm cache.

use std::{borrow::Cow, sync::Arc, time::Duration};

use ccm_kube::{
    informer::{Freshness, Informer, InformerMetrics, WatchState},
    store::{Change, Store, Stored},
};
use ccm_runtime::{
    health::{Condition, Health, Scope, Verdict},
    leadership::Eligibility,
    metrics::Metrics,
    program::{Context, Program},
    rights::Right,
    supervisor::Supervisor,
};
use futures::future::join_all;
use kube::Resource as _;
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::kind::{plural, right};

/// Returns the rights that [`Watches::watch`] needs for this kind.
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
    eligibility: Eligibility,
    supervisor: Supervisor,
    token: CancellationToken,
    metrics: InformerMetrics,
    streams: bool,
}

impl Watches {
    /// Watches with the program's clients, until the process ends.
    pub fn new<P: Program>(context: &Context<P>) -> Self {
        Self {
            client: context.clients.watch.clone(),
            health: context.health.clone(),
            eligibility: context.eligibility.clone(),
            supervisor: context.supervisor.clone(),
            token: context.token.clone(),
            metrics: metrics(&context.metrics),
            streams: context.common.borrow().kube.streams_lists,
        }
    }

    /// Keeps `store` current and calls `on_change` for every change; it must not block. Returns
    /// after the first complete list. While the watch does not work, `/readyz` fails and shows why,
    /// and this replica does not become the leader. The returned value can prove that the store is
    /// not older than a moment.
    pub async fn watch<K: Stored>(
        &self,
        store: &Store<K>,
        on_change: impl FnMut(Change<K>) + Send + 'static,
    ) -> Freshness {
        let informer =
            Informer::new(self.client.clone(), store.clone(), Box::new(on_change), &self.metrics)
                .streaming(self.streams);
        let (seen, state, freshness) = (store.clone(), informer.state(), informer.freshness());
        self.eligibility.require(state.clone());
        self.health.add(plural::<K>(), Scope::Readiness, move || verdict(&seen, &state));
        let task = format!("{}-informer", K::Wire::kind(&()).to_ascii_lowercase());
        self.supervisor.spawn(task, informer.run(self.token.clone()));
        store.wait_synced().await;
        freshness
    }
}

/// How long a new leader waits before it logs what it waits for, and the pause before the next such
/// line.
const LATE: Duration = Duration::from_secs(10);
const REPEAT: Duration = Duration::from_mins(1);

/// The stores that must be current before a new leader plans for the first time: the store of a
/// standby is only as new as the last event of its watch. Clones share them.
#[derive(Clone)]
pub struct Stores {
    line: Condition,
    proofs: Arc<[Freshness]>,
    /// It is set once, because a process leads only once.
    proven: Arc<OnceCell<()>>,
}

impl Stores {
    /// Creates the stores of these watches, with their own line on `/readyz?verbose`.
    pub fn new<P: Program>(
        context: &Context<P>,
        proofs: impl IntoIterator<Item = Freshness>,
    ) -> Self {
        Self::with(&context.health, proofs)
    }

    fn with(health: &Health, proofs: impl IntoIterator<Item = Freshness>) -> Self {
        let line = health.condition("stores", Scope::Information, "");
        line.pass("not proven to be current here: this replica does not lead");
        Self { line, proofs: proofs.into_iter().collect(), proven: Arc::default() }
    }

    /// Waits until the stores hold everything that the API server had at the first call, however
    /// long that takes: the leader cannot plan earlier. `/readyz?verbose` shows which stores are
    /// missing.
    pub async fn current(&self) {
        self.proven.get_or_init(|| self.prove()).await;
    }

    /// Runs this work of a leader as soon as the stores are current. Does not run it if the token
    /// is cancelled before.
    pub async fn before(self, work: impl Future<Output = ()>, token: CancellationToken) {
        if token.run_until_cancelled(self.current()).await.is_some() {
            work.await;
        }
    }

    async fn prove(&self) {
        let started = Instant::now();
        self.line.pass("compared with the API server before the first plan");
        let proof = |proof: Freshness| async move {
            let mut current = std::pin::pin!(proof.current());
            let mut wait = LATE;
            while timeout(wait, &mut current).await.is_err() {
                wait = REPEAT;
                let (lack, seconds) = (proof.lack(), started.elapsed().as_secs());
                let line = format!(
                    "this leader has planned nothing for {seconds} s: the API server has not shown yet that the store is current: {lack}"
                );
                tracing::warn!("{line}");
                self.line.fail(line);
            }
        };
        join_all(self.proofs.iter().cloned().map(proof)).await;
        self.line.pass("current when this replica began to lead");
    }
}

fn verdict<K: Stored>(store: &Store<K>, state: &WatchState) -> Verdict {
    let kind: Cow<'_, str> = plural::<K>();
    if !store.is_synced() {
        let why = state.last_error().map(|error| format!(": {error}")).unwrap_or_default();
        return Verdict::Failed(format!("the {kind} have not been listed yet{why}"));
    }
    match state.failure() {
        None => Verdict::Passed(format!("{} {kind} watched", store.len())),
        Some(failed) => Verdict::Failed(failed.to_string()),
    }
}

#[cfg(test)]
mod tests;
