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

    /// The approval, if it has changed since the last call; logs it. The inner value is `None` if
    /// nothing is approved any more, or the annotations are invalid, or their time is over.
    pub fn changed(&mut self, now: At) -> Option<Option<SetApproval>> {
        let read = SetApproval::read(|key| self.lease.get(key));
        let read = read.and_then(|set| set.map(|set| set.unless_over(now)).transpose());
        if read == self.last {
            return None;
        }
        self.last.clone_from(&read);
        Some(match read {
            Ok(Some(approval)) => {
                tracing::info!("the Lease approves {}: {approval}", self.what);
                Some(approval)
            }
            Ok(None) => {
                tracing::info!("the Lease approves nothing any more");
                None
            }
            Err(error) => {
                tracing::warn!("the Lease approves nothing: {error}");
                None
            }
        })
    }
}
