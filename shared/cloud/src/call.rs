//! The terms of one call to a cloud: how long it may take, who waits for it, and
//! the gate that every request passes.

use std::time::Duration;

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

/// How much of an instance the caller looks at. A hint: an answer may say more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// All of it.
    #[default]
    Everything,
    /// Its IDs and its name, and in a lookup also whether it runs. A provider that can
    /// spare requests by leaving the rest out should.
    Presence,
}

/// How a call is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The whole time the call may take, waiting for the limiter and retries included.
    pub timeout: Duration,
    /// Who waits for it.
    pub priority: Priority,
    /// What is wanted of an instance.
    pub detail: Detail,
}

impl Call {
    /// A call that somebody waits for.
    pub const fn waiting(timeout: Duration) -> Self {
        Self { timeout, priority: Priority::Waiting, detail: Detail::Everything }
    }

    /// A call of routine work.
    pub const fn routine(timeout: Duration) -> Self {
        Self { timeout, priority: Priority::Routine, detail: Detail::Everything }
    }

    /// The same call by a caller that only wants to know which instances there are.
    #[must_use]
    pub const fn for_presence(self) -> Self {
        Self { detail: Detail::Presence, ..self }
    }
}

/// What kind of request goes to the cloud: the label of its metrics and the choice
/// of its rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallClass {
    /// The cloud's service, for instance `compute`. Bounded: a constant of the provider.
    pub service: &'static str,
    /// The operation, for instance `list_instances`. Bounded likewise.
    pub operation: &'static str,
    /// Whether it changes something.
    pub write: bool,
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
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<(), CloudError>>;

    /// Reports how the request ended.
    fn report(&self, class: CallClass, report: CallReport);
}

/// A gate that lets everything through and keeps no count, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl CallGate for OpenGate {
    fn admit(&self, _: CallClass, _: Call) -> BoxFuture<'_, Result<(), CloudError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn report(&self, _: CallClass, _: CallReport) {}
}
