//! What a user approves by annotations of the Lease, as the leader follows it.

use ccm_base::At;
use ccm_runtime::leadership::LeaseAnnotations;

use crate::brake::approval::{InvalidApproval, SetApproval};

/// The approval on the Lease as last read.
#[derive(Debug)]
pub struct Approvals {
    lease: LeaseAnnotations,
    /// What is approved, for log lines: `that held members leave`.
    what: &'static str,
    last: Result<Option<SetApproval>, InvalidApproval>,
}

impl Approvals {
    /// Nothing is approved yet. `what` completes "the Lease approves".
    pub fn new(lease: &LeaseAnnotations, what: &'static str) -> Self {
        Self { lease: lease.clone(), what, last: Ok(None) }
    }

    /// Reads the Lease's annotations. Logs a change and returns whether there was one.
    pub fn read(&mut self, now: At) -> bool {
        let read = SetApproval::read(|key| self.lease.get(key));
        let read = read.and_then(|set| set.map(|set| set.unless_over(now)).transpose());
        if read == self.last {
            return false;
        }
        match &read {
            Ok(Some(approval)) => tracing::info!("the Lease approves {}: {approval}", self.what),
            Ok(None) => tracing::info!("the Lease approves nothing any more"),
            Err(error) => tracing::warn!("the Lease approves nothing: {error}"),
        }
        self.last = read;
        true
    }

    /// The approval; `None` if nothing is approved, or the annotations are invalid or their time is
    /// over.
    pub fn current(&self) -> Option<&SetApproval> {
        self.last.as_ref().ok()?.as_ref()
    }
}
