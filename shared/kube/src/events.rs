//! Events about objects, off the path of everything else.
//!
//! [`EventRecorder::record`] never waits: it puts the event on a bounded queue. One
//! task, [`EventWriter::run`], folds what repeats ([`Correlator`], by client-go's rules)
//! and writes the rest through a client of its own.

mod correlator;
mod writer;

use std::sync::Arc;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::mpsc;

pub use correlator::{Correlator, Observed, Verdict};
pub use writer::EventWriter;

/// How many events may wait. A scale-up of some thousand nodes brings one for each;
/// an entry takes some 300 bytes.
const QUEUE: usize = 8192;

/// What an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// For instance `v1`.
    pub api_version: &'static str,
    /// For instance `Node`.
    pub kind: &'static str,
    /// `None` for objects of the whole cluster; their events go to `default`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was looked at.
    pub resource_version: String,
}

/// Whether somebody should worry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something is not as it should be.
    Warning,
}

impl EventKind {
    /// The spelling of the Kubernetes API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Why an event was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Dropped {
    /// Too many were waiting.
    QueueFull,
    /// Too many about this object.
    Spam,
    /// The API server refused it or did not answer in several tries.
    Failed,
    /// The program ended first.
    Shutdown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabel {
    reason: Dropped,
}

/// `ccm_events_*`.
#[derive(Clone, Default)]
pub struct EventMetrics {
    written: Counter,
    dropped: Family<DroppedLabel, Counter>,
}

impl EventMetrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("ccm_events_written", "[ALPHA] Events created or counted up", self.written.clone());
        registry.register("ccm_events_dropped", "[ALPHA] Events that were not written, by reason", self.dropped.clone());
    }

    fn dropped(&self, reason: Dropped) {
        self.dropped.get_or_create(&DroppedLabel { reason }).inc();
    }
}

/// Records events. Clones share the queue.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Observed>,
    metrics: EventMetrics,
}

impl EventRecorder {
    /// A recorder for this component (`source.component`), and the writer to run beside it.
    pub fn new(client: kube::Client, component: &str, metrics: EventMetrics) -> (Self, EventWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer = EventWriter::new(client, component, receiver, metrics.clone());
        (Self { queue: sender, metrics }, writer)
    }

    /// A recorder whose events somebody else takes from the channel, for tests.
    pub fn to_channel(capacity: usize) -> (Self, mpsc::Receiver<Observed>) {
        let (queue, receiver) = mpsc::channel(capacity);
        (Self { queue, metrics: EventMetrics::default() }, receiver)
    }

    /// Records an event. When too many wait already it is dropped and counted.
    pub fn record(&self, about: &ObjectRef, kind: EventKind, reason: &'static str, message: impl Into<String>) {
        let message: String = message.into();
        tracing::debug!(object = about.kind, name = about.name, reason, message, "event");
        let observed = Observed { about: Arc::new(about.clone()), kind, reason, message };
        if self.queue.try_send(observed).is_err() {
            self.metrics.dropped(Dropped::QueueFull);
        }
    }
}
