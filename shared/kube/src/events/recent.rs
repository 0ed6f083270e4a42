//! A bounded cache.

use std::collections::{BTreeMap, HashMap};

/// A map of bounded size; it drops the least recently used entry first.
pub(super) struct Recent<V> {
    capacity: usize,
    values: HashMap<u64, (V, u64), ahash::RandomState>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl<V> Recent<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::default(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The entry for this key; `make` creates a missing one.
    pub(super) fn get_or(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let now = self.uses;
        if !self.values.contains_key(&key) && self.values.len() >= self.capacity {
            self.forget_one();
        }
        let (value, used) = self.values.entry(key).or_insert_with(|| (make(), now));
        self.by_use.remove(used);
        self.by_use.insert(now, key);
        *used = now;
        value
    }

    fn forget_one(&mut self) {
        if let Some((_, oldest)) = self.by_use.pop_first() {
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let mut recent = Recent::new(2);
        for key in [1, 2, 1, 3] {
            recent.get_or(key, || key);
        }
        for (key, expect) in [(1, 1), (3, 3), (2, 99)] {
            assert_eq!(*recent.get_or(key, || 99), expect, "{key}");
        }
        assert_eq!((recent.values.len(), recent.by_use.len()), (2, 2));
    }
}
