//! What follows from an error.

use std::time::Duration;

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Try again with back-off.
    Retry,
    /// Try again, but not before this time has passed.
    RetryAfter(Duration),
    /// Trying again changes nothing until a person acts; look again rarely.
    Permanent,
}
