//! Lists that clients are reading page by page.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use ccm_cloud::{CloudError, ErrorKind};
use ccm_external::MAX_BATCH;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Status;

use super::convert::to_status;

/// The maximum number of lists kept; the oldest is dropped first.
const KEPT: usize = 16;
/// A list is dropped if no page is requested for this time.
const LIFETIME: Duration = Duration::from_mins(2);

struct Snapshot<T> {
    id: u64,
    list: Arc<T>,
    used: Instant,
}

/// The lists, by the number in their page tokens.
pub struct Snapshots<T> {
    kept: Mutex<VecDeque<Snapshot<T>>>,
}

impl<T> Default for Snapshots<T> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

/// The page that a client requests.
pub struct Page<T> {
    /// The whole list.
    pub list: Arc<T>,
    /// Its number, if it is kept.
    id: Option<u64>,
    /// The start of the page.
    offset: usize,
}

impl<T> Snapshots<T> {
    /// Returns the page with this token. Without a token it is the first page, which reads the
    /// list.
    pub async fn open(
        &self,
        token: &str,
        read: impl Future<Output = Result<T, Status>>,
    ) -> Result<Page<T>, Status> {
        if token.is_empty() {
            return Ok(Page { list: Arc::new(read.await?), id: None, offset: 0 });
        }
        let kept = parse(token).and_then(|(id, offset)| Some((id, offset, self.get(id)?)));
        let (id, offset, list) = kept.ok_or_else(|| {
            let what = "the page token is not known (any more); list again from the first page";
            to_status(&CloudError::new(ErrorKind::Conflict, what))
        })?;
        Ok(Page { list, id: Some(id), offset })
    }

    /// Returns the entries of a page, of a list with this number of entries, and the token of the
    /// next page. `wanted` is the client's number of entries for a page, or 0.
    pub fn cut(
        &self,
        page: &Page<T>,
        entries: usize,
        wanted: u32,
    ) -> (Range<usize>, Option<String>) {
        let wanted = usize::try_from(wanted).unwrap_or(MAX_BATCH);
        let size = if wanted == 0 { MAX_BATCH } else { wanted.min(MAX_BATCH) };
        let end = page.offset.saturating_add(size).min(entries);
        let next = match page.id {
            _ if end < entries => {
                Some(token(page.id.unwrap_or_else(|| self.keep(Arc::clone(&page.list))), end))
            }
            Some(id) => {
                self.drop(id);
                None
            }
            None => None,
        };
        (page.offset.min(end)..end, next)
    }

    /// Keeps a list. The number is random, so that a token of an earlier process does not
    /// match a list of this one.
    fn keep(&self, list: Arc<T>) -> u64 {
        let id = rand::random();
        let mut kept = self.kept.lock();
        kept.retain(|snapshot| snapshot.used.elapsed() < LIFETIME);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(Snapshot { id, list, used: Instant::now() });
        id
    }

    /// Returns the list with this number, if it is still kept.
    fn get(&self, id: u64) -> Option<Arc<T>> {
        let mut kept = self.kept.lock();
        kept.retain(|snapshot| snapshot.used.elapsed() < LIFETIME);
        let snapshot = kept.iter_mut().find(|snapshot| snapshot.id == id)?;
        snapshot.used = Instant::now();
        Some(Arc::clone(&snapshot.list))
    }

    /// Drops a list whose last page was sent.
    fn drop(&self, id: u64) {
        self.kept.lock().retain(|snapshot| snapshot.id != id);
    }
}

/// Returns a page token: the list, and the start of the page.
fn token(id: u64, offset: usize) -> String {
    format!("{id:016x}.{offset}")
}

/// Parses a page token of [`token`].
fn parse(token: &str) -> Option<(u64, usize)> {
    let (id, offset) = token.split_once('.')?;
    Some((u64::from_str_radix(id, 16).ok()?, offset.parse().ok()?))
}
