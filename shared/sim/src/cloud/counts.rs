//! Counts calls as a cloud's bill would.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Operation;

/// Calls by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Lookups of up to 500 nodes each.
    pub lookup: u64,
    /// Pages of lists.
    pub list: u64,
    /// Health checks.
    pub health: u64,
    /// Nodes in all lookups together.
    pub nodes_looked_up: u64,
}

impl Calls {
    /// All calls.
    pub const fn total(&self) -> u64 {
        self.lookup + self.list + self.health
    }

    /// The calls made since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            lookup: self.lookup.saturating_sub(earlier.lookup),
            list: self.list.saturating_sub(earlier.list),
            health: self.health.saturating_sub(earlier.health),
            nodes_looked_up: self.nodes_looked_up.saturating_sub(earlier.nodes_looked_up),
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lookup, list, health, nodes_looked_up } = self;
        write!(
            f,
            "{lookup} lookups of {nodes_looked_up} nodes, {list} list pages, {health} health checks"
        )
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter {
    lookup: AtomicU64,
    list: AtomicU64,
    health: AtomicU64,
    nodes: AtomicU64,
}

impl Counter {
    pub(super) fn count(&self, operation: Operation, nodes: usize) {
        let counter = match operation {
            Operation::Lookup => &self.lookup,
            Operation::List => &self.list,
            Operation::Health => &self.health,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.nodes.fetch_add(u64::try_from(nodes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Calls {
        self.collect(|counter| counter.load(Ordering::Relaxed))
    }

    pub(super) fn reset(&self) -> Calls {
        self.collect(|counter| counter.swap(0, Ordering::Relaxed))
    }

    fn collect(&self, take: impl Fn(&AtomicU64) -> u64) -> Calls {
        Calls {
            lookup: take(&self.lookup),
            list: take(&self.list),
            health: take(&self.health),
            nodes_looked_up: take(&self.nodes),
        }
    }
}
