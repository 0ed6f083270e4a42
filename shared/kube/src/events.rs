//! Events about objects, off the path of everything else.
//!
//! [`EventRecorder::record`] never waits: it puts the event on a bounded queue. One
//! task, [`EventWriter::run`], folds what repeats (`correlator`, by client-go's rules)
//! and writes the rest through a client of its own (`delivery`).

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

/// How many events may wait, as in client-go. An entry takes some 300 bytes.
const QUEUE: usize = 1000;

/// Longest message in bytes, the API's own limit for events of the newer kind. Texts
/// of clouds can be of any length.
const MESSAGE_LIMIT: usize = 1024;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Information.
    Normal,
    /// A problem.
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

/// An event as it was recorded.
#[derive(Clone, Debug)]
struct Observed {
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
    /// Too many were waiting.
    QueueFull,
    /// Too many about this object.
    Spam,
    /// The API server refused it or could not be reached in several tries.
    Failed,
    /// The program ended first.
    Shutdown,
}

label!(Dropped);

metrics! {
    /// `ccm_events_*`.
    pub struct EventMetrics {
        /// Events created or counted up
        [ALPHA] ccm_events_sent => sent: Counter;
        /// Events that were not written, by reason; none of them delays work
        [ALPHA] ccm_events_dropped { reason } => dropped: Family<Counter, Dropped>,
            begin Every;
    }
}

impl EventMetrics {
    fn dropped(&self, reason: Dropped) {
        self.dropped.of(reason).inc();
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
    pub fn new(
        client: kube::Client,
        component: &str,
        metrics: EventMetrics,
    ) -> (Self, EventWriter) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let writer = EventWriter::new(client, component, waiting, metrics.clone());
        (Self { queue, metrics }, writer)
    }

    /// Records an event. When too many wait already it is dropped and counted.
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
        let at = ccm_base::clock::wall();
        let observed = Observed { about: about.clone(), kind, reason, message, at };
        match self.queue.try_send(observed) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.metrics.dropped(Dropped::QueueFull),
            Err(TrySendError::Closed(_)) => self.metrics.dropped(Dropped::Shutdown),
        }
    }
}
