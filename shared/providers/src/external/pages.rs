//! The pages of a remote provider's list: bounded, and never in a circle.

use std::collections::BTreeSet;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{CloudError, ErrorKind};

/// The maximum number of pages; a server with more never ends its list.
const MAX_PAGES: usize = 10_000;

/// Which page of a list to request next.
pub(super) struct Pages {
    /// What is listed, for messages.
    what: &'static str,
    next: Option<String>,
    seen: BTreeSet<String>,
}

impl Pages {
    /// The first page.
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, next: Some(String::new()), seen: BTreeSet::new() }
    }

    /// The token of the next page; `None` after the last one.
    pub(super) fn next(&mut self) -> Option<String> {
        self.next.take()
    }

    /// Continues with the page that has this token, if it is not empty.
    pub(super) fn follow(&mut self, token: Option<String>) -> Result<(), CloudError> {
        self.next = token.filter(|token| !token.is_empty());
        let Some(next) = &self.next else { return Ok(()) };
        let wrong = if !self.seen.insert(next.clone()) {
            "names the same next page twice".to_owned()
        } else if self.seen.len() >= MAX_PAGES {
            format!("has more than {MAX_PAGES} pages")
        } else {
            return Ok(());
        };
        let what = format!("the list of {} {wrong}", self.what);
        Err(CloudError::new(ErrorKind::Malformed, what))
    }
}

/// The lines about entries that a provider could not parse.
pub(super) fn lines(malformed: &[String]) -> impl Iterator<Item = String> {
    malformed.iter().map(|line| one_line(line, LONGEST_LINE))
}
