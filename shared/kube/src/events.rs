//! Records events about objects without delaying other work.
//!
//! [`EventRecorder::record`] never waits: it puts the event on a bounded queue. One
//! task, [`EventWriter::run`], aggregates repeated events (`correlator`, by client-go's
//! rules) and writes the result through its own client (`delivery`).

mod correlator;
mod delivery;
mod object;
mod recent;
mod writer;

use ccm_metrics::{Counter, Every, Family, label, metrics};
use ccm_objects::ObjectRef;
use jiff::Timestamp;
use strum::{IntoStaticStr, VariantNames};
use tokio::sync::mpsc::{self, error::TrySendError};

pub use writer::EventWriter;

/// The capacity of the queue, as in client-go. An entry takes about 300 bytes.
const QUEUE: usize = 1000;

/// The longest message in bytes, the limit of `events.k8s.io`. Texts from clouds can be of
/// any length.
const MESSAGE_LIMIT: usize = 1024;

/// The type of an event, spelt as in the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
pub enum EventKind {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// A recorded event.
#[derive(Clone, Debug)]
struct Observed {
    /// `None` for the writer's own.
    component: Option<&'static str>,
    about: ObjectRef,
    kind: EventKind,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// Why an event was not written.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Dropped {
    /// The queue was full.
    QueueFull,
    /// There were too many events about this object.
    Spam,
    /// The API server refused it or was unreachable in several tries.
    Failed,
    /// The program ended before it was written.
    Shutdown,
    /// The program only observes.
    Observing,
}

label!(Dropped);

metrics! {
    /// `ccm_events_*`.
    pub struct EventMetrics {
        /// Events that were created or updated
        [ALPHA] ccm_events_sent => sent: Counter;
        /// Events that were dropped, by reason
        [ALPHA] ccm_events_dropped { reason } => dropped: Family<Counter, Dropped>,
            begin Every;
    }
}

impl EventMetrics {
    fn dropped(&self, reason: Dropped) {
        self.dropped.series(reason).inc();
    }
}

/// Records events. Clones share the queue.
#[derive(Clone)]
pub struct EventRecorder {
    /// `None` for a recorder that drops everything.
    queue: Option<mpsc::Sender<Observed>>,
    component: Option<&'static str>,
    metrics: EventMetrics,
}

impl EventRecorder {
    /// Returns a recorder that writes nothing and counts what it drops, for a program that only
    /// observes.
    pub fn muted(metrics: EventMetrics) -> Self {
        Self { queue: None, component: None, metrics }
    }

    /// Creates a recorder for this component (`source.component`), and the writer that must run for
    /// it.
    pub fn new(
        client: kube::Client,
        component: &str,
        metrics: EventMetrics,
    ) -> (Self, EventWriter) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let writer = EventWriter::new(client, component, waiting, metrics.clone());
        (Self { queue: Some(queue), component: None, metrics }, writer)
    }

    /// Returns the same recorder for another component of the program.
    #[must_use]
    pub fn for_component(&self, component: &'static str) -> Self {
        Self { component: Some(component), ..self.clone() }
    }

    /// Records an event. If the queue is full, the event is dropped and counted.
    pub fn record(
        &self,
        about: &ObjectRef,
        kind: EventKind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let mut message: String = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        tracing::debug!(object = about.kind, name = about.name, reason, text = message, "event");
        let Some(queue) = &self.queue else { return self.metrics.dropped(Dropped::Observing) };
        let at = ccm_base::clock::wall();
        let (component, about) = (self.component, about.clone());
        let observed = Observed { component, about, kind, reason, message, at };
        match queue.try_send(observed) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.metrics.dropped(Dropped::QueueFull),
            Err(TrySendError::Closed(_)) => self.metrics.dropped(Dropped::Shutdown),
        }
    }
}
