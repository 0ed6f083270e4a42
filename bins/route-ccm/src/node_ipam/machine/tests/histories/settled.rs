//! The end of a history: all faults end, and other clients do not write any more.

use std::{sync::Arc, time::Duration};

use ccm_objects::{Node, Shared as Name};

use super::{super::super::Event, Kind, cloud::is_elsewhere, servers::is_anothers, world::World};

/// This is longer than any wait, and than the stop because of another allocator.
const SETTLED: Duration = Duration::from_mins(40);
/// How long it must be quiet afterwards.
const QUIET: Duration = Duration::from_mins(20);
/// The number of nodes that have room, also with blocks that others keep.
const ROOM: usize = 5;

impl World {
    /// Ends all faults, and lets time pass.
    pub(super) fn settle(&mut self) {
        self.has_faults = false;
        self.routes.retain(|_, uid| !uid.is_empty());
        self.has_room();
        self.work(SETTLED / 2);
        self.name_all();
        // Kubelets report the state of their nodes.
        let names: Vec<Name> = self.api.keys().cloned().collect();
        for name in &names {
            self.change(name, |_| {});
        }
        self.work(SETTLED);
        self.converges();
        self.rules.is_quiet = true;
        self.work(QUIET);
        self.rules.is_quiet = false;
        self.all_go();
    }

    /// Deletes nodes until each remaining node can have pod CIDRs.
    fn has_room(&mut self) {
        let names: Vec<Name> = self.api.keys().cloned().collect();
        let mut left = 0;
        for name in names {
            let node = Arc::clone(&self.api[&name]);
            let counted = self.model.counted(&node);
            let is_in_the_way = match self.gives_blocks() {
                true => counted.iter().any(|one| one.prefix_len() != 24),
                false => !counted.is_empty(),
            };
            let takes_room = self.rules.foreign.contains(&node.uid) && is_in_the_way;
            let id = node.provider_id.as_deref().unwrap_or_default();
            let has_none = is_anothers(&node) || is_elsewhere(id) || node.deleting;
            if takes_room || has_none || left == ROOM {
                self.remove(&name);
            } else {
                left += 1;
            }
        }
        if self.kind == Kind::Observer {
            let bare: Vec<Name> = self
                .api
                .values()
                .filter(|node| node.pod_cidrs.is_empty())
                .map(|node| Name::clone(&node.name))
                .collect();
            for (third, name) in bare.iter().enumerate() {
                self.change(name, |node| {
                    node.pod_cidrs = vec![format!("10.0.{third}.0/24").into()];
                });
            }
        }
    }

    /// Continues all that is under way for this time.
    fn work(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && self.rules.broken.is_none() {
            self.look_at_all();
            for _ in 0..2 * (self.writes.len() + self.lookups.len() + self.late.len()) {
                self.carry_out();
            }
            for _ in 0..self.queue.due(self.now).len() {
                self.turn();
            }
            if self.has_routes {
                self.settle_routes();
            }
            let next = self.next().max(self.now + Duration::from_secs(1));
            self.pass(next.since(self.now));
        }
    }

    fn settle_routes(&mut self) {
        self.end_making();
        self.delete_route();
        if self.dice.one_in(4) {
            self.list_routes();
            self.tell_routes();
        }
    }

    /// Checks that each node has pod CIDRs, and nothing is left to be done.
    fn converges(&mut self) {
        let bare: Vec<&Node> =
            self.api.values().filter(|node| node.pod_cidrs.is_empty()).map(Arc::as_ref).collect();
        let why: Vec<_> = bare.iter().map(|node| (self.machine.lack(&node.name), *node)).collect();
        let (is_done, what) = (bare.is_empty(), format!("{why:?}"));
        self.must(is_done, "Converges", || what);
        let ((waiting, held), verdict) = (self.machine.counts(), self.machine.verdict());
        self.must(waiting == 0 && (verdict.is_ok() || self.rules.is_stopped), "Converges", || {
            format!("{verdict:?}")
        });
        let what = format!("{held} are held: {:?}, {:?}", self.model.ends, self.routes);
        self.must(held == 0, "Leak", || what);
    }

    /// Deletes all nodes, then their routes. Only the blocks of Services are taken.
    fn all_go(&mut self) {
        self.api.clear();
        self.look_at_all();
        self.writes.clear();
        self.late.clear();
        self.making.clear();
        self.routes.clear();
        if self.has_routes {
            self.list_routes();
            self.tell_routes();
        }
        self.now = self.now + SETTLED;
        self.tell(Event::Time);
        let used: Vec<u128> = self.machine.usage().iter().map(|usage| usage.used).collect();
        let is_free =
            used.first().is_none_or(|one| *one == 1) && used.get(1).is_none_or(|one| *one == 2);
        let (_, held) = self.machine.counts();
        self.must(is_free && held == 0, "Leak", || format!("{used:?} are taken, {held} held"));
    }
}
