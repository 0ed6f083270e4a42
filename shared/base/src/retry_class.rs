//! How a caller should react to an error.

use std::time::Duration;

/// How a caller should react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Retry with back-off.
    Retry,
    /// Retry, but not before this time has passed.
    RetryAfter(Duration),
    /// Retrying does not help until an operator fixes the cause; retry rarely.
    Permanent,
}
