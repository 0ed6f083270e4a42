//! The rules, which are checked after each event and each effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use super::{
    super::{
        super::{Effect, Event, WriteEnd, needs_cidrs},
        GRACE,
    },
    Kind, Variant,
    model::{Model, Record},
    world::World,
};
use crate::{
    networks::{AllocatorType, network, overlap},
    node_ipam::ipam::{HeldBlocks, Rival},
};

/// The maximum number of writes per minute and node, with any answers.
const WRITES: usize = 15;
const MINUTE: Duration = Duration::from_mins(1);
/// Signs of another allocator that are further apart do not belong together. It must also be quiet
/// for this long.
const WINDOW: Duration = Duration::from_mins(10);
const LEFT_ALONE: Duration = Duration::from_mins(5);

/// A sign of another allocator.
#[derive(Clone, Copy, Debug)]
struct Sign {
    at: At,
    is_certain: bool,
}

/// An event of a node that shows its first pod CIDRs, which another client has written.
pub(super) struct Look {
    name: Name,
    was_bare: bool,
    is_told: bool,
    takes_ours: bool,
}

/// The events of a history that the rules need.
#[derive(Default)]
pub(super) struct Rules {
    /// If set, no other rule counts.
    only: Option<&'static str>,
    pub(super) broken: Option<String>,
    pub(super) is_quiet: bool,
    /// True if this replica leads and may write.
    pub(super) leads: bool,
    pub(super) runs: Option<bool>,
    pub(super) has_ended: bool,
    pub(super) is_stopped: bool,
    /// The nodes that have got pod CIDRs of other clients, by their UID.
    pub(super) foreign: BTreeSet<Box<str>>,
    /// Nodes whose end was reported although they exist. Their blocks may belong to another node.
    pub(super) doubted: BTreeSet<Box<str>>,
    signs: BTreeMap<Name, Sign>,
    last_sign: At,
    pub(super) page: BTreeSet<Name>,
    /// When the API server has answered a write as done that it has not stored, and the node has not changed since.
    dropped: BTreeMap<Box<str>, At>,
    written: BTreeMap<Box<str>, Vec<At>>,
    /// How often each of these happened: assigned, exhausted, stopped, refused, held.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Rules {
    pub(super) fn new(only: Option<&'static str>) -> Self {
        Self { only, ..Self::default() }
    }

    pub(super) fn new_leader(&mut self) {
        (self.runs, self.has_ended, self.is_stopped) = (None, false, false);
        self.signs.clear();
        self.page.clear();
        self.dropped.clear();
        self.count("leaders");
    }

    pub(super) fn must(&mut self, holds: bool, rule: &'static str, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() && self.only.is_none_or(|only| only == rule) {
            self.broken = Some(format!("{rule}: {}", what()));
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Returns the look at a node that the event must cause. The model hears of the event after this.
    pub(super) fn before(&mut self, model: &Model, event: &Event) -> Option<Look> {
        match event {
            Event::Ends => self.has_ended = true,
            Event::RoutesAre { .. } if !model.knows_routes() => self.dropped.clear(),
            Event::Changed { after, .. } => drop(self.dropped.remove(&after.uid)),
            _ => {}
        }
        let node = match event {
            Event::Changed { after, .. } => after,
            Event::Written(written) => written.answer.as_ref().ok()?,
            _ => return None,
        };
        let is_here = matches!(event, Event::Changed { .. })
            || model.here.get(&node.name).is_some_and(|here| here.uid == node.uid);
        let is_first = !node.pod_cidrs.is_empty() && !model.had.contains(&node.uid) && is_here;
        if !model.has_begun || !is_first || !self.foreign.contains(&node.uid) {
            return None;
        }
        let shown: Vec<IpNet> = node.pod_cidrs.iter().filter_map(|text| network(text)).collect();
        let own = model.records.get(&node.uid);
        let others = model.records.iter().filter(|(uid, _)| **uid != node.uid).map(|(_, one)| one);
        let takes = |one: &Record| {
            one.networks.iter().any(|held| shown.iter().any(|shown| overlap(*held, *shown)))
        };
        Some(Look {
            name: Name::clone(&node.name),
            was_bare: model.bare.contains(&node.uid),
            is_told: !own.is_some_and(|own| own.networks == shown && own.may_be_there())
                && !model.lost.contains(&node.uid),
            takes_ours: own.into_iter().chain(others).any(takes),
        })
    }

    /// Returns the node that needs pod CIDRs and has its turn.
    pub(super) fn turn(&self, model: &Model, event: &Event) -> Option<Name> {
        let Event::Turn { name, node: Some(node) } = event else { return None };
        let is_here = model.here.get(name).is_some_and(|here| here.uid == node.uid);
        let waits = self.is_stopped || model.knows_routes();
        (is_here && waits && needs_cidrs(node)).then(|| Name::clone(name))
    }
}

impl World {
    pub(super) fn must(&mut self, holds: bool, rule: &'static str, what: impl FnOnce() -> String) {
        self.rules.must(holds, rule, what);
    }

    /// Checks that a node that has its turn gets blocks, or the reason why it does not is reported.
    pub(super) fn turn_has_an_end(&mut self, turn: Option<Name>, effects: &[Effect]) {
        let Some(name) = turn else { return };
        let is_end =
            |effect: &Effect| matches!(effect, Effect::Show { .. } | Effect::HasNone { .. });
        self.must(effects.iter().any(is_end), "Told", || format!("{name}: {effects:?}"));
    }

    /// Checks that the pod CIDRs of other clients are reported as theirs.
    pub(super) fn foreign_is_told(&mut self, look: Option<Look>, effects: &[Effect]) {
        let Some(Look { name, was_bare, is_told, takes_ours }) = look else { return };
        if self.kind == Kind::Observer {
            return;
        }
        let told = effects.iter().any(|effect| matches!(effect, Effect::Foreign(..)));
        self.must(told || !is_told, "Foreign", || format!("{name} is not told"));
        if !told || !was_bare {
            return;
        }
        self.rules.last_sign = self.now;
        if !self.rules.is_stopped {
            self.rules.signs.insert(name, Sign { at: self.now, is_certain: takes_ours });
            let now = self.now;
            let is_near = |sign: &&Sign| sign.is_certain && now < sign.at + WINDOW;
            let certain = self.rules.signs.values().filter(is_near).count();
            let stops = effects.iter().any(|effect| matches!(effect, Effect::Stops(true)));
            self.must(stops || certain < 2, "Rival", || "it is not noticed".to_owned());
        }
    }

    /// Looks at one effect.
    pub(super) fn see(&mut self, effect: &Effect) {
        let writes = matches!(
            effect,
            Effect::Write { .. } | Effect::Leave(_) | Effect::Runs(_) | Effect::Condition(..)
        );
        let observes = self.kind == Kind::Observer;
        self.must(!observes || !writes, "Observer", || format!("{effect:?}"));
        let works = matches!(effect, Effect::Write { .. } | Effect::Queue(..));
        let is_quiet = self.rules.is_quiet;
        self.must(!is_quiet || !works, "Quiet", || format!("{effect:?}"));
        match effect {
            Effect::Write { node, cidrs } => self.sees_write(node, cidrs),
            Effect::Show { node, cidrs, held } => self.sees_show(node, cidrs, held.is_none()),
            Effect::Clear(name) => drop(self.rules.page.remove(name)),
            Effect::Leave(held) => self.sees_note(held),
            Effect::Runs(does) => self.rules.runs = Some(*does),
            Effect::Stops(does) => self.sees_stop(*does),
            Effect::HasNone { node, state, .. } => self.sees_none(node, state),
            Effect::Rival(_, rival) => self.sees_rival(rival),
            Effect::Foreign(node, _) => {
                let is_so = self.rules.foreign.contains(&node.uid) && self.kind != Kind::Observer;
                self.must(is_so, "Foreign", || format!("{node:?} is ours"));
                self.rules.count("foreign");
            }
            Effect::Given(node) | Effect::Assigned(node) => {
                let shows = !node.pod_cidrs.is_empty();
                self.must(shows, "Answer", || format!("{node:?} has not got any"));
                self.rules.count("given");
            }
            _ => {}
        }
    }

    fn sees_show(&mut self, node: &Arc<Node>, cidrs: &[IpNet], is_given: bool) {
        if is_given && !cidrs.is_empty() {
            let is_shared = self.model.is_shared(node);
            let before = self.model.keeps(node, cidrs, self.now);
            let others = self.model.ends.iter().filter(|(uid, _)| **uid != node.uid);
            let is_strict = matches!(self.kind, Kind::Blocks | Kind::Observer) && !is_shared;
            let same = before.as_ref().is_none_or(|before| {
                before.networks == cidrs
                    || !before.may_be_there() && !is_strict
                    || before.is_lost() && is_shared
            });
            let is_range = self.kind != Kind::Cloud;
            let is_new = before.is_none_or(|before| before.networks != cidrs) && is_range;
            let mut early = None;
            let cluster = self.machine.fixed.config.ranges[0].network;
            for end in others.filter(|_| is_new).map(|(_, end)| end) {
                let near = end
                    .record
                    .networks
                    .iter()
                    .filter(|one| !one.contains(&cluster))
                    .any(|one| cidrs.iter().any(|cidr| overlap(*one, *cidr)));
                if near && self.now < end.at + GRACE {
                    early = Some(format!(
                        "{} left {:?} at {}",
                        end.record.name, end.record.networks, end.at
                    ));
                }
            }
            let route =
                cidrs.iter().filter(|_| is_new).find_map(|cidr| self.model.told_route(*cidr));
            let name = Name::clone(&node.name);
            self.must(same, "Same", || format!("{name} gets {cidrs:?}"));
            self.must(early.is_none(), "Grace", || format!("{name} gets {cidrs:?}: {early:?}"));
            self.must(route.is_none(), "OldRoute", || format!("{name} gets {cidrs:?}: {route:?}"));
        }
        let now = self.view.get(&node.name);
        if now.is_some_and(|now| now.uid == node.uid && needs_cidrs(now)) {
            self.rules.page.insert(Name::clone(&node.name));
        } else {
            self.rules.page.remove(&node.name);
        }
    }

    fn sees_write(&mut self, node: &Arc<Node>, cidrs: &[IpNet]) {
        let name = &node.name;
        let is_bare =
            self.view.get(name).is_some_and(|seen| seen.uid == node.uid && needs_cidrs(seen));
        self.must(is_bare, "Respects", || format!("{name} does not need any"));
        let is_cloud = self.kind == Kind::Cloud;
        let mut shared = None;
        for other in self.view.values().filter(|other| other.uid != node.uid) {
            let wider = |one: &IpNet, cidr: &IpNet| is_cloud && one != cidr && one.contains(cidr);
            let covers = |one: &IpNet| one.contains(&self.machine.fixed.config.ranges[0].network);
            let counted =
                self.model.counted(other).into_iter().filter(|one| is_cloud || !covers(one));
            let near =
                |one: IpNet| cidrs.iter().any(|cidr| overlap(one, *cidr) && !wider(&one, cidr));
            if counted.into_iter().any(near) {
                shared = Some(format!("{} shows {:?}", other.name, other.pod_cidrs));
            }
        }
        self.must(shared.is_none(), "Respects", || format!("{name} gets {cidrs:?}: {shared:?}"));
        let config = self.machine.fixed.config.clone();
        if !is_cloud {
            let fits = config.ranges.len() == cidrs.len()
                && config.ranges.iter().zip(cidrs).all(|(range, cidr)| {
                    range.network.contains(cidr) && range.mask == cidr.prefix_len()
                });
            self.must(fits, "Respects", || format!("{name} gets {cidrs:?}"));
            let mut services =
                config.services.iter().filter(|one| cidrs.iter().any(|cidr| overlap(**one, *cidr)));
            let services = services.next().copied();
            self.must(services.is_none(), "Respects", || {
                format!("{name} gets {cidrs:?}: {services:?}")
            });
            let old = self.routes.iter().find(|(route, uid)| {
                let is_others = **uid != node.uid && !self.rules.foreign.contains(*uid);
                is_others && !uid.is_empty() && cidrs.iter().any(|cidr| cidr.contains(*route))
            });
            let old = old.map(|(route, uid)| format!("{route} to {uid}"));
            let was_kept = self.rules.written.contains_key(&node.uid);
            self.must(old.is_none() || was_kept, "OldRoute", || format!("{name}: {old:?}"));
        }
        let dropped = self.rules.dropped.get(&node.uid).is_some_and(|at| self.now < *at + MINUTE);
        self.must(!dropped, "Repeats", || format!("{name}: it was not stored a moment ago"));
        let times = self.rules.written.entry(node.uid.clone()).or_default();
        times.retain(|at| self.now < *at + MINUTE);
        times.push(self.now);
        let count = times.len();
        self.must(count <= WRITES, "Repeats", || format!("{name}: {count} writes in a minute"));
        self.rules.count("writes");
    }

    /// Checks that the next leader learns of all that is held.
    fn sees_note(&mut self, held: &[HeldBlocks]) {
        let noted: BTreeSet<&str> = held.iter().map(|one| &*one.uid).collect();
        let ended: BTreeSet<&str> = self.model.ends.keys().map(|uid| &**uid).collect();
        let is_all = noted == ended;
        let what = format!("{noted:?}, not {ended:?}");
        self.must(is_all, "Held", || what);
    }

    fn sees_none(&mut self, node: &Arc<Node>, state: &str) {
        self.rules.count("refused");
        // The cloud may not name any. Then the allocator is not asked.
        if self.kind != Kind::Cloud || state.contains("delete one of the nodes") {
            self.model.forget_old_writes(node);
        }
        let Some(cluster) = state.strip_suffix(" is exhausted") else { return };
        self.model.has_none(node);
        self.rules.count("exhausted");
        let ranges = self.machine.fixed.config.ranges.clone();
        let place = ranges.iter().position(|range| range.network.to_string() == cluster);
        let place = place.expect("a cluster CIDR");
        let range = ranges[place];
        let (used, all) = (
            self.model.used(place, self.now, false),
            1 << (range.mask - range.network.prefix_len()),
        );
        self.must(used == all, "Full", || format!("{cluster} has {used} of {all}"));
        if self.variant == Variant::NoRollback && place == 1 {
            let blocks = ["10.0.0.0/24", "10.0.5.0/24", "10.0.6.0/24"];
            let pod_cidrs = vec![self.dice.one_of(&blocks).into()];
            let uid = format!("phantom{}", self.events).into();
            let after = Arc::new(Node { uid, pod_cidrs, ..Node::default() });
            self.whisper(Event::Changed { before: None, after });
        }
    }

    fn sees_stop(&mut self, does: bool) {
        let (last, now) = (self.rules.last_sign, self.now);
        self.must(does || last + LEFT_ALONE <= now, "Rival", || {
            format!("goes on at {now} after {last}")
        });
        self.rules.is_stopped = does;
        if does {
            self.rules.count("stopped");
        } else {
            self.rules.signs.clear();
        }
        self.rules.dropped.clear();
    }

    fn sees_rival(&mut self, rival: &Rival) {
        let names: BTreeSet<&Name> = rival.signs.iter().map(|sign| &sign.node).collect();
        let ranges = &self.machine.fixed.config.ranges;
        let is_near = |name: &Name| {
            self.rules.signs.get(name).is_some_and(|sign| self.now < sign.at + WINDOW)
        };
        let inside = rival.signs.iter().all(|sign| {
            let mut shown = sign.shown.iter().filter_map(|text| network(text));
            let is_certain = self.rules.signs.get(&sign.node).is_some_and(|sign| sign.is_certain);
            is_certain || shown.any(|one| ranges.iter().any(|range| overlap(range.network, one)))
        });
        let is_so = names.len() >= 2 && names.iter().all(|name| is_near(name)) && inside;
        let what = format!("{:?} of {:?}", rival.signs, self.rules.signs);
        self.must(is_so, "Rival", || what);
        self.rules.signs.clear();
    }

    /// Checks that no block is on two nodes, unless another client has written it.
    pub(super) fn are_distinct(&mut self) {
        let is_ours = |node: &&Arc<Node>| {
            !self.rules.foreign.contains(&node.uid) && !self.rules.doubted.contains(&node.uid)
        };
        let mut seen: BTreeMap<&str, &Name> = BTreeMap::new();
        let mut twice = None;
        for node in self.api.values().filter(is_ours) {
            for cidr in &node.pod_cidrs {
                if let Some(other) = seen.insert(cidr, &node.name) {
                    twice = Some(format!("{other} and {} have {cidr}", node.name));
                }
            }
        }
        self.must(twice.is_none(), "OneNode", || twice.unwrap_or_default());
    }

    /// Checks that the answer to a write is counted correctly.
    pub(super) fn answer_is_counted(&mut self, is_stored: Option<bool>, effects: &[Effect]) {
        let Some(is_stored) = is_stored else { return };
        let says = effects.iter().any(|effect| matches!(effect, Effect::Ended(WriteEnd::Stored)));
        self.must(says == is_stored, "Answer", || format!("stored {is_stored}: {effects:?}"));
        for effect in effects {
            if let Effect::NotStored { node, .. } = effect
                && !self.queue.is_due(&node.name)
            {
                self.rules.dropped.insert(node.uid.clone(), self.now);
            }
        }
    }

    /// Returns true if the allocator gives blocks of cluster CIDRs.
    pub(super) fn gives_blocks(&self) -> bool {
        self.machine.fixed.config.allocator == AllocatorType::RangeAllocator
    }
}
