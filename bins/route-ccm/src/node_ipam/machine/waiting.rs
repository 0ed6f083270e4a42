//! The nodes that get no pod CIDRs now, in the order in which they came.

use std::collections::{BTreeMap, HashMap};

use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

/// The nodes, and why.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    last: u64,
    order: BTreeMap<u64, Name>,
    nodes: HashMap<Name, (u64, Option<String>)>,
}

impl Waiting {
    /// The node waits. Without a reason to be shown it waits for something normal.
    pub(super) fn insert(&mut self, name: &Name, why: Option<String>) {
        if let Some((_, known)) = self.nodes.get_mut(name) {
            *known = why;
            return;
        }
        self.last += 1;
        self.order.insert(self.last, Name::clone(name));
        self.nodes.insert(Name::clone(name), (self.last, why));
    }

    /// Whether the node waits.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// The node has got them, or is gone. Returns whether it waited.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let known = self.nodes.remove(name);
        known.is_some_and(|(number, _)| self.order.remove(&number).is_some())
    }

    /// Those that have waited longest, at most this many.
    pub(super) fn first(&self, count: u64) -> Vec<Name> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.order.values().take(count).cloned().collect()
    }

    /// Why the node waits, if that is to be shown.
    pub(super) fn why(&self, name: &str) -> Option<String> {
        self.nodes.get(name)?.1.clone()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Those with a reason, and their reasons.
    pub(super) fn reasons(&self) -> impl Iterator<Item = (&Name, &str)> {
        self.order.values().filter_map(|name| Some((name, self.nodes.get(name)?.1.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_first() {
        let mut waiting = Waiting::default();
        for name in ["c", "a", "b"] {
            waiting.insert(&name.into(), None);
        }
        waiting.insert(&"c".into(), Some("full".to_owned()));
        let names = |waiting: &Waiting, count| {
            let names: Vec<String> = waiting.first(count).iter().map(ToString::to_string).collect();
            names.join("")
        };
        assert_eq!(names(&waiting, 2), "ca");
        assert_eq!(waiting.reasons().map(|(name, why)| (&**name, why)).next(), Some(("c", "full")));
        assert!(waiting.contains("c") && waiting.remove("c"));
        assert!(!waiting.contains("c") && !waiting.remove("c"));
        assert_eq!(
            (names(&waiting, 9), waiting.len(), waiting.why("c")),
            ("ab".to_owned(), 2, None)
        );
    }
}
