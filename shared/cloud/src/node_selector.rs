//! Selects the nodes that may be members of a load balancer, by their labels.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// The labels that a node needs to be a member. Without any, every node may be one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelector {
    terms: Vec<(String, Option<String>)>,
    is_opaque: bool,
}

impl NodeSelector {
    /// Reads `key=value,key2`: a label with this value, and one with any value. The empty text
    /// selects every node.
    pub fn parse(text: &str) -> Self {
        let terms = text.split(',').map(str::trim).filter(|term| !term.is_empty());
        let read = |term: &str| match term.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), Some(value.trim().to_owned())),
            None => (term.to_owned(), None),
        };
        Self { terms: terms.map(read).collect(), is_opaque: false }
    }

    /// Selects every node.
    pub const fn every() -> Self {
        Self { terms: Vec::new(), is_opaque: false }
    }

    /// Returns a selector that only the provider can evaluate: each label may decide.
    pub const fn opaque() -> Self {
        Self { terms: Vec::new(), is_opaque: true }
    }

    /// Returns true if only the provider can evaluate it.
    pub const fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Returns true if it selects every node.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && !self.is_opaque
    }

    /// Returns the labels that it asks for: the key, and the value or `None` for any value.
    pub fn terms(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.terms.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }

    /// Returns true if a node with these labels may be a member. Always true if only the provider
    /// knows.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms().all(|(key, value)| match (labels.get(key), value) {
            (Some(label), Some(value)) => label == value,
            (label, None) => label.is_some(),
            (None, Some(_)) => false,
        })
    }

    /// Returns these labels with those that it asks for.
    #[must_use]
    pub fn fulfilled(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = labels.clone();
        for (key, value) in self.terms() {
            match value {
                Some(value) => drop(all.insert(key.to_owned(), value.to_owned())),
                None => drop(all.entry(key.to_owned()).or_default()),
            }
        }
        all
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (key, value)) in self.terms().enumerate() {
            let before = if place > 0 { ", " } else { "" };
            match value {
                Some(value) => write!(f, "{before}{key}={value}")?,
                None => write!(f, "{before}{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_needs_each_label() {
        let labels: BTreeMap<String, String> =
            [("pool".to_owned(), "edge".to_owned()), ("zone".to_owned(), String::new())].into();
        for (text, fits) in [
            ("", true),
            ("pool", true),
            ("pool=edge, zone", true),
            ("pool=edge,zone=a", false),
            ("rack", false),
        ] {
            let selector = NodeSelector::parse(text);
            assert_eq!(selector.matches(&labels), fits, "{text:?}");
            assert!(selector.matches(&selector.fulfilled(&labels)), "{text:?}");
            assert_eq!(selector.is_empty(), text.is_empty());
        }
        assert!(NodeSelector::opaque().matches(&labels) && !NodeSelector::opaque().is_empty());
    }
}
