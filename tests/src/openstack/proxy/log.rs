//! The requests to the proxy, in order.

use std::collections::BTreeMap;

use http::Method;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::openstack::Service;

/// One request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The service.
    pub service: Service,
    /// GET, POST ..
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query without its question mark; empty if there is none.
    pub query: String,
    /// The user agent.
    pub user_agent: String,
    /// When.
    pub at: Instant,
    /// The answer's status; `None` before the answer, or if the connection was cut.
    pub status: Option<u16>,
}

impl Request {
    /// Returns true if it only asks a service for its versions, which login and discovery do.
    pub fn is_discovery(&self) -> bool {
        self.method == Method::GET && self.path.trim_matches('/').split('/').count() < 2
    }

    /// Returns service, method and path with `{id}` for every ID: the key of counts.
    pub fn pattern(&self) -> String {
        let parts: Vec<_> =
            self.path.split('/').map(|part| if is_id(part) { "{id}" } else { part }).collect();
        format!("{} {} {}", self.service, self.method, parts.join("/"))
    }
}

/// Returns true if a path segment is a number or a UUID, with or without hyphens.
fn is_id(part: &str) -> bool {
    let digits = !part.is_empty() && part.bytes().all(|letter| letter.is_ascii_digit());
    digits || uuid::Uuid::try_parse(part).is_ok()
}

/// Returns the number of requests of each pattern.
pub fn tally(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.pattern()).or_default() += 1;
    }
    counts
}

/// The requests so far, and the tokens that Keystone issued.
#[derive(Debug, Default)]
pub struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    requests: Vec<Request>,
    tokens: Vec<(String, String)>,
}

impl Log {
    /// Returns the requests from this number on whose user agent does not start with `scenario`,
    /// the user agent of the tests.
    pub fn since(&self, mark: usize) -> Vec<Request> {
        let entries = self.0.lock();
        let later = entries.requests.iter().skip(mark);
        later.filter(|request| !is_ours(&request.user_agent)).cloned().collect()
    }

    /// Returns all requests from this number on.
    pub fn of_all_since(&self, mark: usize) -> Vec<Request> {
        self.0.lock().requests.iter().skip(mark).cloned().collect()
    }

    /// Returns the number of requests so far, for [`Log::since`].
    pub fn mark(&self) -> usize {
        self.0.lock().requests.len()
    }

    /// Returns the last token that Keystone issued to a program, not to the tests.
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

    /// Records a token, and its user agent.
    pub(super) fn issued(&self, user_agent: &str, token: &str) {
        self.0.lock().tokens.push((user_agent.to_owned(), token.to_owned()));
    }
}

fn is_ours(user_agent: &str) -> bool {
    user_agent.starts_with(crate::openstack::http::USER_AGENT)
}
