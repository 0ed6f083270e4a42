//! The parameters of one call to a cloud (its end, its urgency), the kind of a request, and the
//! gate that every request passes.

use std::{fmt, time::Duration};

use ccm_base::Instant;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::{CloudError, ErrorKind};

/// The urgency of a call. A limited budget is spent in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A user or a new node waits for the result.
    #[default]
    Waiting,
    /// Routine work: refresh, drift checks.
    Routine,
}

/// No call takes longer than this, even if its caller asks for more, because timers need a bound.
const LONGEST: Duration = Duration::from_hours(24);

/// The parameters of a call. Its time runs from the moment this value is made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When the whole call ends, rate limiting and retries included.
    pub end: Instant,
    /// The time that it had at the beginning, for messages.
    pub timeout: Duration,
    /// The urgency.
    pub priority: Priority,
    /// The term of leadership of a caller in another process, for writes. A caller in this
    /// process has its term checked, and sent, by the gate ([`Permit::term`]).
    pub term: Option<u64>,
}

impl Call {
    /// Creates a call that takes at most this long, from now on.
    pub fn new(timeout: Duration, priority: Priority) -> Self {
        let timeout = timeout.min(LONGEST);
        Self { end: Instant::now() + timeout, timeout, priority, term: None }
    }

    /// Returns an urgent call.
    pub fn waiting(timeout: Duration) -> Self {
        Self::new(timeout, Priority::Waiting)
    }

    /// Returns a routine call.
    pub fn routine(timeout: Duration) -> Self {
        Self::new(timeout, Priority::Routine)
    }

    /// Returns the same call, made in this term.
    #[must_use]
    pub fn in_term(mut self, term: Option<u64>) -> Self {
        self.term = term;
        self
    }

    /// Returns the error of what was not answered in its time.
    pub fn late(&self) -> CloudError {
        let what = format!("no answer within {} s", self.timeout.as_secs_f64());
        CloudError::new(ErrorKind::Timeout, what)
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

/// The answers to a batch as they arrive: the item's index in the request, and its answer. An item
/// without an answer within the time of the call gets its own error, which for a write says that it
/// may have taken effect.
pub type Answers<'a, T> = BoxStream<'a, (usize, Result<T, CloudError>)>;

/// The kind of a request to the cloud: it selects the metrics label and the rate limit, and
/// defines the effect of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallClass {
    /// The cloud's service, for instance `compute`. Bounded: a constant of the provider.
    pub service: &'static str,
    /// The operation, for instance `list_instances`. Also bounded.
    pub operation: &'static str,
    /// True if it changes anything in the cloud.
    pub write: bool,
    /// True if it may be repeated when the result of the first attempt is unknown. A request that
    /// creates something must not be repeated: the caller first checks whether the thing exists.
    pub repeatable: bool,
}

impl CallClass {
    /// Returns a request that changes nothing.
    pub const fn read(service: &'static str, operation: &'static str) -> Self {
        Self { service, operation, write: false, repeatable: true }
    }

    /// Returns an idempotent write: a replacement, a deletion by ID.
    pub const fn write(service: &'static str, operation: &'static str) -> Self {
        Self { service, operation, write: true, repeatable: true }
    }

    /// Returns a write that is not idempotent.
    pub const fn write_once(service: &'static str, operation: &'static str) -> Self {
        Self { repeatable: false, ..Self::write(service, operation) }
    }
}

/// The gate's permission to send a request. Keep it until the answer arrives, and end it with
/// [`Permit::finish`]: a process waits for its writes before it exits, and tracks them by their
/// permits. The permit of a write that is dropped otherwise stands for a write whose result is
/// unknown: the process waits until the end of its call.
#[must_use = "a request is under way for as long as its permit lives"]
#[derive(Default)]
pub struct Permit {
    /// The term of leadership that covers a write, sent to the cloud. It grows with each leader.
    /// `None` for reads, and without election.
    pub term: Option<u64>,
    abandoned: Option<Abandoned>,
}

/// Is called when no caller waits for the answer to a write any more.
type Abandoned = Box<dyn FnOnce() + Send + Sync>;

impl Permit {
    /// Returns a permit for a write in this term. `abandoned` lives as long as the request, and is
    /// called if the permit is dropped before the answer.
    pub fn for_write(term: Option<u64>, abandoned: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { term, abandoned: Some(Box::new(abandoned)) }
    }

    /// Ends the request: the cloud has answered, or the request was surely not sent.
    pub fn finish(mut self) {
        self.abandoned = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned.take() {
            abandoned();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("term", &self.term).finish_non_exhaustive()
    }
}

/// The result of one request.
#[derive(Clone, Copy, Debug)]
pub struct CallReport {
    /// `None` for success.
    pub error: Option<ErrorKind>,
    /// The delay that the cloud asked for.
    pub retry_after: Option<Duration>,
    /// The time from sending the request to the end of the answer, without the wait at the gate.
    pub took: Duration,
}

/// Every request to a cloud passes this gate, once per request on the wire, so that rate
/// limits hold and metrics match the cloud's own counts.
pub trait CallGate: Send + Sync {
    /// Waits until the request may be sent. Fails if it may not be sent within its time limit,
    /// or if the term of leadership does not cover it.
    ///
    /// The process waits for an admitted write until the write's time limit, even beyond the
    /// term: the sender must not abandon it earlier.
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>>;

    /// Reports how the request ended. The gate keeps a pause that the cloud asked for: until its
    /// end it does not admit requests of that service.
    fn report(&self, class: CallClass, report: CallReport);

    /// Reports the result of each item of one request for many items. `None` is a success. A failed
    /// item counts as a failure even if the request succeeded.
    fn items(&self, _class: CallClass, _results: &[Option<ErrorKind>]) {}
}

/// A gate that admits everything and records nothing, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl CallGate for OpenGate {
    fn admit(&self, _: CallClass, _: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        Box::pin(std::future::ready(Ok(Permit::default())))
    }

    fn report(&self, _: CallClass, _: CallReport) {}
}
