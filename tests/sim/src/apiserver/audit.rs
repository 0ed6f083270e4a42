//! The audit log: client, request, result and size of every request.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::request::{RequestInfo, Verb};

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with this HTTP status.
    Answered(u16),
    /// The connection was dropped without an answer.
    Dropped,
    /// The request has no answer yet: it is being handled, or a fault stalls it.
    Pending,
}

impl Outcome {
    /// Returns the HTTP status; 0 without one.
    pub fn code(self) -> u16 {
        match self {
            Self::Answered(code) => code,
            Self::Dropped | Self::Pending => 0,
        }
    }
}

/// The record of one request.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it arrived, as time since the server was created.
    pub at: Duration,
    /// The verb of the request.
    pub verb: Verb,
    /// Plural name, or empty for paths such as `/readyz`.
    pub resource: String,
    /// For instance `status`, or empty.
    pub subresource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Path with the query.
    pub uri: String,
    /// Header `User-Agent`.
    pub user_agent: String,
    /// The bearer token: it is not verified.
    pub user: String,
    /// Its result.
    pub outcome: Outcome,
    /// Length of the request's body.
    pub bytes_in: u64,
    /// Length of the response's body as sent; grows while a watch runs.
    pub bytes_out: u64,
}

impl Record {
    /// Returns the request in short, `patch nodes/status`: the key of the counts.
    pub fn what(&self) -> String {
        match self.subresource.as_str() {
            "" => format!("{} {}", self.verb, self.resource),
            subresource => format!("{} {}/{subresource}", self.verb, self.resource),
        }
    }
}

/// The log of all requests that went through the service or the listener. Helpers of
/// [`ApiServer`](super::ApiServer) that act directly are not recorded.
#[derive(Default)]
pub struct Audit {
    log: Mutex<Vec<Arc<Entry>>>,
}

/// A record that is still being updated.
pub(super) struct Entry {
    record: Mutex<Record>,
    bytes_out: AtomicU64,
}

impl Entry {
    pub(super) fn finish(&self, outcome: Outcome) {
        self.record.lock().outcome = outcome;
    }

    pub(super) fn received(&self, bytes: u64) {
        self.record.lock().bytes_in = bytes;
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Audit {
    pub(super) fn begin(&self, info: &RequestInfo, at: Duration) -> Arc<Entry> {
        let record = Record {
            at,
            verb: info.verb,
            resource: info.resource_name().to_owned(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            uri: info.uri.clone(),
            user_agent: info.user_agent.clone(),
            user: info.user().to_owned(),
            outcome: Outcome::Pending,
            bytes_in: 0,
            bytes_out: 0,
        };
        let entry = Arc::new(Entry { record: Mutex::new(record), bytes_out: AtomicU64::new(0) });
        self.log.lock().push(Arc::clone(&entry));
        entry
    }

    /// Returns everything since the last [`reset`](Self::reset), in order of arrival.
    pub fn records(&self) -> Vec<Record> {
        let entries = self.log.lock().clone();
        entries
            .iter()
            .map(|entry| {
                let mut record = entry.record.lock().clone();
                record.bytes_out = entry.bytes_out.load(Ordering::Relaxed);
                record
            })
            .collect()
    }

    /// Forgets all records, also of requests under way.
    pub fn reset(&self) {
        self.log.lock().clear();
    }

    /// Returns how many requests of user agents that start with `user_agent` used `verb` on
    /// `resource` or its subresources.
    pub fn count(&self, user_agent: &str, verb: Verb, resource: &str) -> usize {
        self.log
            .lock()
            .iter()
            .map(|entry| entry.record.lock())
            .filter(|record| {
                record.user_agent.starts_with(user_agent)
                    && record.verb == verb
                    && record.resource == resource
            })
            .count()
    }

    /// Counts by [`Record::what`] of user agents that start with `user_agent`.
    pub fn counts(&self, user_agent: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for record in self.records() {
            if record.user_agent.starts_with(user_agent) {
                *counts.entry(record.what()).or_insert(0) += 1;
            }
        }
        counts
    }

    /// Returns bytes in and bytes out of user agents that start with `user_agent`.
    pub fn bytes(&self, user_agent: &str) -> (u64, u64) {
        self.records().iter().filter(|record| record.user_agent.starts_with(user_agent)).fold(
            (0, 0),
            |(bytes_in, bytes_out), record| {
                (bytes_in + record.bytes_in, bytes_out + record.bytes_out)
            },
        )
    }
}
