//! Errors of requests to the API server.

use std::{error::Error, time::Duration};

use ccm_base::{
    RetryClass,
    message::{chain, one_line},
};
use kube::core::Status;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

/// The longest server message that is kept; longer texts only fill the logs.
const MESSAGE_LIMIT: usize = 400;

/// The longest `Retry-After` that is honoured; the server is asked again after this time. A
/// longer time could overflow the clock and end the process.
pub const RETRY_AFTER_LIMIT: Duration = Duration::from_mins(1);

/// The call exceeded its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete response within {} s", .0.as_secs_f64())]
pub struct DeadlineExceeded(
    /// The time that the call was allowed to take.
    pub Duration,
);

/// A failed request: an error response, or no response.
///
/// Displayed as one line with the server's own message. Bodies are never included: they
/// can hold secrets.
#[derive(
    Clone, Debug, PartialEq, Eq, thiserror::Error, EnumDiscriminants, Serialize, Deserialize,
)]
#[strum_discriminants(
    name(ApiReason),
    doc = "The short, stable name of an [`ApiError`] for metric labels.",
    derive(Hash, IntoStaticStr, VariantNames),
    strum(serialize_all = "snake_case")
)]
pub enum ApiError {
    /// The object does not exist (404).
    #[error("the object does not exist")]
    NotFound,
    /// A list or watch got a 404. An API server serves these paths, so this is another server, or
    /// the path prefix is wrong.
    #[strum_discriminants(strum(serialize = "not_found"))]
    #[error("404 for {0}: is this a Kubernetes API server?")]
    NoSuchPath(String),
    /// The object has changed since it was read (409).
    #[error("the object has changed since it was read")]
    Conflict,
    /// An object of this name exists already (409, reason `AlreadyExists`).
    #[error("an object of this name already exists")]
    AlreadyExists,
    /// The resource version is too old to continue from (410): list again.
    #[error("the resource version is too old: {0}")]
    Expired(String),
    /// The server asks for fewer requests (429).
    #[error("the API server throttles requests{}", retry_hint(*retry_after))]
    Throttled {
        /// The wait that the server asked for.
        retry_after: Option<Duration>,
    },
    /// The request is invalid and a retry does not help (400, 405, 406, 413, 415, 422; but see
    /// [`ApiError::Forbidden`]).
    #[error("rejected as invalid: {0}")]
    Invalid(String),
    /// The credentials are valid but lack a right (403), or an admission policy or webhook denies
    /// the request (any of 400, 403, 422).
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The credentials are missing, wrong or expired (401).
    #[error("the API server does not accept the credentials")]
    Unauthorized,
    /// The credentials could not be obtained locally: token file, exec plugin.
    #[error("no credentials to send: {0}")]
    Credentials(String),
    /// No complete response in time, by our deadline or by the server's (504).
    #[error("no response in time")]
    Timeout,
    /// The server is unavailable or unreachable, or the connection broke.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The response could not be parsed.
    #[error("cannot parse the response: {0}")]
    Decode(String),
    /// Any other response.
    #[error("unexpected response {code}: {message}")]
    Unexpected {
        /// The HTTP status, 0 if there was none.
        code: u16,
        /// The server's message.
        message: String,
    },
}

ccm_metrics::label!(ApiReason);

impl ApiError {
    /// Returns how the caller should react. Only an invalid request is permanent: rights,
    /// credentials and admission policies can be fixed while this process runs.
    pub fn class(&self) -> RetryClass {
        match self {
            Self::Throttled { retry_after: Some(after) } => RetryClass::RetryAfter(*after),
            Self::Invalid(_) => RetryClass::Permanent,
            _ => RetryClass::Retry,
        }
    }

    /// Returns true if the request may have been carried out. A request that the API server refuses
    /// has no effect.
    pub const fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout | Self::Unavailable(_) | Self::Decode(_) | Self::Unexpected { .. }
        )
    }

    /// Returns a short, stable name for metric labels and log fields.
    pub fn reason(&self) -> &'static str {
        ApiReason::from(self).into()
    }

    /// Converts a Kubernetes `Status`, in a response or as an item of a watch.
    pub fn from_status(status: &Status) -> Self {
        let message = || one_line(&status.message, MESSAGE_LIMIT);
        let code = if status.code == 0 { code_of(&status.reason) } else { status.code };
        match code {
            400 | 422 if is_denied_by_admission(&status.message) => Self::Forbidden(message()),
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid(message()),
            401 => Self::Unauthorized,
            403 => Self::Forbidden(message()),
            404 => Self::NotFound,
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 => Self::Conflict,
            410 => Self::Expired(message()),
            429 => Self::Throttled { retry_after: retry_after(status) },
            504 => Self::Timeout,
            500..=599 => Self::Unavailable(message()),
            _ => Self::Unexpected { code, message: message() },
        }
    }

    /// Converts an error between the request and the headers or body of its response.
    fn from_transport(error: &(dyn Error + 'static)) -> Self {
        if causes(error).any(<dyn Error>::is::<DeadlineExceeded>) {
            return Self::Timeout;
        }
        if let Some(auth) =
            causes(error).find_map(<dyn Error>::downcast_ref::<kube::client::AuthError>)
        {
            return Self::Credentials(auth_problem(auth));
        }
        Self::Unavailable(one_line(&chain(error), MESSAGE_LIMIT))
    }
}

/// Returns true if an admission policy or webhook has written this message. A policy denies with
/// 422 and a webhook with 400 unless its author sets another code, and only the text distinguishes
/// that from an invalid request: `... is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y'
/// denied request: ...`, `admission webhook "x" denied the request: ...`.
fn is_denied_by_admission(message: &str) -> bool {
    let denied = ["denied request", "denied the request"];
    let by = ["AdmissionPolicy ", "admission webhook "];
    denied.iter().any(|text| message.contains(text)) && by.iter().any(|text| message.contains(text))
}

/// Returns the name and the words of the `ValidatingAdmissionPolicy` that has written this message.
pub(crate) fn denied_by_policy(message: &str) -> Option<(&str, String)> {
    let (_, rest) = message.split_once("ValidatingAdmissionPolicy '")?;
    let (policy, rest) = rest.split_once("' with binding '")?;
    let (_, words) = rest.split_once("' denied request: ")?;
    Some((policy, one_line(words, MESSAGE_LIMIT)))
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => Self::from_status(status),
            kube::Error::SerdeError(problem) => Self::Decode(decode_problem(problem)),
            kube::Error::FromUtf8(_) => Self::Decode("not UTF-8".to_owned()),
            kube::Error::Auth(problem) => Self::Credentials(auth_problem(problem)),
            kube::Error::BuildRequest(problem) => {
                Self::Invalid(one_line(&problem.to_string(), MESSAGE_LIMIT))
            }
            kube::Error::Service(source) => Self::from_transport(source.as_ref()),
            kube::Error::HyperError(source) => Self::from_transport(source),
            kube::Error::ReadEvents(source) => Self::from_transport(source),
            other => {
                Self::Unexpected { code: 0, message: one_line(&other.to_string(), MESSAGE_LIMIT) }
            }
        }
    }
}

fn retry_hint(after: Option<Duration>) -> String {
    after.map(|after| format!(" (retry after {} s)", after.as_secs_f64())).unwrap_or_default()
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(RETRY_AFTER_LIMIT))
}

/// Returns the HTTP code of a status that carries only a reason.
fn code_of(reason: &str) -> u16 {
    match reason {
        "BadRequest" => 400,
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "NotFound" => 404,
        "Conflict" | "AlreadyExists" => 409,
        "Gone" | "Expired" => 410,
        "Invalid" => 422,
        "TooManyRequests" => 429,
        "InternalError" | "ServerTimeout" => 500,
        "ServiceUnavailable" => 503,
        "Timeout" => 504,
        _ => 0,
    }
}

/// Returns the JSON parser's error without the offending value.
fn decode_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    // This message names a field of our own type and quotes no value.
    match text.split_once(" at line") {
        Some((what, _)) if what.starts_with("missing field") => format!("{what} at {place}"),
        _ => format!("{:?} error at {place}", error.classify()).to_lowercase(),
    }
}

/// Returns the problem with the credentials, without the plugin's input or output.
pub(crate) fn auth_problem(error: &kube::client::AuthError) -> String {
    match error {
        kube::client::AuthError::AuthExecRun { status, .. } => {
            format!("the exec plugin ended with {status}")
        }
        kube::client::AuthError::AuthExecParse(_) => {
            "the exec plugin's output is not an ExecCredential".to_owned()
        }
        other => one_line(&other.to_string(), MESSAGE_LIMIT),
    }
}

/// Returns the error and its causes, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

#[cfg(test)]
mod tests;
