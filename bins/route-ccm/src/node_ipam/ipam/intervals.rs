//! A set of numbers as intervals. Its memory depends on the number of gaps, and not on the size of
//! the set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Disjoint intervals with both ends in them, by their first number. Neighbours are merged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Intervals(BTreeMap<u128, u128>);

impl Intervals {
    /// Adds all numbers of an interval. Returns how many are new.
    pub(super) fn insert(&mut self, first: u128, last: u128) -> u128 {
        let (mut low, mut high, mut known) = (first, last, 0);
        for (start, end) in self.touching(first.saturating_sub(1), last.saturating_add(1)) {
            self.0.remove(&start);
            known += overlap((start, end), (first, last));
            low = low.min(start);
            high = high.max(end);
        }
        self.0.insert(low, high);
        count(first, last).saturating_sub(known)
    }

    /// Removes all numbers of an interval. Returns how many were there.
    pub(super) fn remove(&mut self, first: u128, last: u128) -> u128 {
        let mut removed = 0;
        for (start, end) in self.touching(first, last) {
            self.0.remove(&start);
            removed += overlap((start, end), (first, last));
            if start < first {
                self.0.insert(start, first - 1);
            }
            if end > last {
                self.0.insert(last + 1, end);
            }
        }
        removed
    }

    /// Returns the first number from `from` on that is not in the set.
    pub(super) fn next_absent(&self, from: u128) -> Option<u128> {
        match self.0.range(..=from).next_back() {
            Some((_, end)) if *end >= from => end.checked_add(1),
            _ => Some(from),
        }
    }

    fn touching(&self, first: u128, last: u128) -> Vec<(u128, u128)> {
        let below = self.0.range(..=last).rev().map(|(start, end)| (*start, *end));
        below.take_while(|(_, end)| *end >= first).collect()
    }
}

fn overlap(one: (u128, u128), other: (u128, u128)) -> u128 {
    let (first, last) = (one.0.max(other.0), one.1.min(other.1));
    if first > last { 0 } else { count(first, last) }
}

/// Returns the number of entries. All 2^128 numbers count as one less.
fn count(first: u128, last: u128) -> u128 {
    (last - first).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..40_u128, 0..12_u128), 0..60)) {
            let (mut set, mut model) = (Intervals::default(), BTreeSet::new());
            for (adds, first, more) in steps {
                let last = first + more;
                let before = model.len();
                let changed = if adds {
                    model.extend(first..=last);
                    set.insert(first, last)
                } else {
                    model.retain(|number| !(first..=last).contains(number));
                    set.remove(first, last)
                };
                prop_assert_eq!(changed, u128::try_from(model.len().abs_diff(before)).unwrap());
                for from in 0..60 {
                    let absent = (from..=99).find(|number| !model.contains(number));
                    prop_assert_eq!(set.next_absent(from), absent);
                }
                let gaps = model.iter().filter(|number| !model.contains(&(*number + 1))).count();
                prop_assert_eq!(set.0.len(), gaps);
            }
        }
    }

    #[test]
    fn the_ends_of_all_numbers_are_numbers_as_well() {
        let mut set = Intervals::default();
        assert_eq!(set.insert(0, u128::MAX), u128::MAX);
        assert_eq!(set.next_absent(0), None);
        assert_eq!(set.remove(u128::MAX, u128::MAX), 1);
        assert_eq!(set.next_absent(0), Some(u128::MAX));
        assert_eq!(set.insert(u128::MAX, u128::MAX), 1);
        assert_eq!((set.remove(0, 0), set.next_absent(0)), (1, Some(0)));
    }
}
