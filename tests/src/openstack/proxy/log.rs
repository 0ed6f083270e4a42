//! What the proxy was asked, in order.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::openstack::Service;

/// One request that has reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom it was for.
    pub service: Service,
    /// GET, POST ..
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query without its question mark; empty if there is none.
    pub query: String,
    /// Who asked.
    pub user_agent: String,
    /// When.
    pub at: Instant,
    /// The answer's status; none while there is none, or when the connection was cut.
    pub status: Option<u16>,
}

impl Request {
    /// Service, method and path with `{id}` for every ID: what requests are counted by.
    pub fn pattern(&self) -> String {
        let parts: Vec<_> =
            self.path.split('/').map(|part| if is_id(part) { "{id}" } else { part }).collect();
        format!("{} {} {}", self.service, self.method, parts.join("/"))
    }
}

/// Whether a part of a path is a number or a UUID, with or without hyphens.
fn is_id(part: &str) -> bool {
    let digits = !part.is_empty() && part.bytes().all(|letter| letter.is_ascii_digit());
    digits || uuid::Uuid::try_parse(part).is_ok()
}

/// How many requests of each pattern.
pub fn tally(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.pattern()).or_default() += 1;
    }
    counts
}

/// The requests so far, and the tokens that Keystone gave out.
#[derive(Debug, Default)]
pub struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    requests: Vec<Request>,
    tokens: Vec<(String, String)>,
}

impl Log {
    /// All requests of callers whose user agent does not start with `scenario`, which is
    /// that of the tests themselves, from the one of this number on.
    pub fn since(&self, mark: usize) -> Vec<Request> {
        let entries = self.0.lock();
        let later = entries.requests.iter().skip(mark);
        later.filter(|request| !is_ours(&request.user_agent)).cloned().collect()
    }

    /// The requests of everybody, from the one of this number on.
    pub fn of_all_since(&self, mark: usize) -> Vec<Request> {
        self.0.lock().requests.iter().skip(mark).cloned().collect()
    }

    /// How many requests there were, to give to [`Log::since`] later.
    pub fn mark(&self) -> usize {
        self.0.lock().requests.len()
    }

    /// The token that was given out last, but for those of the tests themselves.
    pub fn last_token(&self) -> Option<String> {
        let entries = self.0.lock();
        let theirs = entries.tokens.iter().rev().find(|(user_agent, _)| !is_ours(user_agent));
        theirs.map(|(_, token)| token.clone())
    }

    /// Notes a request, and returns its number for [`Log::answered`].
    pub(super) fn asked(&self, request: Request) -> usize {
        let mut entries = self.0.lock();
        entries.requests.push(request);
        entries.requests.len() - 1
    }

    /// Notes the answer's status.
    pub(super) fn answered(&self, number: usize, status: u16) {
        if let Some(request) = self.0.lock().requests.get_mut(number) {
            request.status = Some(status);
        }
    }

    /// Notes a token, and to whom it was given.
    pub(super) fn issued(&self, user_agent: &str, token: &str) {
        self.0.lock().tokens.push((user_agent.to_owned(), token.to_owned()));
    }
}

fn is_ours(user_agent: &str) -> bool {
    user_agent.starts_with(crate::openstack::http::USER_AGENT)
}
