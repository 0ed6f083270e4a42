//! The API server, the cloud's routes and one leader at a time.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::super::*;

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// A release frees the blocks, even if another node has them now.
    Owner,
    /// The block of the first family stays taken when the second one is exhausted.
    Rollback,
    /// A reservation ends with a write whose outcome is unknown.
    Keeping,
    /// Routes do not hold a block.
    Routes,
    /// There is no grace time.
    Grace,
    /// A leader begins with what the last one has seen.
    FreshList,
    /// Reservations of nodes that are gone stay.
    Release,
    /// The answer to a write is looked at, whether its node is still there or not.
    Store,
}

/// What always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// No block is assigned to two nodes that exist.
    OneNode,
    /// No block is assigned while there is a route to the node that had it.
    NoOldRoute,
    /// No block is assigned within the grace time after the leader has seen its node's end.
    Grace,
    /// What no node has is free in the end.
    NoLeak,
    /// A family is exhausted only if all of its blocks are in use.
    Full,
    /// A node gets the same blocks again while its write may be carried out.
    Same,
    /// The allocator does not take its own writes for writes of another client.
    NoForeign,
}

type Broken = (Rule, String);

/// A write that the API server has not carried out yet. It does so only if the node is unchanged.
#[derive(Clone, Debug)]
struct Write {
    uid: String,
    cidrs: Vec<IpNet>,
    /// Whether the leader gets an answer.
    answers: bool,
    /// The answer that is on its way.
    answer: Option<Result<Node, Refused>>,
}

/// The API server has refused a write.
#[derive(Clone, Debug)]
struct Refused;

pub(super) struct World {
    random: StdRng,
    without: Option<Without>,
    now: At,
    born: u64,
    /// The nodes of the API server.
    nodes: BTreeMap<String, Node>,
    /// What the leader's informer has seen of them.
    view: BTreeMap<String, Node>,
    writes: Vec<Write>,
    /// Routes, with the UID of their node.
    routes: BTreeMap<IpNet, String>,
    leader: Allocator,
    /// What the leader was given to write, by the node.
    promised: BTreeMap<String, Vec<IpNet>>,
    /// The nodes whose write may have been carried out, or was.
    maybe: BTreeSet<String>,
    /// When blocks were last left, as far as this leader has seen.
    left: BTreeMap<IpNet, At>,
    /// The last ends of nodes, with their blocks: they are reported once more.
    ends: Vec<(String, Vec<IpNet>)>,
    counts: [u64; 4],
}

/// 8 blocks of IPv4, one of them a Service's, and 6 of IPv6.
const RANGES: [&str; 2] = ["10.0.0.0/21/24", "fd00::/61/64"];
const SERVICES: [&str; 3] = ["10.0.7.0/25", "fd00:0:0:7::/64", "fd00:0:0:6::/64"];
const FREE: [usize; 2] = [7, 6];

impl World {
    pub(super) fn begin(seed: u64, without: Option<Without>) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let leader = Self::leader(without, &BTreeMap::new(), Vec::new());
        let mut world = Self {
            random,
            without,
            now: NOW,
            born: 0,
            nodes: BTreeMap::new(),
            view: BTreeMap::new(),
            writes: Vec::new(),
            routes: BTreeMap::new(),
            leader,
            promised: BTreeMap::new(),
            maybe: BTreeSet::new(),
            left: BTreeMap::new(),
            ends: Vec::new(),
            counts: [0; 4],
        };
        world.tell_routes();
        world
    }

    fn leader(
        without: Option<Without>,
        nodes: &BTreeMap<String, Node>,
        left: Vec<HeldBlocks>,
    ) -> Allocator {
        let grace = if without == Some(Without::Grace) { Duration::ZERO } else { GRACE };
        let hold = HoldUntil { grace, routes: without != Some(Without::Routes) };
        Allocator::rebuild(config(&RANGES, &SERVICES), hold, nodes.values(), left)
    }

    /// Assigned, assigned again, exhausted, changes of leaders.
    pub(super) const fn counts(&self) -> [u64; 4] {
        self.counts
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pick(&mut self, from: Vec<String>) -> Option<String> {
        let index = self.random.random_range(0..from.len().max(1));
        from.into_iter().nth(index)
    }

    pub(super) fn step(&mut self) -> Result<(), Broken> {
        self.now = self.now + Duration::from_secs(self.random.random_range(0..20));
        match self.random.random_range(0..100) {
            0..15 => self.join(),
            15..24 => self.leave(),
            24..54 => self.assign()?,
            54..70 => self.carry_out()?,
            70..85 => self.look()?,
            85..96 => self.route(),
            96..98 => drop(self.ends.last().cloned().map(|end| self.tell_end(&end.0, &end.1))),
            _ => self.change_leader(),
        }
        self.check()
    }

    fn join(&mut self) {
        if self.nodes.len() >= 9 {
            return;
        }
        self.born += 1;
        let uid = format!("uid-{}", self.born);
        // Few names, so that nodes of one name follow each other.
        let name = format!("n{}", self.random.random_range(0..20));
        let new = Node { name: name.as_str().into(), uid: uid.as_str().into(), ..Node::default() };
        self.nodes.insert(uid, new);
    }

    fn leave(&mut self) {
        let all = self.nodes.keys().cloned().collect();
        if let Some(uid) = self.pick(all) {
            self.nodes.remove(&uid);
        }
    }

    /// The leader gives blocks to a node that it sees without.
    fn assign(&mut self) -> Result<(), Broken> {
        let bare = self.view.values().filter(|node| node.pod_cidrs.is_empty());
        let Some(uid) = self.pick(bare.map(|node| node.uid.to_string()).collect()) else {
            return Ok(());
        };
        if self.writes.iter().any(|write| write.uid == uid && write.answers) {
            return Ok(());
        }
        let node = self.view[&uid].clone();
        let cidrs = match self.leader.reserve(&node, self.now) {
            Ok(reserved) => reserved.cidrs,
            Err(Refusal::Exhausted(what)) => return self.exhausted(&what),
            Err(Refusal::Stopped(rival)) => return Err((Rule::NoForeign, rival.to_string())),
            Err(_) => return Ok(()),
        };
        if self.promised.get(&uid).is_some_and(|before| *before != cidrs) {
            let how = format!("{uid}: {cidrs:?} after {:?}", self.promised[&uid]);
            // A process that forgets its reservations breaks this at once, and worse later.
            if self.without != Some(Without::Keeping) {
                return Err((Rule::Same, how));
            }
        }
        for cidr in &cidrs {
            if let Some(at) = self.left.get(cidr).filter(|at| self.now < **at + GRACE) {
                return Err((Rule::Grace, format!("{cidr} left at {at}, given at {}", self.now)));
            }
            if let Some(old) = self.routes.get(cidr).filter(|old| **old != uid) {
                return Err((
                    Rule::NoOldRoute,
                    format!("{cidr} goes to {uid}, its route to {old}"),
                ));
            }
        }
        self.promised.insert(uid.clone(), cidrs.clone());
        let answers = self.percent(60);
        if !answers {
            self.maybe.insert(uid.clone());
            self.leader.answered(&uid, Written::Unknown);
            if self.without == Some(Without::Keeping) {
                self.leader.remove(&uid);
            }
        }
        // What has no answer may never have arrived.
        if answers || self.percent(60) {
            self.writes.push(Write { uid, cidrs, answers, answer: None });
        }
        Ok(())
    }

    /// Every block must be in use: by a node, by a write, by a route, or held.
    fn exhausted(&mut self, what: &Exhausted) -> Result<(), Broken> {
        self.counts[2] += 1;
        let index = usize::from(what.cluster == net("fd00::/61"));
        let leaks = self.without == Some(Without::Rollback) && index == 1;
        if let Some(found) = self.leader.pools[0].find().filter(|_| leaks) {
            self.leader.pools[0].take(found.block);
        }
        let shown = self.nodes.values().chain(self.view.values());
        let shown = shown.flat_map(|node| Record::shown(node).networks);
        let left =
            self.left.iter().filter(|(_, at)| self.now < **at + GRACE).map(|(cidr, _)| *cidr);
        let waiting = self.leader.waiting_for_routes().map(|(cidr, _)| cidr);
        let in_use: BTreeSet<IpNet> = shown
            .chain(self.promised.values().flatten().copied())
            .chain(self.routes.keys().copied())
            .chain(left)
            .chain(waiting)
            .filter(|cidr| what.cluster.contains(cidr))
            .collect();
        let rule = if self.without == Some(Without::Rollback) { Rule::NoLeak } else { Rule::Full };
        match in_use.len() == FREE[index] {
            true => Ok(()),
            false => Err((rule, format!("{what}, but only {in_use:?} are in use"))),
        }
    }

    /// A write arrives at the API server, or its answer at the leader.
    fn carry_out(&mut self) -> Result<(), Broken> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let index = self.random.random_range(0..self.writes.len());
        let mut write = self.writes.remove(index);
        match write.answer.take() {
            Some(answer) => self.answer(&write.uid, answer),
            None => {
                let answer = self.land(&write);
                if write.answers {
                    self.writes.push(Write { answer: Some(answer), ..write });
                }
                self.check()
            }
        }
    }

    /// The node as it is after the write.
    fn land(&mut self, write: &Write) -> Result<Node, Refused> {
        let bare = self.nodes.get_mut(&write.uid).filter(|node| node.pod_cidrs.is_empty());
        let bare = bare.ok_or(Refused)?;
        bare.pod_cidrs = write.cidrs.iter().map(|cidr| cidr.to_string().into()).collect();
        let node = bare.clone();
        self.maybe.insert(write.uid.clone());
        self.counts[0] += 1;
        self.counts[1] += u64::from(self.left.contains_key(&write.cidrs[0]));
        Ok(node)
    }

    /// The informer may have shown the end of the node since.
    fn answer(&mut self, uid: &str, answer: Result<Node, Refused>) -> Result<(), Broken> {
        let written = if answer.is_ok() { Written::Yes } else { Written::No };
        self.leader.answered(uid, written);
        let is_there = self.view.contains_key(uid);
        let is_looked_at = is_there || self.without == Some(Without::Store);
        let Some(node) = answer.ok().filter(|_| is_looked_at) else { return Ok(()) };
        self.observe(&node)?;
        if is_there {
            self.view.insert(uid.to_owned(), node);
        }
        Ok(())
    }

    fn observe(&mut self, node: &Node) -> Result<(), Broken> {
        let foreign = self.leader.observe(node, self.now).foreign;
        foreign.map_or(Ok(()), |foreign| Err((Rule::NoForeign, foreign.to_string())))
    }

    /// The informer shows the leader one node as it is, or its end.
    fn look(&mut self) -> Result<(), Broken> {
        let all = self.nodes.keys().chain(self.view.keys()).cloned().collect();
        let Some(uid) = self.pick(all) else { return Ok(()) };
        match self.nodes.get(&uid).cloned() {
            Some(node) => {
                self.observe(&node)?;
                self.view.insert(uid, node);
            }
            None => {
                let last = self.view.remove(&uid);
                let shown = last.map(|node| Record::shown(&node).networks).unwrap_or_default();
                let promised = self.promised.remove(&uid);
                // What the API server has refused was never a node's.
                let is_possible =
                    self.maybe.contains(&uid) || self.writes.iter().any(|write| write.uid == uid);
                let promised = promised.filter(|_| is_possible).unwrap_or_default();
                let cidrs = if shown.is_empty() { promised } else { shown.to_vec() };
                self.left.extend(cidrs.iter().map(|cidr| (*cidr, self.now)));
                self.tell_end(&uid, &cidrs);
                self.ends.push((uid, cidrs));
            }
        }
        Ok(())
    }

    fn tell_end(&mut self, uid: &str, cidrs: &[IpNet]) {
        let waiting = match self.without {
            Some(Without::Release) if self.view.len().is_multiple_of(2) => return,
            Some(Without::Owner) => {
                let holders = cidrs.iter().flat_map(|cidr| self.leader.holders.overlapping(*cidr));
                let holders: BTreeSet<Uid> = holders.map(|(_, uid)| Arc::clone(uid)).collect();
                holders.iter().flat_map(|uid| self.leader.release(uid, self.now)).collect()
            }
            _ => self.leader.release(uid, self.now),
        };
        for cidr in waiting {
            if !self.routes.contains_key(&cidr) {
                self.leader.route_gone(cidr);
            }
        }
    }

    /// A route is made for a node that the leader sees, or removed if it sees its node no more.
    fn route(&mut self) {
        if self.percent(20) {
            return self.tell_routes();
        }
        let gone = self.routes.iter().find(|(_, uid)| !self.view.contains_key(*uid));
        if let Some(cidr) = gone.map(|(cidr, _)| *cidr).filter(|_| self.random.random_bool(0.4)) {
            self.routes.remove(&cidr);
            return self.leader.route_gone(cidr);
        }
        for (uid, node) in &self.view {
            for cidr in Record::shown(node).networks {
                self.routes.entry(cidr).or_insert_with(|| uid.clone());
            }
        }
    }

    fn tell_routes(&mut self) {
        if self.without != Some(Without::Routes) {
            self.leader.routes_are(self.routes.keys().copied().collect::<Vec<_>>(), self.now);
        }
    }

    /// Writes of the last leader end with its term; then the next one lists the nodes.
    fn change_leader(&mut self) {
        self.counts[3] += 1;
        for mut write in std::mem::take(&mut self.writes) {
            write.answers = false;
            if write.answer.is_none() && self.percent(50) {
                // What it breaks is found by the next look.
                drop(self.land(&write));
            }
        }
        // What this leader has not seen yet, the next one sees as gone from the beginning.
        if self.without != Some(Without::FreshList) {
            self.view = self.nodes.clone();
        }
        let left = self.leader.held(100);
        self.leader = Self::leader(self.without, &self.view, left);
        self.promised.clear();
        self.maybe.clear();
        self.ends.clear();
        if self.without == Some(Without::FreshList) {
            self.promised.extend(self.view.iter().filter_map(|(uid, node)| {
                let shown = Record::shown(node).networks;
                (!shown.is_empty()).then(|| (uid.clone(), shown.to_vec()))
            }));
        }
        self.tell_routes();
    }

    fn check(&self) -> Result<(), Broken> {
        let mut taken: BTreeMap<IpNet, &str> = BTreeMap::new();
        for (uid, node) in &self.nodes {
            for cidr in Record::shown(node).networks {
                if let Some(other) = taken.insert(cidr, uid) {
                    return Err((Rule::OneNode, format!("{other} and {uid} have {cidr}")));
                }
                if SERVICES.iter().any(|services| net(services).contains(&cidr)) {
                    return Err((Rule::OneNode, format!("{uid} has {cidr} of Services")));
                }
            }
        }
        Ok(())
    }

    /// All nodes go, then their routes. Only the Services' blocks are taken.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        self.nodes.clear();
        for uid in self.view.keys().cloned().collect::<Vec<_>>() {
            let cidrs = Record::shown(&self.view[&uid]).networks;
            self.view.remove(&uid);
            self.tell_end(&uid, &cidrs);
        }
        self.routes.clear();
        self.now = self.now + GRACE;
        self.tell_routes();
        self.leader.expire(self.now + GRACE);
        let used = used(&self.leader);
        let leaks = used != [1, 2] || !self.leader.nodes.is_empty() || !self.leader.gone.is_empty();
        if leaks {
            return Err((Rule::NoLeak, format!("{used:?} are taken at the end")));
        }
        Ok(())
    }
}
