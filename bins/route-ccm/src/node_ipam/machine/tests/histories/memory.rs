//! The rules about the memory: the machine's own counts and reasons must agree with the model.

use std::collections::BTreeSet;

use ccm_objects::{Node, Shared as Name};
use ccm_runtime::explain::{Explanation, ObjectState};
use ipnet::IpNet;

use super::{super::super::needs_cidrs, Kind, rules::Rules, servers::is_anothers, world::World};

impl Rules {
    fn explained(&mut self, node: &Node, told: &Explanation, writes: bool) {
        let (is_fine, says) = (told.state == ObjectState::Fine, || format!("{node:?}: {told:?}"));
        let has_words = !told.cause.is_empty() && !told.fix.is_empty();
        self.must(has_words, "Explained", || format!("no words: {}", says()));
        let may_be_fine = !node.pod_cidrs.is_empty() || node.deleting;
        self.must(!is_fine || may_be_fine, "Explained", || format!("fine: {}", says()));
        let is_under_way = told.cause.contains("are being written");
        self.must(writes || !is_under_way, "Explained", || format!("no write: {}", says()));
    }
}

impl World {
    /// Looks at the memory.
    pub(super) fn check(&mut self) {
        if self.rules.broken.is_some() {
            return;
        }
        if self.model.has_begun && self.machine.core.is_some() {
            self.memory_agrees();
            self.nobody_is_forgotten();
        }
        let stopped = self.rules.is_stopped || self.rules.has_ended;
        let (leads, runs) = (self.rules.leads, self.rules.runs);
        let is_shown = runs.is_none_or(|runs| leads && runs != stopped);
        self.must(is_shown, "Runs", || format!("{runs:?}"));
        self.explanations();
    }

    /// Checks that the machine's own counts and reasons agree with the model.
    fn memory_agrees(&mut self) {
        for (place, usage) in self.machine.usage().into_iter().enumerate() {
            let least = u128::from(self.model.used(place, self.now, false));
            let most = u128::from(self.model.used(place, self.now, true));
            let is_so = (least..=most).contains(&usage.used);
            self.must(is_so, "Leak", || format!("{usage:?}, not {least}..={most}"));
        }
        let ((waiting, held), (least, most)) = (self.machine.counts(), self.model.held(self.now));
        self.must((least..=most).contains(&held), "Held", || format!("{held} of {least}..={most}"));
        let awaited: BTreeSet<IpNet> = self.machine.awaited().into_iter().collect();
        let expected = self.model.awaited();
        self.must(awaited == expected, "Held", || format!("{awaited:?}, not {expected:?}"));
        let is_bare = |name: &Name| self.model.here.get(name).is_some_and(|node| needs_cidrs(node));
        let lacks = self.machine.lacks();
        let wrong: Vec<Name> =
            lacks.keys().chain(&self.rules.page).filter(|name| !is_bare(name)).cloned().collect();
        self.must(wrong.is_empty(), "Lack", || format!("{wrong:?} do not need any"));
        let (verdict, stopped) = (self.machine.verdict(), self.rules.is_stopped);
        let blocks = lacks.iter().find(|(name, why)| {
            let node = self.model.here.get(*name);
            why.contains("has no free")
                && node.is_some_and(|node| self.model.records.contains_key(&node.uid))
        });
        let what = format!("{blocks:?}, and it has some");
        let is_false = blocks.is_some();
        self.must(!is_false, "Lack", || what);
        let is_so = verdict.is_err() == (waiting > 0 || stopped) && lacks.len() <= waiting;
        self.must(is_so, "Lack", || format!("{verdict:?}: {waiting} wait, {lacks:?}"));
    }

    /// Checks that each node without pod CIDRs has its turn, or waits for a block that is not free.
    fn nobody_is_forgotten(&mut self) {
        let usage = self.machine.usage();
        let free = usage.iter().map(|usage| usage.capacity - usage.used).min().unwrap_or(0);
        let (mut asleep, mut awake, mut forgotten) = (0, 0, None);
        for node in self.model.here.values().filter(|node| needs_cidrs(node)) {
            let has_record = self.model.records.contains_key(&node.uid);
            if self.queue.has(&node.name) {
                awake += u128::from(!has_record);
            } else if self.machine.lack(&node.name).is_some_and(|why| why.contains("has no free")) {
                asleep += 1;
            } else if self.kind == Kind::Cloud && !self.waits_for_the_cloud(node)
                || self.kind == Kind::Observer && has_record
            {
                // Nobody waits for it.
            } else if self.api.get(&node.name).is_some_and(|now| now.uid == node.uid) {
                forgotten = Some(Name::clone(&node.name));
            }
        }
        self.must(forgotten.is_none(), "Forgotten", || format!("{forgotten:?}"));
        let stopped = self.rules.is_stopped;
        let is_woken = asleep == 0 || free <= awake || stopped;
        self.must(is_woken, "Starves", || {
            format!("{asleep} wait for {free} free blocks, {awake} try")
        });
    }

    fn waits_for_the_cloud(&self, node: &Node) -> bool {
        let told = self.machine.explain(&node.name, Some(node), None, self.now);
        !is_anothers(node) && told.state != ObjectState::Foreign
    }

    /// Checks that the page explains each node that the machine has seen, and says so of each other
    /// node.
    fn explanations(&mut self) {
        let Some(name) = self.any_node() else { return };
        let node = self.view.get(&name).cloned();
        let anothers = node.as_deref().filter(|node| is_anothers(node)).map(|_| "another cloud");
        let told = self.machine.explain(&name, node.as_deref(), anothers, self.now);
        let Some(node) = node else {
            let mut ends = self.model.ends.values().filter(|end| end.record.name == name);
            let is_over = ends.clone().all(|end| end.is_over(self.now));
            let is_held = ends.next().is_some();
            let is_so = (told.state == ObjectState::Working) == is_held
                || is_over && is_held
                || !self.model.has_begun;
            return self.must(is_so, "Explained", || format!("{name}, held {is_held}: {told:?}"));
        };
        let mut writes = self.writes.iter();
        let writes = writes.any(|write| write.asked.uid == node.uid);
        self.rules.explained(&node, &told, writes);
    }
}
