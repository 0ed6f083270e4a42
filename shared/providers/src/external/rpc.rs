//! One call on the wire: through the gate, under the deadline, with typed errors.

use std::{sync::Arc, time::Duration};

use ccm_base::message::{self, LONGEST_LINE, one_line};
use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Response, Status, transport::Channel};

use super::{
    connection::Connection,
    proto::{instances_client::InstancesClient, provider_client::ProviderClient},
    status,
};

/// No call waits longer than this, whatever it was given: the timers need a bound.
const LONGEST: Duration = Duration::from_hours(24);

/// The end of a whole operation, which may take several calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    call: Call,
}

impl Deadline {
    /// Starts the clock of `call`.
    pub(super) fn start(call: Call) -> Self {
        Self { at: Instant::now() + call.timeout.min(LONGEST), call }
    }

    /// What is left, as the terms of the next call.
    pub(super) fn rest(&self) -> Call {
        Call { timeout: self.at.saturating_duration_since(Instant::now()), ..self.call }
    }
}

/// What each call needs.
pub(super) struct Wire {
    pub(super) connection: Connection,
    pub(super) gate: Arc<dyn CallGate>,
}

/// A question with its deadline written on it, so that the server can stop working
/// when nobody listens any more.
pub(super) fn question<Q>(message: Q, terms: Call) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(terms.timeout);
    request
}

pub(super) fn provider_client(channel: Channel) -> ProviderClient<Channel> {
    ProviderClient::new(channel)
}

pub(super) fn instances_client(channel: Channel) -> InstancesClient<Channel> {
    InstancesClient::new(channel).max_decoding_message_size(super::MAX_ANSWER)
}

impl Wire {
    /// Makes one call: `send` is given the channel and what is left of the time.
    pub(super) async fn call<A, F>(
        &self,
        operation: &'static str,
        deadline: Deadline,
        send: impl FnOnce(Channel, Call) -> F,
    ) -> Result<A, CloudError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_within(operation, deadline, send, |_| None).await
    }

    /// The same for an answer that may hold an error in itself: what `within` finds there
    /// is reported to the gate, so that limits and metrics see it.
    pub(super) async fn call_within<A, F>(
        &self,
        operation: &'static str,
        deadline: Deadline,
        send: impl FnOnce(Channel, Call) -> F,
        within: impl FnOnce(&A) -> Option<CloudError>,
    ) -> Result<A, CloudError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let class = CallClass { service: super::NAME, operation, write: false };
        let no_time = || timeout(operation, "no time was left to send it");
        timeout_at(deadline.at, self.gate.admit(class, deadline.rest()))
            .await
            .map_err(|_| no_time())??;
        let (started, terms) = (Instant::now(), deadline.rest());
        if terms.timeout.is_zero() {
            return Err(no_time());
        }
        let outcome = match timeout_at(deadline.at, send(self.connection.channel(), terms)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.understand(operation, &status, terms.timeout)),
            Err(_) => Err(self.silence(operation, terms.timeout)),
        };
        let took = started.elapsed();
        if outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout) {
            self.connection.connections.suspect.notify_one();
        }
        let error = outcome.as_ref().map_or_else(|error| Some(error.clone()), within);
        let report = CallReport {
            error: error.as_ref().map(|error| error.kind),
            retry_after: error.as_ref().and_then(|error| error.retry_after),
            took,
        };
        self.gate.report(class, report);
        outcome
    }

    fn silence(&self, operation: &str, waited: Duration) -> CloudError {
        let waited = waited.as_secs_f64();
        timeout(
            operation,
            &format!("{} did not answer within {waited:.1} s", self.connection.endpoint()),
        )
    }

    fn understand(&self, operation: &str, status: &Status, waited: Duration) -> CloudError {
        // tonic says "cancelled" when a deadline that it was given itself has passed.
        if status.code() == Code::Cancelled && is_timer(status) {
            return self.silence(operation, waited);
        }
        let mut error = status::from_status(status);
        if let Some(cause) = std::error::Error::source(status) {
            // The library's own word for a failed connection names no endpoint.
            error.message = one_line(
                &format!("{}: {}", self.connection.endpoint(), message::chain(cause)),
                LONGEST_LINE,
            );
        }
        error
    }
}

/// Whether the library's own timer ended the call.
fn is_timer(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        if cause.is::<tonic::TimeoutExpired>() {
            return true;
        }
        source = cause.source();
    }
    false
}

fn timeout(operation: &str, why: &str) -> CloudError {
    CloudError::new(ErrorKind::Timeout, format!("{operation}: {why}"))
}
