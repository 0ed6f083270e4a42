//! Lists that clients are reading page by page.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ccm_cloud::Fleet;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of lists kept; the oldest is dropped first.
const KEPT: usize = 16;
/// A list is dropped if no page is requested for this time.
const LIFETIME: Duration = Duration::from_mins(2);

struct Snapshot {
    id: u64,
    fleet: Arc<Fleet>,
    used: Instant,
}

/// The lists, by the number in their page tokens.
#[derive(Default)]
pub(super) struct Snapshots {
    kept: Mutex<VecDeque<Snapshot>>,
}

impl Snapshots {
    /// Keeps a list. The number is random, so that a token of an earlier process does not
    /// match a list of this one.
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

    /// The list with this number, if it is still kept.
    pub(super) fn get(&self, id: u64) -> Option<Arc<Fleet>> {
        let mut kept = self.kept.lock();
        kept.retain(|snapshot| snapshot.used.elapsed() < LIFETIME);
        let snapshot = kept.iter_mut().find(|snapshot| snapshot.id == id)?;
        snapshot.used = Instant::now();
        Some(Arc::clone(&snapshot.fleet))
    }

    /// Drops a list whose last page was sent.
    pub(super) fn drop(&self, id: u64) {
        self.kept.lock().retain(|snapshot| snapshot.id != id);
    }
}

/// A page token: the list, and the start of the page.
pub(super) fn token(id: u64, offset: usize) -> String {
    format!("{id:016x}.{offset}")
}

/// Parses a page token of [`token`].
pub(super) fn parse(token: &str) -> Option<(u64, usize)> {
    let (id, offset) = token.split_once('.')?;
    Some((u64::from_str_radix(id, 16).ok()?, offset.parse().ok()?))
}
