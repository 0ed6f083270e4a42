//! The nodes that do not get pod CIDRs now, in the order in which they came. Decides which of them
//! a free block wakes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

/// The nodes, and why.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    last: u64,
    order: BTreeMap<u64, Name>,
    nodes: HashMap<Name, (u64, Option<String>)>,
    /// The nodes that get a turn only when a block is free.
    #[serde(default)]
    asleep: BTreeMap<u64, Name>,
    /// The nodes that a free block has woken, until they have their turn.
    #[serde(default)]
    woken: BTreeSet<Name>,
}

impl Waiting {
    /// Records that the node waits. Without a reason to be shown it waits for something normal.
    pub(super) fn insert(&mut self, name: &Name, why: Option<String>) {
        if let Some((_, known)) = self.nodes.get_mut(name) {
            *known = why;
            return;
        }
        self.last += 1;
        self.order.insert(self.last, Name::clone(name));
        self.nodes.insert(Name::clone(name), (self.last, why));
    }

    /// Records that the node waits only for a free block.
    pub(super) fn sleep(&mut self, name: &Name) {
        if let Some((number, _)) = self.nodes.get(name) {
            self.asleep.insert(*number, Name::clone(name));
        }
    }

    /// Records that the node has its turn.
    pub(super) fn begin_turn(&mut self, name: &str) {
        self.woken.remove(name);
        if let Some((number, _)) = self.nodes.get(name) {
            self.asleep.remove(number);
        }
    }

    /// Wakes those that have waited longest, one for each free block. A block for which a node is awake wakes no
    /// other one; it does if that node goes, or needs it no more.
    pub(super) fn wake(&mut self, free: u128) -> Vec<Name> {
        let mut new = Vec::new();
        while (self.woken.len() as u128) < free
            && let Some((_, name)) = self.asleep.pop_first()
        {
            self.woken.insert(Name::clone(&name));
            new.push(name);
        }
        new
    }

    /// Returns true if the node waits.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Removes a node that has got its pod CIDRs, or is gone. Returns whether it waited.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.begin_turn(name);
        let known = self.nodes.remove(name);
        known.is_some_and(|(number, _)| self.order.remove(&number).is_some())
    }

    /// Returns the names of all waiting nodes.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.order.values()
    }

    /// Returns why the node waits, if that should be shown.
    pub(super) fn why(&self, name: &str) -> Option<String> {
        self.nodes.get(name)?.1.clone()
    }

    /// Returns the number of waiting nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the nodes with a reason, and the reasons.
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
        let names = |waiting: &Waiting| {
            let names: Vec<String> = waiting.names().map(ToString::to_string).collect();
            names.join("")
        };
        assert_eq!(names(&waiting), "cab");
        assert_eq!(waiting.reasons().map(|(name, why)| (&**name, why)).next(), Some(("c", "full")));
        assert!(waiting.contains("c") && waiting.remove("c"));
        assert!(!waiting.contains("c") && !waiting.remove("c"));
        assert_eq!((names(&waiting), waiting.len(), waiting.why("c")), ("ab".to_owned(), 2, None));
    }

    #[test]
    fn a_free_block_wakes_the_node_that_has_waited_longest() {
        let mut waiting = Waiting::default();
        for name in ["c", "a", "b"] {
            waiting.insert(&name.into(), None);
            if name != "a" {
                waiting.sleep(&name.into());
            }
        }
        let woken = |waiting: &mut Waiting, free| {
            let names: Vec<String> = waiting.wake(free).iter().map(ToString::to_string).collect();
            names.join("")
        };
        assert_eq!(
            (woken(&mut waiting, 0), woken(&mut waiting, 1)),
            (String::new(), "c".to_owned())
        );
        assert_eq!(woken(&mut waiting, 1), "", "c is awake for it");
        // It is gone before its turn.
        waiting.remove("c");
        assert_eq!(woken(&mut waiting, 1), "b");
        waiting.begin_turn("b");
        waiting.sleep(&"b".into());
        assert_eq!(woken(&mut waiting, 9), "b", "it still waits");
    }
}
