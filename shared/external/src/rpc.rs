//! One call on the wire: through the gate, with a deadline and typed errors.

use std::{error::Error, sync::Arc, time::Duration};

use ccm_base::message::{self, LONGEST_LINE, one_line};
use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind, Permit};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Response, Status};

use super::{
    answers::error_of_all,
    connection::Connection,
    metered::Channel,
    proto::{instances_client::InstancesClient, provider_client::ProviderClient},
    status,
    weight::{Budget, Refused},
};

/// The shared inputs of all calls.
pub struct Wire {
    pub connection: Connection,
    pub gate: Arc<dyn CallGate>,
}

/// The parameters of one call on the wire.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The remaining time.
    timeout: Duration,
    /// The term of leadership, for writes.
    term: Option<u64>,
    /// Counts the memory of its answers.
    budget: Budget,
}

/// The maximum time by which a server's deadline may pass before ours.
const NEARLY: Duration = Duration::from_millis(100);

/// The metadata key of the term.
pub const TERM: &str = "quartet-term";

/// Returns a read.
pub const fn read(operation: &'static str) -> CallClass {
    CallClass::read(super::NAME, operation)
}

/// Returns an idempotent write: what it creates is looked for first.
pub const fn write(operation: &'static str) -> CallClass {
    CallClass::write(super::NAME, operation)
}

/// Returns a request with its parameters: as metadata the deadline, so that the server can stop
/// work that no client waits for, and the term.
pub fn question<Q>(message: Q, terms: Terms) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(terms.timeout);
    request.extensions_mut().insert(terms.budget);
    if let Some(term) = terms.term {
        request.metadata_mut().insert(TERM, term.into());
    }
    request
}

pub fn provider_client(channel: Channel) -> ProviderClient<Channel> {
    ProviderClient::new(channel)
}

pub fn instances_client(channel: Channel) -> InstancesClient<Channel> {
    InstancesClient::new(channel).max_decoding_message_size(super::MAX_ANSWER)
}

impl Wire {
    /// Makes one call: `send` receives the channel and the parameters. The response holds memory for
    /// the answer: it must be dropped before the next call.
    pub async fn call<A, F>(
        &self,
        class: CallClass,
        call: Call,
        budget: &Budget,
        send: impl FnOnce(Channel, Terms) -> F,
    ) -> Result<Response<A>, CloudError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let open = self.open(class, call, budget).await?;
        let outcome = open.hear(send(self.connection.channel(), open.terms.clone())).await;
        open.close(outcome.as_ref().err().cloned());
        outcome
    }

    /// Waits until a call may be sent.
    pub async fn open(
        &self,
        class: CallClass,
        call: Call,
        budget: &Budget,
    ) -> Result<OpenCall<'_>, CloudError> {
        let no_time =
            || timeout(class.operation, "not sent, because no time was left").that_was_not_sent();
        let permit =
            timeout_at(call.end, self.gate.admit(class, call)).await.map_err(|_| no_time())??;
        let terms = Terms { timeout: call.left(), term: permit.term, budget: budget.clone() };
        if terms.timeout.is_zero() {
            permit.finish();
            return Err(no_time());
        }
        Ok(OpenCall { wire: self, class, end: call.end, since: Instant::now(), terms, permit })
    }
}

/// A call that may be sent, or is running.
pub struct OpenCall<'a> {
    wire: &'a Wire,
    class: CallClass,
    end: Instant,
    since: Instant,
    pub terms: Terms,
    permit: Permit,
}

impl OpenCall<'_> {
    /// Waits for an answer, or for the next part of one. A silent provider is checked by the
    /// keeper.
    pub async fn hear<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CloudError> {
        let (error, may_be_done) = match timeout_at(self.end, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => {
                (self.understand(&status), status::may_be_done(&status) && !is_unsent(&status))
            }
            Err(_) => (self.silence(), true),
        };
        if error.kind == ErrorKind::Timeout {
            self.wire.connection.connections.suspect.notify_one();
        }
        Err(if self.class.write && may_be_done { error.that_may_be_done() } else { error })
    }

    /// Reports the result of the call.
    pub fn close(self, error: Option<CloudError>) {
        let report = CallReport {
            error: error.as_ref().map(|error| error.kind),
            retry_after: error.as_ref().and_then(|error| error.retry_after),
            took: self.since.elapsed(),
        };
        self.wire.gate.report(self.class, report);
        if !error.is_some_and(|error| error.maybe_done) {
            self.permit.finish();
        }
    }

    /// Reports the results of a call for many items. `unanswered` items got no result except `end`.
    pub fn close_batch(self, results: &[Option<CloudError>], unanswered: usize, end: &CloudError) {
        let kind = |error: &Option<CloudError>| error.as_ref().map(|error| error.kind);
        let mut kinds: Vec<Option<ErrorKind>> = results.iter().map(kind).collect();
        kinds.extend(std::iter::repeat_n(Some(end.kind), unanswered));
        self.wire.gate.items(self.class, &kinds);
        // One answered item shows that the provider works.
        let is_silent = results.is_empty() && unanswered > 0;
        self.close(if is_silent { Some(end.clone()) } else { error_of_all(results) });
    }

    fn silence(&self) -> CloudError {
        let (endpoint, waited) = (self.wire.connection.endpoint(), self.terms.timeout);
        let waited = waited.as_secs_f64();
        timeout(self.class.operation, &format!("{endpoint} did not answer within {waited:.1} s"))
    }

    fn understand(&self, status: &Status) -> CloudError {
        // tonic reports "cancelled" when its own deadline has passed; a server that keeps our
        // deadline may be a little earlier.
        let is_end = self.end.saturating_duration_since(Instant::now()) < NEARLY;
        if status.code() == Code::Cancelled && has_cause::<tonic::TimeoutExpired>(status)
            || status.code() == Code::DeadlineExceeded && is_end
        {
            return self.silence();
        }
        if let Some(refused) = cause::<Refused>(status) {
            let what = format!("{}: {refused}", self.class.operation);
            return CloudError::new(ErrorKind::Malformed, what);
        }
        let mut error = status::from_status(status);
        if let Some(cause) = status.source() {
            // The library's own message for a failed connection names no endpoint.
            error.message = one_line(
                &format!("{}: {}", self.wire.connection.endpoint(), message::chain(cause)),
                LONGEST_LINE,
            );
        }
        error
    }
}

/// Returns true if there was no connection to send the call on.
fn is_unsent(status: &Status) -> bool {
    has_cause::<tonic::ConnectError>(status)
}

fn has_cause<E: Error + 'static>(status: &Status) -> bool {
    cause::<E>(status).is_some()
}

fn cause<E: Error + 'static>(status: &Status) -> Option<&E> {
    let mut causes = std::iter::successors(status.source(), |cause| (*cause).source());
    causes.find_map(|cause| cause.downcast_ref())
}

fn timeout(operation: &str, why: &str) -> CloudError {
    CloudError::new(ErrorKind::Timeout, format!("{operation}: {why}"))
}
