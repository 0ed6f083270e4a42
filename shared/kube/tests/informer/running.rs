//! A running informer.

use std::{sync::Arc, time::Duration};

use ccm_kube::{
    informer::{Freshness, Informer, InformerMetrics, WatchState},
    store::{Change, Store},
};
use ccm_objects::Node;
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// A running informer, and the changes it reported.
pub struct Running {
    pub store: Store<Node>,
    pub stop: CancellationToken,
    pub state: WatchState,
    pub freshness: Freshness,
    reported: Arc<Mutex<Vec<String>>>,
    registry: Registry,
    tasks: JoinSet<()>,
}

impl Running {
    pub fn start(server: &Server) -> Self {
        Self::with(server, false)
    }

    /// Returns an informer that streams its lists.
    pub fn streaming(server: &Server) -> Self {
        Self::with(server, true)
    }

    fn with(server: &Server, streams: bool) -> Self {
        let (store, stop) = (Store::new(), CancellationToken::new());
        let reported = Arc::new(Mutex::new(Vec::new()));
        let (metrics, mut registry) = (InformerMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let listener = Arc::clone(&reported);
        let on_change = Box::new(move |change| listener.lock().push(short(change)));
        let informer =
            Informer::new(server.client(), store.clone(), on_change, &metrics).streaming(streams);
        let (state, freshness) = (informer.state(), informer.freshness());
        let mut tasks = JoinSet::new();
        tasks.spawn(informer.run(stop.clone()));
        Self { store, stop, state, freshness, reported, registry, tasks }
    }

    /// Starts and waits until the watch works.
    pub async fn synced(server: &Server) -> Self {
        let running = Self::start(server);
        running.works().await;
        running.reported();
        server.requests();
        running
    }

    /// Waits until the watch has shown that it works.
    pub async fn works(&self) {
        while self.state.failure().is_some() {
            self.a_moment().await;
        }
    }

    /// Runs everything that needs no waiting.
    pub async fn a_moment(&self) {
        sleep(Duration::from_millis(50)).await;
    }

    /// Returns the changes reported since the last call.
    pub fn reported(&self) -> Vec<String> {
        std::mem::take(&mut self.reported.lock())
    }

    /// Returns the value of a metric, by the beginning of its line.
    pub fn metric(&self, line: &str) -> Option<f64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let found = text.lines().find_map(|each| each.strip_prefix(line)?.strip_prefix(' '));
        found.map(|value| value.parse().unwrap())
    }

    pub fn relists(&self) -> f64 {
        self.metric(r#"ccm_informer_relists_total{resource="nodes"}"#).unwrap_or_default()
    }

    pub fn errors(&self, reason: &str) -> f64 {
        let line = format!(r#"ccm_informer_errors_total{{resource="nodes",reason="{reason}"}}"#);
        self.metric(&line).unwrap_or_default()
    }

    /// Waits for the informer's end after `stop`.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

/// Returns a change in short: `+` added, `-` deleted, `>` updated, with the label.
fn short(change: Change<Node>) -> String {
    let label = |node: &Node| node.labels.get("label").map_or("", |label| label).to_owned();
    match change {
        Change::Added(node) => format!("+{}:{}", node.name, label(&node)),
        Change::Deleted(node) => format!("-{}:{}", node.name, label(&node)),
        Change::Updated { old, new } => format!("{}:{}>{}", new.name, label(&old), label(&new)),
    }
}
