//! Interned strings that thousands of nodes share.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;

use ccm_objects::Shared;

/// Longer texts are rarely shared.
const LONGEST: usize = 96;

/// When the table reaches this size, unused entries are dropped.
const SWEEP_AT: usize = 8192;

struct Table {
    texts: HashSet<Shared, ahash::RandomState>,
    sweep_at: usize,
}

static TABLE: LazyLock<Mutex<Table>> =
    LazyLock::new(|| Mutex::new(Table { texts: HashSet::default(), sweep_at: SWEEP_AT }));

/// Returns the shared copy of this text.
pub fn intern(text: &str) -> Shared {
    if text.len() > LONGEST {
        return text.into();
    }
    let mut table = TABLE.lock();
    if let Some(shared) = table.texts.get(text) {
        return Arc::clone(shared);
    }
    if table.texts.len() >= table.sweep_at {
        table.texts.retain(|text| Arc::strong_count(text) > 1);
        // Doubling keeps the cost of sweeping proportional to the additions.
        table.sweep_at = (table.texts.len() * 2).max(SWEEP_AT);
    }
    let shared: Shared = text.into();
    table.texts.insert(Arc::clone(&shared));
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        assert!(Arc::ptr_eq(&intern("zone-1"), &intern("zone-1")));
        for number in 0..3 * SWEEP_AT {
            intern(&format!("name-{number}"));
        }
        assert!(TABLE.lock().texts.len() <= 2 * SWEEP_AT, "the table is bounded");
    }
}
