//! Which nodes may be members.

use std::collections::BTreeMap;

/// Labels that a node needs: `key=value`, or `key` alone with any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Selector(Vec<(String, Option<String>)>);

impl Selector {
    /// Reads `key=value,key2`. The empty text is every node.
    pub(in super::super) fn parse(text: &str) -> Self {
        let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
        let read = |term: &str| match term.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), Some(value.trim().to_owned())),
            None => (term.to_owned(), None),
        };
        Self(terms.map(read).collect())
    }

    /// Whether a node with these labels may be a member.
    pub(in super::super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| match (labels.get(key), value) {
            (Some(label), Some(value)) => label == value,
            (label, None) => label.is_some(),
            (None, Some(_)) => false,
        })
    }
}
