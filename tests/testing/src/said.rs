//! Checks of what is said to users, for tests with random input.

use ccm_cloud::CloudError;

/// The longest message. Some list everything that is wrong with an object.
const LONGEST: usize = 64 << 10;

/// The answer. An error must be fit for a log and an event.
pub fn checked<T>(outcome: Result<T, CloudError>) -> Option<T> {
    outcome.map_err(|error| check_line(&error.message)).ok()
}

/// Checks a text that users see.
pub fn check_line(line: &str) {
    assert!(line.len() <= LONGEST, "a message of {} bytes", line.len());
    assert!(!line.contains(char::is_control), "a message of several lines: {line:?}");
}
