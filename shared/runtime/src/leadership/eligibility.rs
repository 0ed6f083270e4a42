//! Decides whether this replica may lead: only while its watches work.
//!
//! A leader that sees no changes does nothing useful, and another replica may see them. So a
//! replica becomes a candidate only while its watches work, and a leader whose watches have not
//! worked for [`BLIND_LIMIT`] gives its Lease back and ends. No replica needs to know about another
//! for this: if one sees, it leads; if no replica sees, no replica leads, and no Lease changes its
//! holder. A process that has just started has to see first, so a restart changes nothing (except
//! for one case: `docs/explanation/leadership.md`, "Watches").

use std::{sync::Arc, time::Duration};

use ccm_kube::informer::{FailedWatch, WatchState};
use parking_lot::RwLock;
use tokio::time::sleep;

/// How long a leader's watches may fail. Longer than an API server needs to restart.
pub const BLIND_LIMIT: Duration = Duration::from_mins(2);

/// The time between two looks at the watches of a leader.
const LOOK: Duration = Duration::from_secs(1);

/// The watches that must work. Clones share them.
#[derive(Clone, Default)]
pub struct Eligibility(Arc<RwLock<Vec<WatchState>>>);

impl Eligibility {
    /// Requires one more watch to work.
    pub fn require(&self, watch: WatchState) {
        self.0.write().push(watch);
    }

    /// Returns the watch that has failed longest, if one fails.
    pub fn obstacle(&self) -> Option<FailedWatch> {
        self.0.read().iter().filter_map(WatchState::failure).max_by_key(|failed| failed.lasted)
    }

    /// Waits until a watch has failed for [`BLIND_LIMIT`].
    pub async fn lost(&self) -> FailedWatch {
        loop {
            match self.obstacle() {
                Some(failed) if failed.lasted >= BLIND_LIMIT => return failed,
                _ => sleep(LOOK).await,
            }
        }
    }
}
