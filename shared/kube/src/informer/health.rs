//! Decides whether a watch works: a pure state machine that takes the time as a value.
//!
//! A watch can fail silently: a proxy swallows its events, or it began at a version that the API
//! server has not reached, because etcd was restored from an older copy. So silence does not prove
//! that nothing changed. Three requests tell the two apart, from cheap to expensive:
//!
//! 1. **The watch itself.** Each event and each bookmark proves that it works. kube-apiserver
//!    sends a bookmark shortly before the end of a watch, and the informer's watches are short.
//! 2. **A comparison**: the current version of the API server, by a consistent list of one object.
//!    It is made when a watch begins and when a watch is silent for [`SILENT`]. If it is the
//!    version that the watch has shown, nothing was missed. If it is lower, versions went back and
//!    only a list helps. It also lets the API server's cache catch up with etcd, so that the next
//!    bookmark has a newer version. Without a newer version the server does not send a bookmark.
//! 3. **A list**, after [`DOUBTFUL`]. If it contains anything newer than the watch has shown, or
//!    lacks an object, the next watch begins at the old version, and a watch that works shows
//!    something at once. Otherwise nothing was missed. That proves the watch only if this server
//!    may be silent: a server before 1.31 sends bookmarks only after changes of the same kind, and
//!    otherwise rarely.
//!
//! Before a watch has shown anything, an equal version proves it only after a watch that lasted
//! [`TRIAL`]: in a small cluster nothing may be written within a moment, but the Leases of other
//! components are written within seconds.
//!
//! Silence counts from the last page of the list before the watch, however long the list takes:
//! before that, the watch could not show anything.
//!
//! The list also repairs what was missed, so a replica with a deaf watch continues to work, with a
//! delay.
//!
//! After the API server was unreachable everything is listed: versions may have gone back and
//! may have overtaken the version of the watch since.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::ApiError;

/// The silence after which the watch is compared.
const SILENT: Duration = Duration::from_secs(30);

/// The time between two comparisons of a silent watch, or after a failed one.
const AGAIN: Duration = Duration::from_secs(5);

/// The silence after which everything is listed.
const DOUBTFUL: Duration = Duration::from_secs(40);

/// How long a watch must have lasted to count as tried. A little less than the shortest watch.
const TRIAL: Duration = Duration::from_millis(2500);

/// How long it may be unknown whether the watch works. Short enough that a failed watch is shown
/// within a minute.
const PATIENCE: Duration = Duration::from_secs(50);

/// The same limit while the server refuses the watch because of a missing right or wrong
/// credentials. The previous watch worked until its end, up to 30 s after the right was taken away.
const PATIENCE_REFUSED: Duration = Duration::from_secs(25);

/// The known state of one informer's watch.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    begun: Instant,
    /// The time up to which the watch is known to have shown everything. `None` before that was
    /// known once.
    proven: Option<Instant>,
    listed: Instant,
    /// When the last page of a list came. It does not prove anything about the store.
    page: Instant,
    /// The version up to which objects were listed or watched; `None` before the first list, or
    /// if the version is not a number.
    seen: Option<u64>,
    /// When the server accepted the last watch; `None` if it did not.
    accepted: Option<Instant>,
    /// True if a watch has lasted long enough since the last watch that was not accepted.
    is_tried: bool,
    /// True if the last thing that the watch showed is an event.
    was_event: bool,
    /// When the watch last showed a newer version by a bookmark, without an event before it.
    quiet_mark: Option<Instant>,
    /// True if the server sends such bookmarks in each watch, so that silence is a fault.
    sends_bookmarks: bool,
    /// A list had something newer than the watch, which has shown nothing since.
    has_missed: bool,
    /// The last error since something succeeded.
    error: Option<ApiError>,
    is_unreachable: bool,
    must_list: bool,
    /// A list that begins at this time or later is wanted.
    wanted: Option<Instant>,
    /// The watch was silent for so long that a list has to show whether it missed anything.
    is_doubted: bool,
}

/// A comparison that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    at: Instant,
    seen: Option<u64>,
}

impl Comparison {
    /// Returns true if a version is known to compare with. Before the first list it is not.
    pub fn has_version(&self) -> bool {
        self.seen.is_some()
    }
}

/// A watch that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since when it has not worked. If it never worked, since its informer began.
    pub since: Instant,
    /// The error or observation, for people.
    pub why: String,
}

impl WatchHealth {
    /// Creates an informer that begins now.
    pub fn new(now: Instant) -> Self {
        Self {
            begun: now,
            proven: None,
            listed: now,
            page: now,
            seen: None,
            accepted: None,
            is_tried: false,
            was_event: false,
            quiet_mark: None,
            sends_bookmarks: false,
            has_missed: false,
            error: None,
            is_unreachable: false,
            must_list: false,
            wanted: None,
            is_doubted: false,
        }
    }

    /// Returns the version up to which objects were listed or watched.
    pub fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// Records that a list that begins at this time or later is wanted.
    pub fn want_list(&mut self, after: Instant) {
        self.wanted = self.wanted.max(Some(after));
    }

    /// Returns when the last list began, or, before the first one, when the informer began.
    pub fn listed_at(&self) -> Instant {
        self.listed
    }

    /// Returns the version that a doubted watch has reached: a list shows whether there is more.
    pub fn doubted_after(&self) -> Option<u64> {
        self.seen.filter(|_| self.is_doubted && self.accepted.is_some())
    }

    /// Records that a page of a list has come.
    pub fn showed_page(&mut self, now: Instant) {
        self.page = now;
    }

    /// Records that a list that began at this time is complete, with this version. `has_news` says
    /// that it had an object newer than [`doubted_after`](Self::doubted_after), or lacked one that
    /// the watch had shown. Returns the version to watch from.
    pub fn listed(&mut self, begun: Instant, version: &str, has_news: bool) -> String {
        let from = match self.seen {
            Some(seen) if has_news => seen.to_string(),
            _ => version.to_owned(),
        };
        self.has_missed |= has_news;
        let may_be_silent = self.accepted.is_some() && !self.sends_bookmarks;
        if may_be_silent && !self.has_missed && self.seen.is_some() {
            self.proven = Some(begun);
        }
        self.listed = begun;
        self.was_event = false;
        self.seen = from.parse().ok();
        // A list does not prove that the server accepts the watch again.
        let is_refused = self.proven.is_some() && self.accepted.is_none();
        if !is_refused {
            self.error = None;
        }
        (self.must_list, self.is_doubted) = (false, false);
        self.wanted = self.wanted.filter(|wanted| *wanted > begun);
        from
    }

    /// Records that the server accepted a watch.
    pub fn accepted(&mut self, now: Instant) {
        self.accepted = Some(now);
        self.error = None;
    }

    /// Records that the server ended a watch in order.
    pub fn ended(&mut self, now: Instant) {
        self.is_tried |= self.accepted.is_some_and(|accepted| now >= accepted + TRIAL);
    }

    /// Records that the server did not accept a watch.
    pub fn refused(&mut self, error: ApiError) {
        self.accepted = None;
        self.is_tried = false;
        self.error = Some(error);
    }

    /// Records that the watch showed an event with this version.
    pub fn showed_event(&mut self, now: Instant, version: &str) {
        self.was_event = true;
        self.showed(now, version);
    }

    /// Records that the watch showed a bookmark with this version.
    pub fn showed_bookmark(&mut self, now: Instant, version: &str) {
        let is_newer = version.parse::<u64>().ok() > self.seen;
        if is_newer && !std::mem::take(&mut self.was_event) {
            // etcd tells an older server its version every ten minutes.
            let last = self.quiet_mark.replace(now);
            self.sends_bookmarks |= last.is_some_and(|last| now < last + PATIENCE);
        }
        self.showed(now, version);
    }

    fn showed(&mut self, now: Instant, version: &str) {
        self.seen = version.parse().ok();
        self.proven = Some(now);
        self.has_missed = false;
        self.error = None;
    }

    /// Records the failure of a list, or of a watch that was accepted.
    pub fn failed(&mut self, error: ApiError) {
        self.error = Some(error);
    }

    /// Records that a comparison is sent now.
    pub fn compares(&self, now: Instant) -> Comparison {
        Comparison { at: now, seen: self.seen }
    }

    /// Records the response to a comparison: the current version, or an error.
    pub fn compared(&mut self, comparison: Comparison, answer: Result<&str, ApiError>) {
        self.is_doubted |= self.seen.is_some() && comparison.at >= self.heard() + DOUBTFUL;
        self.must_list |= self.is_doubted;
        let version = match answer {
            Ok(version) => version.parse::<u64>().ok(),
            Err(error) => {
                self.is_unreachable |= matches!(error, ApiError::Unavailable(_));
                // The error of the watch says more.
                self.error.get_or_insert(error);
                return;
            }
        };
        let (Some(version), Some(seen)) = (version, comparison.seen) else { return };
        self.must_list |= version < seen || std::mem::take(&mut self.is_unreachable);
        let is_tried = self.proven.is_some() || self.is_tried;
        if version == seen && self.accepted.is_some() && is_tried && !self.has_missed {
            self.proven = self.proven.max(Some(comparison.at));
        }
    }

    /// Returns when to compare again after this comparison.
    pub fn next_comparison(&self, comparison: Comparison) -> Instant {
        (self.heard() + SILENT).max(comparison.at + AGAIN)
    }

    /// Returns true if everything must be listed.
    pub fn must_list(&self) -> bool {
        self.must_list || self.wanted.is_some()
    }

    /// Returns up to when the watch is known to have shown everything.
    pub fn proven(&self) -> Option<Instant> {
        self.proven
    }

    /// Returns why the watch does not work, unless it does.
    pub fn silence(&self, now: Instant) -> Option<Silence> {
        let age = self.proven.map(|proven| now.saturating_duration_since(proven));
        let works = age.is_some_and(|age| age < self.patience());
        let since = self.proven.unwrap_or(self.begun);
        (!works).then(|| Silence { since, why: self.why() })
    }

    fn patience(&self) -> Duration {
        match &self.error {
            Some(ApiError::Forbidden(_) | ApiError::Unauthorized) if self.accepted.is_none() => {
                PATIENCE_REFUSED
            }
            _ => PATIENCE,
        }
    }

    /// Returns the last error.
    pub fn error(&self) -> Option<&ApiError> {
        self.error.as_ref()
    }

    /// Returns the last sign of life of the watch, or of the list before it.
    fn heard(&self) -> Instant {
        self.proven.map_or(self.page, |proven| proven.max(self.page))
    }

    fn why(&self) -> String {
        match &self.error {
            Some(error) => error.to_string(),
            None if self.has_missed => "it does not show changes that a list shows".to_owned(),
            // This is normal at a start, and a fault later.
            None if self.proven.is_none() => "it has shown nothing since the start".to_owned(),
            None => "no event and no bookmark".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
