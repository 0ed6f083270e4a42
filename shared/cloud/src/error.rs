//! Errors between a controller and a cloud.

use std::{fmt, time::Duration};

use ccm_base::RetryClass;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray, VariantNames};

/// The kinds of error that a controller treats differently.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    /// A dependency of the call does not exist. Never proof that an instance is gone: that is
    /// [`crate::Lookup::Gone`].
    NotFound,
    /// The cloud asks for a lower call rate.
    Throttled,
    /// The credentials are missing, wrong or expired.
    Unauthorized,
    /// The credentials are valid, but lack a permission.
    Forbidden,
    /// A quota of the project is used up.
    QuotaExceeded,
    /// The request or the configuration is invalid; retries fail until it is changed.
    Invalid,
    /// Something else changes the object at the moment, or has just changed it. Not a mistake;
    /// retry soon.
    Busy,
    /// The cloud is still making this change of a route, and its result is not known yet. Not a
    /// mistake: the caller lists the table again, and repeats the change if it is still needed.
    /// Load balancers have [`crate::Progress::InProgress`] for it.
    Pending,
    /// Two facts contradict each other, for instance two servers with one name.
    Conflict,
    /// The write was made in an older term of leadership than the cloud has seen: another replica
    /// leads.
    Stale,
    /// The cloud answered that it is unavailable, or the connection failed.
    Unavailable,
    /// No answer within the call's time limit.
    Timeout,
    /// The provider does not offer this.
    Unsupported,
    /// The answer could not be parsed.
    Malformed,
}

ccm_metrics::label!(ErrorKind);

impl ErrorKind {
    /// Every kind, for exhaustive tests.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Returns true if the cloud is at work and refuses or leaves the change for the moment. This is not a failure.
    pub const fn is_at_work(self) -> bool {
        matches!(self, Self::Busy | Self::Pending)
    }

    /// Returns a short, stable name for metric labels, event reasons and log fields.
    pub fn reason(self) -> &'static str {
        self.into()
    }
}

/// An error answer of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub struct CloudError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The cloud's message, one line, without secrets.
    pub message: String,
    /// The quota or the object that it is about: `floatingip`, `subnet 10.0.0.0/24`.
    #[serde(default)]
    pub subject: Option<String>,
    /// The cloud's ID of the failed request, for its support desk.
    pub request_id: Option<String>,
    /// The delay that the cloud asked for.
    pub retry_after: Option<Duration>,
    /// For a write: it may have been executed nevertheless. The caller checks the state in the
    /// cloud before it repeats the write.
    #[serde(default)]
    pub maybe_done: bool,
    /// It was not sent, because the call had too little time left after other work. Nothing is
    /// wrong, and the next call may have enough time.
    #[serde(default)]
    pub unsent: bool,
}

impl fmt::Display for CloudError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        let named = |subject: &&String| self.message.starts_with(subject.as_str());
        if let Some(subject) = self.subject.as_ref().filter(|subject| !named(subject)) {
            write!(f, " ({subject})")?;
        }
        if let Some(after) = self.retry_after {
            write!(f, " (retry after {} s)", after.as_secs_f64().ceil())?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        let is_refused = matches!(
            self.kind,
            ErrorKind::QuotaExceeded | ErrorKind::Invalid | ErrorKind::Forbidden
        );
        // A provider cannot always tell. The kinds of a refusal say that nothing was done.
        if self.maybe_done && !is_refused {
            write!(f, " (it may have taken effect)")?;
        }
        Ok(())
    }
}

impl CloudError {
    /// Creates an error of this kind with the cloud's message, in which control characters become
    /// spaces: it is one line of a log, and part of an event.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into().replace(char::is_control, " "),
            subject: None,
            request_id: None,
            retry_after: None,
            // Nothing more is known about such a change.
            maybe_done: kind == ErrorKind::Pending,
            unsent: false,
        }
    }

    /// Adds the quota or the object that the error is about.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Adds the cloud's request ID.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Adds the delay that the cloud asked for.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Marks that the write may have been executed nevertheless.
    #[must_use]
    pub fn that_may_be_done(mut self) -> Self {
        self.maybe_done = true;
        self
    }

    /// Marks that it was not sent, because the call had too little time left.
    #[must_use]
    pub fn that_was_not_sent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// Returns if and when to retry: after the delay that the cloud asks for, or else with
    /// back-off, unless the error is permanent.
    pub fn class(&self) -> RetryClass {
        // A delay of zero would be a retry without any pause.
        match (self.kind, self.retry_after.filter(|after| !after.is_zero())) {
            (_, Some(after)) => RetryClass::RetryAfter(after),
            (
                ErrorKind::Invalid
                | ErrorKind::Unsupported
                | ErrorKind::QuotaExceeded
                | ErrorKind::Stale,
                None,
            ) => RetryClass::Permanent,
            (_, None) => RetryClass::Retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let error = CloudError::new(ErrorKind::Unavailable, "quota\r\n\tof \u{85}x");
        assert_eq!(error.message, "quota   of  x");
    }

    #[test]
    fn a_delay_of_zero_is_not_a_delay() {
        let after = |seconds| {
            let error = CloudError::new(ErrorKind::Throttled, "slowly");
            error.with_retry_after(Duration::from_secs(seconds)).class()
        };
        assert_eq!(after(0), RetryClass::Retry);
        assert_eq!(after(2), RetryClass::RetryAfter(Duration::from_secs(2)));
    }
}
