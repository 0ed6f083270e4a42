//! Reads the pages of a remote provider's list, in bounded number and never in a circle.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{CloudError, ErrorKind};

use super::weight::Budget;

/// The maximum number of pages; a server with more never ends its list.
const MAX_PAGES: usize = 10_000;
/// The maximum length of a token, in bytes.
const LONGEST_TOKEN: usize = 4 << 10;

/// The page of a list to request next.
pub struct Pages {
    /// The listed objects, for messages.
    what: &'static str,
    next: Option<String>,
    /// The hashes of the tokens so far.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// Counts the memory of all pages.
    pub budget: Budget,
}

impl Pages {
    /// Creates the first page.
    pub fn new(what: &'static str) -> Self {
        let (seen, hasher) = (HashSet::new(), RandomState::new());
        Self { what, next: Some(String::new()), seen, hasher, budget: Budget::default() }
    }

    /// Returns the token of the next page; `None` after the last one.
    pub fn next(&mut self) -> Option<String> {
        self.next.take()
    }

    /// Continues with the page that has this token, if it is not empty.
    pub fn follow(&mut self, token: Option<String>) -> Result<(), CloudError> {
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(()) };
        if token.len() > LONGEST_TOKEN {
            let length = token.len();
            return Err(self.wrong(&format!(
                "names a next page with a token of {length} bytes, more than {LONGEST_TOKEN}"
            )));
        }
        if !self.seen.insert(self.hasher.hash_one(&token)) {
            return Err(self.wrong("names the same next page twice"));
        }
        if self.seen.len() >= MAX_PAGES {
            return Err(self.wrong(&format!("has more than {MAX_PAGES} pages")));
        }
        self.next = Some(token);
        Ok(())
    }

    fn wrong(&self, what: &str) -> CloudError {
        CloudError::new(ErrorKind::Malformed, format!("the list of {} {what}", self.what))
    }
}

/// Returns the lines about entries that a provider could not parse.
pub fn lines(malformed: &[String]) -> impl Iterator<Item = String> {
    malformed.iter().map(|line| one_line(line, LONGEST_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(outcome: Result<(), CloudError>) -> String {
        outcome.expect_err("a wrong list").message
    }

    #[test]
    fn tokens_are_short_and_each_one_comes_once() {
        let mut pages = Pages::new("routes");
        assert_eq!(pages.next().as_deref(), Some(""));
        let longest = "x".repeat(LONGEST_TOKEN);
        for token in ["a", "b", &longest] {
            pages.follow(Some(token.to_owned())).expect("a page");
            assert_eq!(pages.next().as_deref(), Some(token));
        }
        let text = error(pages.follow(Some("a".to_owned())));
        assert_eq!(text, "the list of routes names the same next page twice");
        let text = error(pages.follow(Some("x".repeat(LONGEST_TOKEN + 1))));
        assert!(text.contains("a token of 4097 bytes, more than 4096"), "{text}");
        assert_eq!(pages.next(), None);
        pages.follow(Some(String::new())).expect("the last page");
        assert_eq!(pages.next(), None);
    }

    #[test]
    fn a_list_ends() {
        let mut pages = Pages::new("routes");
        let wrong = (0..).find_map(|at: usize| pages.follow(Some(at.to_string())).err());
        assert!(wrong.is_some_and(|wrong| wrong.message.contains("more than 10000 pages")));
    }
}
