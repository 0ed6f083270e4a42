//! The waiting keys of one priority: groups take turns, and the keys of a group are ordered by age.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The group of a key: keys of one group share a turn. A hash identifies the group.
pub(super) type Group<K> = fn(&K) -> u64;

/// Waiting keys.
#[derive(Debug)]
pub(super) struct FairLine<K> {
    group: Group<K>,
    by_age: BTreeMap<u64, K>,
    /// The sequence numbers of the keys of each group. A group in `turns` is also here, even if all
    /// its keys have left in other ways.
    groups: HashMap<u64, BTreeSet<u64>>,
    /// The groups in the order of their turns. A new one comes last, so that a group that comes and
    /// goes does not take the turns of others.
    turns: VecDeque<u64>,
}

impl<K> FairLine<K> {
    pub(super) fn new(group: Group<K>) -> Self {
        let (by_age, groups, turns) = Default::default();
        Self { group, by_age, groups, turns }
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    pub(super) fn insert(&mut self, seq: u64, key: K) {
        let group = (self.group)(&key);
        self.by_age.insert(seq, key);
        let turns = &mut self.turns;
        let keys = self.groups.entry(group).or_insert_with(|| {
            turns.push_back(group);
            BTreeSet::new()
        });
        keys.insert(seq);
    }

    pub(super) fn remove(&mut self, seq: u64) {
        if let Some(key) = self.by_age.remove(&seq)
            && let Some(keys) = self.groups.get_mut(&(self.group)(&key))
        {
            keys.remove(&seq);
        }
    }

    /// Takes the oldest key of the group whose turn it is.
    pub(super) fn pop(&mut self) -> Option<K> {
        loop {
            let group = self.turns.pop_front()?;
            let keys = self.groups.get_mut(&group)?;
            let Some(seq) = keys.pop_first() else {
                self.groups.remove(&group);
                continue;
            };
            if keys.is_empty() {
                self.groups.remove(&group);
            } else {
                self.turns.push_back(group);
            }
            return self.by_age.remove(&seq);
        }
    }

    /// Returns the keys, the oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = &K> {
        self.by_age.values()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns() {
        let mut line: FairLine<u64> = FairLine::new(|key| key / 100);
        for key in (100..110).chain([200, 201]) {
            line.insert(key, key);
        }
        let mut taken = vec![line.pop(), line.pop(), line.pop()];
        // Another group joins: its turn comes after one key of each other group.
        line.insert(500, 300);
        line.remove(103);
        taken.extend([line.pop(), line.pop(), line.pop(), line.pop(), line.pop()]);
        let taken: Vec<u64> = taken.into_iter().flatten().collect();
        assert_eq!(taken, [100, 200, 101, 201, 102, 300, 104, 105]);
        assert_eq!(line.len(), 4);
        (0..4).for_each(|_| assert!(line.pop().is_some()));
        assert!(line.pop().is_none() && line.is_empty());
        assert!(line.groups.is_empty() && line.turns.is_empty(), "nothing is left behind");
    }
}
