//! Counts calls as a cloud's bill would.

use std::{fmt, mem};

use parking_lot::Mutex;

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
    /// Calls about load balancers.
    pub load_balancers: LoadBalancerCalls,
    /// Calls about routes.
    pub routes: RouteCalls,
}

/// Calls about routes by operation. A batch is one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCalls {
    /// Pages of lists.
    pub list: u64,
    /// Batches of changes: the writes.
    pub apply: u64,
    /// Lookups of targets.
    pub find_targets: u64,
    /// Changes and targets in all of these batches together.
    pub items: u64,
}

impl RouteCalls {
    /// Returns all calls.
    pub const fn total(&self) -> u64 {
        self.list + self.apply + self.find_targets
    }
}

/// Calls about load balancers by operation. A batch is one call; what it changes in the cloud
/// is in [`Balancers::writes`](super::Balancers::writes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerCalls {
    /// Pages of lists.
    pub list: u64,
    /// Batches to create or to bring up to date.
    pub ensure: u64,
    /// Batches to preview.
    pub preview: u64,
    /// Batches of changes of members.
    pub set_members: u64,
    /// Batches to delete.
    pub delete: u64,
    /// Load balancers in all of these batches together.
    pub items: u64,
}

impl LoadBalancerCalls {
    /// Returns all calls.
    pub const fn total(&self) -> u64 {
        self.list + self.ensure + self.preview + self.set_members + self.delete
    }
}

impl Calls {
    /// Returns all calls.
    pub const fn total(&self) -> u64 {
        self.lookup + self.list + self.health + self.load_balancers.total() + self.routes.total()
    }

    /// Returns the calls made since `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        let mut earlier = *earlier;
        for (count, before) in self.all().into_iter().zip(earlier.all()) {
            *count = count.saturating_sub(*before);
        }
        self
    }

    fn all(&mut self) -> [&mut u64; 14] {
        let Self { lookup, list, health, nodes_looked_up, load_balancers, routes } = self;
        let LoadBalancerCalls { list: lists, ensure, preview, set_members, delete, items } =
            load_balancers;
        let RouteCalls { list: tables, apply, find_targets, items: changes } = routes;
        [
            lookup,
            list,
            health,
            nodes_looked_up,
            lists,
            ensure,
            preview,
            set_members,
            delete,
            items,
            tables,
            apply,
            find_targets,
            changes,
        ]
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lookup, list, health, nodes_looked_up, load_balancers, routes } = self;
        write!(
            f,
            "{lookup} lookups of {nodes_looked_up} nodes, {list} list pages, {health} health checks"
        )?;
        if load_balancers.total() > 0 {
            let LoadBalancerCalls { list, ensure, preview, set_members, delete, items } =
                load_balancers;
            write!(
                f,
                "; load balancers: {list} list pages, {ensure} ensures, {preview} previews, \
                 {set_members} changes of members and {delete} deletions of {items} in all"
            )?;
        }
        if routes.total() > 0 {
            let RouteCalls { list, apply, find_targets, items } = routes;
            write!(
                f,
                "; routes: {list} list pages, {apply} batches of changes and {find_targets} lookups \
                 of targets, {items} in all"
            )?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<Calls>);

impl Counter {
    pub(super) fn count(&self, operation: Operation, items: usize) {
        let mut calls = self.0.lock();
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        let Calls { lookup, list, health, nodes_looked_up, load_balancers, routes } = &mut *calls;
        let (counter, sum) = match operation {
            Operation::Lookup => (lookup, nodes_looked_up),
            Operation::List => (list, nodes_looked_up),
            Operation::Health => (health, nodes_looked_up),
            Operation::ListLoadBalancers => (&mut load_balancers.list, nodes_looked_up),
            Operation::EnsureLoadBalancers => {
                (&mut load_balancers.ensure, &mut load_balancers.items)
            }
            Operation::PreviewLoadBalancers => {
                (&mut load_balancers.preview, &mut load_balancers.items)
            }
            Operation::SetMembers => (&mut load_balancers.set_members, &mut load_balancers.items),
            Operation::DeleteLoadBalancers => {
                (&mut load_balancers.delete, &mut load_balancers.items)
            }
            Operation::ListRoutes => (&mut routes.list, &mut routes.items),
            Operation::ApplyRoutes => (&mut routes.apply, &mut routes.items),
            Operation::FindTargets => (&mut routes.find_targets, &mut routes.items),
        };
        *counter += 1;
        *sum += items;
    }

    pub(super) fn read(&self) -> Calls {
        *self.0.lock()
    }

    pub(super) fn reset(&self) -> Calls {
        mem::take(&mut self.0.lock())
    }
}
