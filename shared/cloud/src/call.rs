//! The terms of one call to a cloud (how long it may take, who waits for it), what a
//! request does there, and the gate that every request passes.

use std::{any::Any, fmt, time::Duration};

use futures::future::BoxFuture;

use crate::{CloudError, ErrorKind};

/// Who waits for a call. A budget that runs short is spent in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A user or a new node waits for it.
    #[default]
    Waiting,
    /// Routine work: refresh, drift checks.
    Routine,
}

/// How a call is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The whole time the call may take, waiting for the limiter and retries included.
    pub timeout: Duration,
    /// Who waits for it.
    pub priority: Priority,
}

impl Call {
    /// A call that somebody waits for.
    pub const fn waiting(timeout: Duration) -> Self {
        Self { timeout, priority: Priority::Waiting }
    }

    /// A call of routine work.
    pub const fn routine(timeout: Duration) -> Self {
        Self { timeout, priority: Priority::Routine }
    }
}

/// What kind of request goes to the cloud: the label of its metrics, the choice of its
/// rate limit, and what it does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallClass {
    /// The cloud's service, for instance `compute`. Bounded: a constant of the provider.
    pub service: &'static str,
    /// The operation, for instance `list_instances`. Bounded likewise.
    pub operation: &'static str,
    /// Whether it changes something.
    pub write: bool,
    /// Whether it may be sent again when nothing is known of the first time. What creates
    /// something may not: first ask what is there.
    pub repeatable: bool,
}

impl CallClass {
    /// A request that changes nothing.
    pub const fn read(service: &'static str, operation: &'static str) -> Self {
        Self { service, operation, write: false, repeatable: true }
    }

    /// A request that changes something, and sent twice changes it once: a replacement, a
    /// deletion by ID.
    pub const fn write(service: &'static str, operation: &'static str) -> Self {
        Self { service, operation, write: true, repeatable: true }
    }

    /// A request that changes something each time it is sent.
    pub const fn write_once(service: &'static str, operation: &'static str) -> Self {
        Self { repeatable: false, ..Self::write(service, operation) }
    }
}

/// The gate's word that a request may be sent. Keep it until the answer is there or is not
/// waited for any longer: a process waits for its writes before it ends, and this is how
/// it knows of them.
#[must_use = "a request is under way for as long as its permit lives"]
#[derive(Default)]
pub struct Permit {
    /// The term of leadership that covers a write, for the cloud to see. It grows with each
    /// leader. None for reads, and where there is no election.
    pub term: Option<u64>,
    /// What lives as long as the request.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl Permit {
    /// A permit for a write in this term, which keeps `held` for as long as it lives.
    pub fn for_write(term: Option<u64>, held: impl Any + Send + Sync) -> Self {
        Self { term, _held: Some(Box::new(held)) }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("term", &self.term).finish_non_exhaustive()
    }
}

/// How one request ended.
#[derive(Clone, Copy, Debug)]
pub struct CallReport {
    /// `None` for success.
    pub error: Option<ErrorKind>,
    /// The wait that the cloud asked for.
    pub retry_after: Option<Duration>,
    /// From sending to the end of the answer, waiting for the gate excluded.
    pub took: Duration,
}

/// Every request to a cloud passes this gate, once per request on the wire, so that
/// rate limits hold and metrics count what the cloud counts.
pub trait CallGate: Send + Sync {
    /// Waits until the request may be sent. An error means that it may not be sent
    /// within its time, or that the term of leadership does not cover it.
    ///
    /// A write that was admitted is waited for until its time is over, even beyond the
    /// term: whoever sends it does not give it up earlier.
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>>;

    /// Reports how the request ended.
    fn report(&self, class: CallClass, report: CallReport);
}

/// A gate that lets everything through and keeps no count, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl CallGate for OpenGate {
    fn admit(&self, _: CallClass, _: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        Box::pin(std::future::ready(Ok(Permit::default())))
    }

    fn report(&self, _: CallClass, _: CallReport) {}
}
