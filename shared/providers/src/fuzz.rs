//! What this crate reads from strangers, as functions of bytes: a file, a Service, an answer. Each one
//! panics where the code that it runs does, and where a message has line breaks or is too long.
//! With the feature `fuzz` only; `shared/fuzz` has the inputs.

use ccm_cloud::CloudError;

pub use crate::{
    external::fuzz::external,
    openstack::fuzz::{annotations, cloud_conf, clouds_yaml, neutron, nova, octavia},
};

/// The longest message. Some list everything that is wrong with an object.
const LONGEST: usize = 64 << 10;

/// What was answered. An error must be fit for a log and an event.
pub(crate) fn checked<T>(outcome: Result<T, CloudError>) -> Option<T> {
    outcome.map_err(|error| check_line(&error.message)).ok()
}

/// Checks a text that users see.
pub(crate) fn check_line(line: &str) {
    assert!(line.len() <= LONGEST, "a message of {} bytes", line.len());
    assert!(!line.contains(char::is_control), "a message of several lines: {line:?}");
}
