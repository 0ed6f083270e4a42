//! What a leader leaves to the next one, as JSON with the Lease: for budgets that a change of
//! leader must not renew.

use ccm_runtime::leadership::{HANDOVER, LeaseAnnotations};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

/// What the last leader has left; the default if there is nothing that can be read.
pub fn found<T: DeserializeOwned + Default>(lease: &LeaseAnnotations) -> T {
    let text = lease.found();
    if text.is_empty() {
        return T::default();
    }
    serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!("annotation {HANDOVER} of the Lease is ignored: {error}");
        T::default()
    })
}

/// Leaves this to the next leader. The default is nothing.
pub fn keep<T: Serialize + Default + PartialEq>(lease: &LeaseAnnotations, value: &T) {
    let text = match serde_json::to_string(value) {
        _ if *value == T::default() => String::new(),
        Ok(text) => text,
        Err(error) => return tracing::warn!("nothing is left to the next leader: {error}"),
    };
    let length = text.len();
    if !lease.leave(text) {
        tracing::warn!("too long to be left to the next leader: {length} bytes");
    }
}

/// What a leader leaves in parts, each kept up to date by its own task.
#[derive(Debug)]
pub struct Handover<T> {
    lease: LeaseAnnotations,
    left: Mutex<T>,
}

impl<T: Serialize + DeserializeOwned + Default + PartialEq + Clone> Handover<T> {
    /// Begins with what the last leader has left.
    pub fn take_over(lease: &LeaseAnnotations) -> (Self, T) {
        let left: T = found(lease);
        (Self { lease: lease.clone(), left: Mutex::new(left.clone()) }, left)
    }

    /// Changes a part.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        let mut left = self.left.lock();
        let before = left.clone();
        change(&mut left);
        if *left != before {
            keep(&self.lease, &*left);
        }
    }
}
