//! Errors on the wire: [`CloudError`] as a message, as a gRPC status, and back.

use std::time::Duration;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{CloudError, ErrorKind};
use prost::Message;
use tonic::{Code, Status};

use super::{
    convert::{front_end::duration_from_wire, load_balancers::line},
    proto,
};

/// A longer delay is an outage; delays are limited to this.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The type of our own details.
pub const ERROR_TYPE: &str = "type.googleapis.com/quartet.cloud.v1.Error";
const RETRY_INFO_TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";
const REQUEST_INFO_TYPE: &str = "type.googleapis.com/google.rpc.RequestInfo";

/// `google.rpc.Status`, the content of `grpc-status-details-bin` that gRPC libraries of all
/// languages write and read.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// `google.rpc.RequestInfo`.
#[derive(Clone, PartialEq, Message)]
struct RequestInfo {
    #[prost(string, tag = "1")]
    request_id: String,
}

impl From<proto::Error> for CloudError {
    /// Reads an error of any answer but one about a change of a route: there is no `PENDING`.
    fn from(error: proto::Error) -> Self {
        let mut error = change_error_from_wire(error);
        if error.kind == ErrorKind::Pending {
            let what = "the provider answered PENDING, which only an answer of ApplyRoutes may be";
            error.kind = ErrorKind::Malformed;
            error.message = one_line(&format!("{what}: {}", error.message), LONGEST_LINE);
        }
        error
    }
}

/// Reads an error about a change of a route.
pub fn change_error_from_wire(error: proto::Error) -> CloudError {
    let proto::Error { kind, message, subject, request_id, retry_after, maybe_done, unsent } =
        error;
    let message = one_line(&message.unwrap_or_default(), LONGEST_LINE);
    let kind = kind.unwrap_or_default();
    let known = proto::ErrorKind::try_from(kind).ok().and_then(kind_from_wire);
    let (kind, message) = match known {
        Some(kind) if message.is_empty() => (kind, "the provider gave no message".to_owned()),
        Some(kind) => (kind, message),
        None => (ErrorKind::Malformed, format!("an error of unknown kind {kind}: {message}")),
    };
    let (subject, request_id) = (line(subject), line(request_id));
    let maybe_done = maybe_done == Some(true) || kind == ErrorKind::Pending;
    let unsent = unsent == Some(true);
    let retry_after = retry_after.and_then(wait);
    CloudError { kind, message, subject, request_id, retry_after, maybe_done, unsent }
}

/// Returns a wait that a provider asks for, within bounds.
fn wait(duration: prost_types::Duration) -> Option<Duration> {
    duration_from_wire(duration).map(|wait| wait.min(MAX_RETRY_AFTER))
}

/// Returns the kind of an error, on the wire.
pub fn kind_to_wire(kind: ErrorKind) -> proto::ErrorKind {
    match kind {
        ErrorKind::NotFound => proto::ErrorKind::NotFound,
        ErrorKind::Throttled => proto::ErrorKind::Throttled,
        ErrorKind::Unauthorized => proto::ErrorKind::Unauthorized,
        ErrorKind::Forbidden => proto::ErrorKind::Forbidden,
        ErrorKind::QuotaExceeded => proto::ErrorKind::QuotaExceeded,
        ErrorKind::Invalid => proto::ErrorKind::Invalid,
        ErrorKind::Conflict => proto::ErrorKind::Conflict,
        ErrorKind::Unavailable => proto::ErrorKind::Unavailable,
        ErrorKind::Timeout => proto::ErrorKind::Timeout,
        ErrorKind::Unsupported => proto::ErrorKind::Unsupported,
        ErrorKind::Malformed => proto::ErrorKind::Malformed,
        ErrorKind::Busy => proto::ErrorKind::Busy,
        ErrorKind::Stale => proto::ErrorKind::Stale,
        ErrorKind::Pending => proto::ErrorKind::Pending,
    }
}

fn kind_from_wire(kind: proto::ErrorKind) -> Option<ErrorKind> {
    ErrorKind::ALL.iter().copied().find(|known| kind_to_wire(*known) == kind)
}

/// Returns true if a write that ended with this error may have been executed: always, unless the
/// provider says otherwise, or has no such method.
pub fn may_be_done(status: &Status) -> bool {
    let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
    let has_word = details.iter().any(|any| any.type_url == ERROR_TYPE);
    !has_word && status.code() != Code::Unimplemented
}

/// Converts a failed call. The details of our own protocol take precedence, then those that
/// gRPC servers commonly send, then the bare code.
pub fn from_status(status: &Status) -> CloudError {
    let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
    let part =
        |url: &str| details.iter().find(|any| any.type_url == url).map(|any| any.value.as_slice());
    if let Some(error) = part(ERROR_TYPE).and_then(|bytes| proto::Error::decode(bytes).ok()) {
        return error.into();
    }
    let message = match one_line(status.message(), LONGEST_LINE) {
        text if text.is_empty() => {
            format!("the provider answered {:?} without a message", status.code())
        }
        text => text,
    };
    let mut error = CloudError::new(kind_of(status.code()), message);
    error.retry_after = part(RETRY_INFO_TYPE)
        .and_then(|bytes| RetryInfo::decode(bytes).ok())
        .and_then(|info| info.retry_delay)
        .and_then(wait);
    error.request_id = part(REQUEST_INFO_TYPE)
        .and_then(|bytes| RequestInfo::decode(bytes).ok())
        .and_then(|info| line(Some(info.request_id)));
    error
}

/// Returns the kind of a bare code. `Unavailable` stands for every transient error.
fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::NotFound => ErrorKind::NotFound,
        Code::ResourceExhausted => ErrorKind::Throttled,
        Code::Unauthenticated => ErrorKind::Unauthorized,
        Code::PermissionDenied => ErrorKind::Forbidden,
        Code::InvalidArgument => ErrorKind::Invalid,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => ErrorKind::Conflict,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::Unimplemented => ErrorKind::Unsupported,
        // The client's own library reports OutOfRange for an oversized answer.
        Code::Ok | Code::DataLoss | Code::OutOfRange => ErrorKind::Malformed,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::Unavailable => {
            ErrorKind::Unavailable
        }
    }
}

#[cfg(test)]
mod tests;
