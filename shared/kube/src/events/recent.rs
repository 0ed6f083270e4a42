//! A bounded cache.

use std::collections::HashMap;

/// A map of bounded size; it drops the least recently used entry first.
pub(super) struct Recent<V> {
    capacity: usize,
    /// The values, each with the number of its last use.
    values: HashMap<u64, (u64, V), ahash::RandomState>,
    uses: u64,
}

impl<V> Recent<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::default(), uses: 0 }
    }

    /// Returns the entry for this key; `make` creates a missing one.
    pub(super) fn get_or(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if self.values.len() >= self.capacity
            && !self.values.contains_key(&key)
            && let Some(oldest) = self.values.iter().min_by_key(|(_, (used, _))| *used)
        {
            // A search is fast enough: events are written one by one.
            let oldest = *oldest.0;
            self.values.remove(&oldest);
        }
        let (used, value) = self.values.entry(key).or_insert_with(|| (0, make()));
        *used = self.uses;
        value
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
        assert_eq!(recent.values.len(), 2);
    }
}
