//! Which nodes may be members.

use std::{collections::BTreeMap, fmt};

/// Labels that a node needs: `key=value`, or `key` alone with any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Selector(Vec<(String, Option<String>)>);

/// Whether each term can be a label of a node.
pub(super) fn is_valid(text: &str) -> bool {
    let is_name = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    let Selector(terms) = Selector::parse(text);
    terms.iter().all(|(key, value)| {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        let is_key = is_name(prefix) && !name.is_empty() && is_name(name);
        is_key && value.as_deref().is_none_or(is_name)
    })
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (key, value)) in self.0.iter().enumerate() {
            let before = if place > 0 { ", " } else { "" };
            match value {
                Some(value) => write!(f, "{before}{key}={value}")?,
                None => write!(f, "{before}{key}")?,
            }
        }
        Ok(())
    }
}

impl Selector {
    /// Returns true if it selects every node.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

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
