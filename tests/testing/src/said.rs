//! Checks messages to users, for tests with random input.

use std::fmt::Display;

/// The longest message. Some list everything that is wrong with an object.
const LONGEST: usize = 64 << 10;

/// Returns the answer. An error must be fit for a log and an event.
pub fn checked<T, E: Display>(outcome: Result<T, E>) -> Option<T> {
    outcome.map_err(|error| check_line(&error.to_string())).ok()
}

/// Checks a text that users see.
pub fn check_line(line: &str) {
    assert!(line.len() <= LONGEST, "a message of {} bytes", line.len());
    assert!(!line.contains(char::is_control), "a message of several lines: {line:?}");
}
