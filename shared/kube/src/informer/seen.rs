//! What a list has shown so far.

use std::collections::HashSet;

use crate::node::Shared;

/// The names of the objects of a list that is being read.
#[derive(Default)]
pub(super) struct Seen(HashSet<Shared, ahash::RandomState>);

impl Seen {
    /// A list begins, perhaps because an earlier one broke off.
    pub(super) fn begin(&mut self) {
        self.0.clear();
    }

    pub(super) fn add(&mut self, key: &Shared) {
        self.0.insert(Shared::clone(key));
    }

    /// The list is complete.
    pub(super) fn end(&mut self) -> HashSet<Shared, ahash::RandomState> {
        std::mem::take(&mut self.0)
    }
}
