//! The table as listed, with later changes, and the time to list it again.

use std::{collections::BTreeMap, mem, time::Duration};

use ccm_base::{At, Backoff, Waits};
use ccm_cloud::{AppliedChange, CloudError, ErrorKind, RouteChange, RouteTable};
use ccm_runtime::explain::{moment, since};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::routes::plan::{
    failures::{WAITS, is_conflict},
    in_flight::InFlight,
    retry::Retry,
    table::Table,
};

/// The waits after a list that has failed.
const RETRY: Waits = Waits {
    asked: (Duration::from_secs(5), Duration::MAX),
    ..Waits::within(Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(1) })
};
/// The wait before a list because of an unexpected answer, since others may follow. The change is
/// tried again after the list.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The wait before a list because others have changed the table, after the first such list. Nodes
/// wait for it.
const CONFLICTS: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// The time between two lists while nodes wait for room in the table, which others may make.
const FULL: Duration = Duration::from_mins(1);
/// How long the cloud may still be making a route that lists lack: the longest pause between two
/// attempts to make it.
const MAKING: Duration = WAITS.backoff.longest;

/// The route table as route-ccm knows it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Listing {
    /// `None` until the first list.
    pub(super) table: Option<Table>,
    /// The changes since the list that is under way began.
    changed_since: Option<Vec<(RouteChange, AppliedChange)>>,
    /// When the current or the last list began.
    read_at: At,
    /// When the list that has shown the table began, or the epoch if an older version has listed
    /// it.
    #[serde(default)]
    pub(super) seen_at: At,
    /// The destinations of changes that have failed but may be carried out. A list that begins later than
    /// this shows whether they are: after the answer, or when the cloud should have made what it was
    /// still making.
    doubted: BTreeMap<IpNet, At>,
    /// When to list. It follows the end of the last list.
    list_at: At,
    ended_at: At,
    /// When to list because of an answer.
    look_at: Option<At>,
    /// True if others have changed the table since the last list began, so that its version is
    /// useless.
    pub(super) is_stale: bool,
    /// The number of lists in a row that have begun because the table was stale, without a change
    /// by this process in between.
    conflicts: u32,
    /// The lists in a row that have failed.
    failed: Retry,
    /// The error of the last list, if it has failed.
    pub(super) error: Option<CloudError>,
    /// The entries of the table that could not be read.
    #[serde(default)]
    pub(super) malformed: Vec<String>,
}

impl Listing {
    /// Creates the listing. Nothing is known yet: a list is due now.
    pub(super) fn new(now: At) -> Self {
        Self { read_at: now, list_at: now, ended_at: now, ..Self::default() }
    }

    /// Begins a list if one is due. Returns true if it does.
    pub(super) fn begin(&mut self, now: At) -> bool {
        if self.next().is_none_or(|due| now < due) {
            return false;
        }
        self.look_at = None;
        self.conflicts += u32::from(self.is_stale);
        self.changed_since = Some(Vec::new());
        self.read_at = now;
        true
    }

    /// Records that the period has changed: a shorter one holds at once.
    pub(super) fn within(&mut self, period: Duration) {
        self.list_at = self.list_at.min(self.ended_at + period);
    }

    /// Records that nodes wait for room.
    pub(super) fn wait_for_room(&mut self) {
        self.list_at = self.list_at.min(self.read_at + FULL);
    }

    /// Returns when the next list is due; `None` while one is under way.
    pub(super) fn next(&self) -> Option<At> {
        let due = self.look_at.map_or(self.list_at, |look| look.min(self.list_at));
        self.changed_since.is_none().then_some(due)
    }

    /// Records that a list has ended. Returns true if it was the first one that succeeded.
    pub(super) fn ended(
        &mut self,
        now: At,
        answer: Result<RouteTable, CloudError>,
        period: Duration,
    ) -> bool {
        let changes = self.changed_since.take().unwrap_or_default();
        self.ended_at = now;
        match answer {
            Ok(mut listed) => {
                self.malformed = mem::take(&mut listed.malformed);
                let mut table = Table::from(listed);
                // The list may be older than the changes.
                for (change, applied) in &changes {
                    table.apply(change, applied);
                }
                (self.failed, self.error) = (Retry::default(), None);
                self.seen_at = self.read_at;
                self.doubted.retain(|_, until| *until >= self.read_at);
                self.list_at = now + period;
                // This does not hold if the change was seen after the list had begun.
                self.is_stale &= self.look_at.is_some();
                self.table.replace(table).is_none()
            }
            Err(error) => {
                self.list_at =
                    now + self.failed.record_failure(now, &RETRY, error.class()).min(period);
                self.error = Some(error);
                false
            }
        }
    }

    /// Learns from the answer to a change. `must_look`: the table must be listed before the next plan.
    pub(super) fn record_answer(
        &mut self,
        now: At,
        change: &RouteChange,
        answer: &Result<AppliedChange, CloudError>,
        must_look: bool,
    ) {
        if let Some(error) = answer.as_ref().err().filter(|error| error.maybe_done) {
            let is_deletion = matches!(change, RouteChange::Delete(_));
            let is_made = error.kind == ErrorKind::Pending && !is_deletion;
            let until = self.doubted.entry(change.destination()).or_default();
            let making = MAKING.max(error.retry_after.unwrap_or_default());
            *until = (*until).max(if is_made { now + making } else { now });
        }
        if must_look {
            let is_conflict = answer.as_ref().is_err_and(is_conflict);
            let asked = answer.as_ref().err().filter(|error| error.kind == ErrorKind::Pending);
            let wait = match (is_conflict, self.conflicts) {
                (false, _) => {
                    asked.and_then(|error| error.retry_after).unwrap_or_default().max(LOOK_AGAIN)
                }
                (true, 0) => Duration::ZERO,
                (true, before) => CONFLICTS.after(before),
            };
            self.is_stale |= is_conflict;
            let due = now + wait;
            self.look_at = Some(self.look_at.map_or(due, |look| look.min(due)));
        }
        if let Ok(applied) = answer {
            self.conflicts = 0;
            if !matches!(change, RouteChange::Delete(_)) {
                // The cloud has made it, so the next list shows what became of it.
                self.doubted
                    .entry(change.destination())
                    .and_modify(|until| *until = now.min(*until));
            }
            if let Some(table) = &mut self.table {
                table.apply(change, applied);
            }
            if let Some(changes) = &mut self.changed_since {
                changes.push((change.clone(), applied.clone()));
            }
        }
    }

    /// Returns the destinations of all routes, with those that are being made, and when the table
    /// was read; `None` before the first list.
    pub(super) fn destinations(&self, in_flight: &InFlight) -> Option<(Vec<IpNet>, At)> {
        let table = self.table.as_ref()?;
        let made = in_flight.destinations().chain(self.doubted.keys().copied());
        let unreadable = self.malformed.iter().flat_map(|line| destinations_in(line));
        Some((table.destinations().chain(made).chain(unreadable).collect(), self.read_at))
    }

    /// Returns true if the table does not have a route to this destination, nor an entry about it that cannot
    /// be read, and route-ccm is not making one.
    pub(super) fn has_no_route(&self, destination: IpNet, in_flight: &InFlight) -> bool {
        let is_absent = |table: &Table| table.to(destination).is_empty();
        self.table.as_ref().is_some_and(is_absent)
            && !in_flight.contains(destination)
            && !self.doubted.contains_key(&destination)
            && self.unreadable(destination).is_none()
    }

    /// Returns the provider's words about the entry of this destination, if they cannot be read.
    pub(super) fn unreadable(&self, destination: IpNet) -> Option<&str> {
        let is_about = |line: &&String| destinations_in(line).any(|one| one == destination);
        self.malformed.iter().find(is_about).map(String::as_str)
    }

    /// Returns the reason why the table is not known yet.
    pub(super) fn why_unlisted(&self) -> String {
        match &self.error {
            Some(error) => format!("cannot list the routes: {error}"),
            None => "the routes are not listed yet".to_owned(),
        }
    }

    /// Returns which list has shown the table, and since when a list is under way, if one is.
    pub(super) fn known_by(&self, now: At) -> String {
        let began = match self.seen_at {
            at if at == At::default() => "an earlier list of the cloud's routes".to_owned(),
            at => format!("the list of the cloud's routes that began {}", moment(at, now)),
        };
        let failed = self.error.as_ref().map(|error| {
            let ended = moment(self.ended_at, now);
            format!("; the last list has failed ({ended}): {error}")
        });
        let unread = self.malformed.first().map(|first| {
            format!("; {} more entries cannot be read, first: {first}", self.malformed.len())
        });
        let (unread, failed) = (unread.unwrap_or_default(), failed.unwrap_or_default());
        format!("{began}, and the answers since{unread}{failed}")
    }

    /// Returns when the table is listed again.
    pub(super) fn next_list(&self, now: At) -> String {
        match self.next() {
            Some(at) if at > now => format!("the cloud's routes are listed {}", moment(at, now)),
            Some(at) => format!("a list is due {}", since(at, now)),
            None => format!("a list is under way, {}", since(self.read_at, now)),
        }
    }

    /// Returns true if the last list has shown what others have changed, and no change has succeeded since.
    pub(super) const fn is_after_conflict(&self) -> bool {
        self.conflicts > 0 && !self.is_stale
    }
}

/// Returns the destinations that the provider's words about an entry name.
fn destinations_in(line: &str) -> impl Iterator<Item = IpNet> {
    let words = line.split(|one: char| !one.is_ascii_hexdigit() && !".:/".contains(one));
    words.filter_map(|word| word.parse::<IpNet>().ok()).map(|network| network.trunc())
}
