//! Lists that are being read page by page.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ccm_cloud::Fleet;
use parking_lot::Mutex;
use tokio::time::Instant;

/// So many lists are kept at once; the oldest goes first.
const KEPT: usize = 16;
/// A list of which no page was asked for in this time is forgotten.
const LIFETIME: Duration = Duration::from_mins(2);

struct Snapshot {
    id: u64,
    fleet: Arc<Fleet>,
    used: Instant,
}

/// The lists, each under the number that its page tokens carry.
#[derive(Default)]
pub(super) struct Snapshots {
    kept: Mutex<VecDeque<Snapshot>>,
}

impl Snapshots {
    /// Keeps a list. The number is random, so that a token given out by a process
    /// before this one is not taken for one of ours.
    pub(super) fn keep(&self, fleet: Arc<Fleet>) -> u64 {
        let id = rand::random();
        let mut kept = self.kept.lock();
        kept.retain(|snapshot| snapshot.used.elapsed() < LIFETIME);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(Snapshot { id, fleet, used: Instant::now() });
        id
    }

    /// The list of this number, if it is still kept.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Fleet>> {
        let mut kept = self.kept.lock();
        kept.retain(|snapshot| snapshot.used.elapsed() < LIFETIME);
        let snapshot = kept.iter_mut().find(|snapshot| snapshot.id == id)?;
        snapshot.used = Instant::now();
        Some(Arc::clone(&snapshot.fleet))
    }

    /// Forgets a list whose last page was given out.
    pub(super) fn drop(&self, id: u64) {
        self.kept.lock().retain(|snapshot| snapshot.id != id);
    }
}

/// A page token: which list, and where the page begins.
pub(super) fn token(id: u64, offset: usize) -> String {
    format!("{id:016x}.{offset}")
}

/// Reads a page token of [`token`].
pub(super) fn parse(token: &str) -> Option<(u64, usize)> {
    let (id, offset) = token.split_once('.')?;
    Some((u64::from_str_radix(id, 16).ok()?, offset.parse().ok()?))
}
