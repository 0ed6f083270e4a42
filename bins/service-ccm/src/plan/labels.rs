//! The labels of nodes that count: load balancers select their members by them.

use std::collections::{BTreeMap, BTreeSet};

use ccm_cloud::NodeSelector;
use ccm_objects::Labels;
use serde::{Deserialize, Serialize};

/// The maximum number of keys that are distinguished. Tenants choose the keys.
const MOST: usize = 100;

/// The keys of the labels for which any selector asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelKeys {
    keys: BTreeSet<String>,
    /// True if any key may be one: too many are, or only the provider knows.
    are_all: bool,
}

impl LabelKeys {
    /// Returns true if a key for which this selector asks is not among them.
    pub fn lack(&self, selector: &NodeSelector) -> bool {
        let is_new = selector.terms().any(|(key, _)| !self.has(key));
        is_new || selector.is_opaque() && !self.are_all
    }

    /// Adds the keys of this selector.
    pub fn add(&mut self, selector: &NodeSelector) {
        self.keys.extend(selector.terms().map(|(key, _)| key.to_owned()));
        if selector.is_opaque() || self.keys.len() > MOST {
            *self = Self { keys: BTreeSet::new(), are_all: true };
        }
    }

    /// Returns true if a label with this key counts.
    pub fn has(&self, key: &str) -> bool {
        self.are_all || self.keys.contains(key)
    }

    /// Returns the labels that count.
    pub fn filter(&self, labels: &Labels) -> BTreeMap<String, String> {
        let counting = labels.iter().filter(|(key, _)| self.has(key));
        counting.map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_selectors_count() {
        let labels: Labels = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
        let mut keys = LabelKeys::default();
        assert!(keys.filter(&labels).is_empty() && !keys.lack(&NodeSelector::default()));
        assert!(keys.lack(&NodeSelector::parse("a=1")));
        keys.add(&NodeSelector::parse("a=1"));
        assert!(!keys.lack(&NodeSelector::parse("a=2")));
        assert_eq!(keys.filter(&labels).keys().collect::<Vec<_>>(), ["a"]);
        for number in 0..MOST {
            keys.add(&NodeSelector::parse(&format!("key-{number}")));
        }
        assert!(keys.are_all);
        let mut keys = LabelKeys::default();
        assert!(keys.lack(&NodeSelector::opaque()));
        keys.add(&NodeSelector::opaque());
        assert!(!keys.lack(&NodeSelector::opaque()) && !keys.lack(&NodeSelector::parse("a")));
        assert_eq!(keys.filter(&labels).len(), 2);
    }
}
