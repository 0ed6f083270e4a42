//! The checks at the end of a history.

use super::{
    router::Entry,
    truth::{has_route, is_inside, is_of, pod_cidrs},
    *,
};
use crate::routes::plan::condition::NETWORK_UNAVAILABLE;

/// The longest time to converge, because held deletions are made window by window.
const PATIENCE: Duration = Duration::from_hours(4);
/// The same for a machine that may never come to it.
const LITTLE_PATIENCE: Duration = Duration::from_hours(1);
/// For how long nothing is written afterwards.
const QUIET: Duration = Duration::from_mins(25);

impl World {
    /// Ends all faults. The world waits until everything is as it should be, and looks whether it
    /// stays so.
    pub(in super::super) fn settle(&mut self) {
        self.end_faults();
        let ended = self.now;
        // This is the time for late writes.
        self.run(Duration::from_secs(100));
        for number in 0..NODES {
            self.add_node(number);
        }
        let is_whole = self.variant == Variant::None;
        let end = self.now + if is_whole { PATIENCE } else { LITTLE_PATIENCE };
        // Before a list the machine does not know the changes of others.
        while self.listed <= ended && self.now < end {
            self.run(Duration::from_secs(60));
        }
        self.run(Duration::from_secs(60));
        loop {
            let (wrong, counted) = (self.wrong(), self.miscounted());
            let is_late = self.now > end;
            // It will make the changes that it holds.
            if wrong.is_empty() && counted.is_none() && (is_late || self.counts.held == 0) {
                break;
            }
            if is_late {
                if !wrong.is_empty() {
                    self.rules.breaks(Rule::Converges, wrong.join("; "));
                }
                if let Some(how) = counted {
                    self.rules.breaks(Rule::Counted, how);
                }
                return;
            }
            self.run(Duration::from_secs(60));
        }
        self.explain_all();
        self.rules.is_quiet = true;
        self.run(QUIET);
        self.explain_all();
    }

    fn end_faults(&mut self) {
        if self.has_rival {
            self.toggle_rival();
        }
        self.faults.clear();
        self.has_faults = false;
        self.denies_until = self.now;
        self.router.quota = None;
        self.rules.set_limit(3);
        self.parameters =
            parameters(self.variant, 3, self.parameters.period > Duration::from_mins(1));
        self.wake();
        self.tell_the_truth();
        for (name, node) in self.nodes.clone() {
            self.label(&name, false);
            let id = node.provider_id.as_deref();
            let machine = id.and_then(|id| self.router.machines.get(id));
            if let Some(ips) = machine.map(|one| one.ips.clone()) {
                self.change(&name, |node| node.addresses = nodes::addresses(&ips));
            }
        }
    }

    /// Returns the remaining faults.
    fn wrong(&self) -> Vec<String> {
        let truth = self.truth();
        let mut wrong = Vec::new();
        for node in self.nodes.values() {
            let mut is_complete = true;
            for cidr in pod_cidrs(node) {
                let is_served = truth.is_served(&self.router, node, cidr);
                is_complete &= is_served;
                let routes = self.router.to(cidr);
                let is_wanted = truth.wanted.get(&cidr).is_some_and(|by| by.uid == node.uid);
                let is_blocked = routes.iter().any(|route| self.is_of_others(route));
                let leads = |one: &&Entry| {
                    one.route.defect.is_none()
                        && one.route.target.as_ref().is_some_and(|target| is_of(target, node))
                };
                let count = routes.iter().filter(leads).count();
                if is_wanted && !is_served && !is_blocked {
                    wrong.push(format!("{} has no route of {cidr}: {routes:?}", node.name));
                } else if is_wanted && count > 1 {
                    wrong.push(format!("{cidr} has {count} routes: {routes:?}"));
                }
            }
            let expect = if is_complete { "False" } else { "True" };
            let shown = node.condition(NETWORK_UNAVAILABLE);
            if !node.pod_cidrs.is_empty() && shown != Some(expect) {
                wrong.push(format!("{}: {NETWORK_UNAVAILABLE}={shown:?}", node.name));
            }
        }
        let left =
            self.router.all().filter(|entry| !entry.is_foreign && self.is_left(entry, &truth));
        wrong.extend(left.map(|entry| format!("left over: {:?}", entry.route)));
        wrong
    }

    /// Returns true if a route of ours should be gone. A destination that is blocked by a route of others stays as it is.
    fn is_left(&self, entry: &Entry, truth: &truth::Truth) -> bool {
        let destination = entry.route.destination;
        let target = entry.route.target.as_ref();
        let node = truth.wanted.get(&destination);
        let is_right = node.is_some_and(|node| target.is_some_and(|target| is_of(target, node)));
        let is_blocked = self.router.to(destination).iter().any(|one| self.is_of_others(one));
        !is_right && !is_blocked && !truth.disputed.contains(&destination)
    }

    /// Says how the routes of others are counted, if that is wrong. The world does not
    /// know of some routes whether the process can know their owner.
    fn miscounted(&self) -> Option<String> {
        let counts = self.counts;
        let all = counts.ours + counts.unknown + counts.lent + counts.foreign + counts.elsewhere;
        let there = self.router.all().count();
        if all != there {
            return Some(format!("{there} routes, {all} counted"));
        }
        for (shown, inside) in [(counts.foreign, true), (counts.elsewhere, false)] {
            let of_kind =
                || self.router.all().filter(|one| is_inside(one.route.destination) == inside);
            let least = of_kind().filter(|one| one.is_foreign).count();
            let most = of_kind().filter(|one| self.is_of_others(one)).count();
            // The cloud may not know the owner of the target of a route.
            let open = if inside { counts.unknown } else { 0 };
            if shown + open < least || shown > most {
                return Some(format!("{least} to {most} routes of others, {shown} counted"));
            }
        }
        None
    }

    /// Returns true if the node has all its routes, and its condition says so.
    pub(super) fn is_fine(&self, node: &Node) -> bool {
        let has_all = pod_cidrs(node).all(|cidr| has_route(&self.router, node, cidr));
        has_all && node.condition(NETWORK_UNAVAILABLE) == Some("False")
    }
}
