//! Random histories of a small fleet, judged by lifecycle-ccm's machine alone: events go in, effects come out, and a
//! world of plain values performs them. Safety (no wrong deletion), liveness (deletion in time), and a memory that
//! shows what the API server shows. A history comes from a seed and replays.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod clients;
mod cloud;
mod faults;
mod leaders;
mod objects;
mod rules;
mod settings;
mod trail;
mod variant;
mod world;

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use crate::dice::Dice;
use ccm_base::At;
use ccm_cloud::{Instance, Lookup, ProviderId};
use ccm_objects::Node;
use lifecycle_ccm::{
    machine::{
        Effect, Event, Parameters,
        effect::Ask,
        event::{Claimed, Sight},
    },
    policy::{
        Decision, Heartbeat, LOOKUPS_PER_PASS, NodeView, Policy, Reason, Verdict, shutdown::Removal,
    },
};

pub use self::variant::{Sabotage, Variant};
use self::{
    clients::Admission,
    faults::{AnswerMode, FaultSchedule},
    leaders::{Fate, Lease, Spent},
    objects::{Objects, Process, wall},
    rules::Look,
    world::{START, World},
};

/// Counts of one history, or of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Passes.
    pub passes: u64,
    /// Deleted nodes whose instance was gone.
    pub deletions: u64,
    /// Decisions held by breaker or budget.
    pub held: u64,
    /// Nodes kept because their kubelets live.
    pub kept: u64,
    /// Leader changes.
    pub leaders: u64,
    /// Deletions without effect, or whose answer was lost.
    pub undone: u64,
    /// Marks written.
    pub marks: u64,
}

impl Tally {
    /// Adds the counts of another history.
    pub fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.passes += more.passes;
        self.deletions += more.deletions;
        self.held += more.held;
        self.kept += more.kept;
        self.leaders += more.leaders;
        self.undone += more.undone;
        self.marks += more.marks;
    }
}

/// A history.
struct Run {
    variant: Variant,
    sabotage: Option<Sabotage>,
    /// True if the process only observes.
    observes: bool,
    dice: Dice,
    world: World,
    objects: Objects,
    schedule: FaultSchedule,
    admission: Admission,
    /// The approval on the Lease: the UIDs of nodes, and when it ends.
    approved: (BTreeSet<Box<str>>, u64),
    /// The settings.
    policy: Policy,
    removal: Removal,
    /// The settings that the machine has.
    parameters: Parameters,
    leader: Process,
    standby: Process,
    /// The detail of every lookup that finds an instance.
    instance: Instance,
    lease: Lease,
    /// The deletions that needed budget, of all leaders.
    spent: Vec<Spent>,
    /// The charges of nodes that are deleted or may be.
    charged: Vec<(u64, Box<str>)>,
    /// Nodes with a deletion whose answer was lost.
    doubtful: BTreeSet<Box<str>>,
    /// Since when the policy could have deleted each node.
    healthy: Vec<Option<u64>>,
    tally: Tally,
    timeline: String,
}

fn at(ms: u64) -> At {
    At(Duration::from_millis(ms))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Plays one history. The error says which rule was broken, with the timeline.
pub fn play(seed: u64, variant: Variant, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    let mut dice = Dice::new(seed);
    let (policy, removal) = settings::draw(&mut dice);
    let parameters = settings::told(&policy, removal, sabotage);
    let world = World::draw(&mut dice, variant, variant.confirmation(&policy));
    let schedule = FaultSchedule::draw(&mut dice, variant, &world, 110_000);
    let admission = Admission::draw(&mut dice, &world);
    let observes = dice.percent(10);
    let is_told = sabotage != Some(Sabotage::Observer);
    let process = |observes| Process::new(&parameters, observes, world.schemes_from);
    let run = Run {
        variant,
        sabotage,
        observes,
        leader: process(observes && is_told),
        standby: process(false),
        dice,
        healthy: vec![None; world.nodes.len()],
        world,
        objects: Objects::default(),
        schedule,
        admission,
        approved: (BTreeSet::new(), 0),
        policy,
        removal,
        parameters,
        instance: Instance::new(ProviderId::parse("sim://i-1").unwrap(), "found"),
        lease: Lease::default(),
        spent: Vec::new(),
        charged: Vec::new(),
        doubtful: BTreeSet::new(),
        tally: Tally::default(),
        timeline: String::new(),
    };
    run.play().map_err(|what| format!("seed {seed}: {what}"))
}

impl Run {
    fn play(mut self) -> Result<Tally, String> {
        let mut now = START;
        self.watch(now);
        self.standby.watch(now, &self.objects.shown(&self.world, now));
        self.begin(now);
        while now < self.world.end {
            self.renew();
            if self.dice.percent(1) {
                self.succeed(now);
            }
            if self.dice.percent(2) {
                self.leader.remember();
            }
            for (node, healthy) in self.world.nodes.iter().zip(&mut self.healthy) {
                let is_exempt = node.protected(now) || node.leaving(now);
                if node.ready(now) || is_exempt || !node.registered(now) {
                    *healthy = None;
                }
            }
            let (ended, next) = self.pass(now)?;
            self.gone_nodes_are_deleted_in_time(ended)?;
            now = self.sleep(now, ended, next);
        }
        self.tally.events += self.leader.events + self.standby.events;
        Ok(self.tally)
    }

    /// Shows the nodes as the informers see them now.
    fn watch(&mut self, now: u64) {
        let shown = self.objects.shown(&self.world, now);
        self.leader.watch(now, &shown);
        // A standby's watch may be late.
        if self.dice.percent(80) {
            self.standby.watch(now, &shown);
        }
    }

    /// Returns the time of the next pass: when it is due, or soon after a change that needs one.
    fn sleep(&mut self, began: u64, ended: u64, due: u64) -> u64 {
        let (mut now, earliest) = (ended, began + 1000);
        while !self.leader.is_woken {
            let changes = &self.world.changes;
            let change = changes.get(changes.partition_point(|change| *change <= now)).copied();
            let change = change.filter(|change| *change < due);
            now = change.unwrap_or(due).max(ended);
            if now >= self.world.end || change.is_none() {
                break;
            }
            self.watch(now);
        }
        self.leader.is_woken = false;
        now.max(earliest)
    }

    /// Returns the nodes as they are.
    pub fn views(&self, now: u64) -> Vec<NodeView> {
        // The policy does not see a node whose owner is not known.
        let owned = self.leader.machine.claims();
        let owned: BTreeSet<Box<str>> =
            owned.into_iter().filter_map(|(node, claim)| claim.map(|_| node.uid.clone())).collect();
        let shown = |node: &&world::Node| {
            let known = self.leader.store.get(&node.name);
            known.is_some_and(|known| known.uid == node.uid) && owned.contains(&node.uid)
        };
        let nodes = self.world.nodes.iter().filter(shown);
        let view = |node: &world::Node| {
            let mut view = node.view(now);
            let marks = self.objects.marks.get(&node.uid);
            let is_over = view.is_well() || marks.is_some_and(|marks| marks.is_unapproved);
            view.approved = (view.approved && !is_over) || self.is_in_set(&view, now);
            view
        };
        nodes.map(view).collect()
    }

    /// Returns the claims that have changed since the memory got them.
    fn claims(&self, now: u64) -> Vec<Claimed> {
        if self.sabotage == Some(Sabotage::Claims) {
            return Vec::new();
        }
        let known = self.leader.machine.claims();
        let changed = known.into_iter().filter_map(|(node, known)| {
            let claim = self.leader.claim(&node, now);
            let (name, provider_id) = (Arc::clone(&node.name), node.provider_id.clone());
            (claim != known).then_some(Claimed { name, provider_id, claim })
        });
        changed.collect()
    }

    /// Makes a pass. Returns the time of its end, and when the next one is due.
    fn pass(&mut self, began: u64) -> Result<(u64, u64), String> {
        self.tally.passes += 1;
        let (before, leader) = (self.begin_pass(began)?, self.tally.leaders);
        let (lists, seed) = (self.variant != Variant::Listless, self.dice.within(0, u64::MAX));
        let due = Event::Due { most_lookups: LOOKUPS_PER_PASS, lists, seed };
        let asks = self.leader.tell(began, due).into_iter().find_map(|effect| match effect {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        });
        let mut now = began;
        if let Some(ask) = asks {
            let is_open = self.leader.machine.gauges(at(now)).is_open;
            let is_first = self.observes && !self.leader.trail.has_list;
            if !is_open && !is_first && self.views(now).iter().all(|node| !node.is_watched()) {
                return Err(self.fail(now, "a call though every node is Ready"));
            }
            if ask.look_up.len() > LOOKUPS_PER_PASS {
                return Err(self.fail(now, "more than two batches"));
            }
            self.asks_rightly(now, &ask)?;
            now = self.look(began, &ask)?;
        }
        self.watch(now);
        let next =
            self.leader.tell(now, Event::Ended).into_iter().find_map(|effect| match effect {
                Effect::Next(next) => Some(ms(next.0)),
                _ => None,
            });
        if self.tally.leaders == leader && self.world.schemes_from <= began {
            self.shows_plans(now, &before)?;
        }
        self.asks_often(now)?;
        Ok((now, next.ok_or("no next pass")?))
    }

    /// Begins a pass. Returns the nodes as the machine knows them then.
    fn begin_pass(&mut self, began: u64) -> Result<Vec<Arc<Node>>, String> {
        let claims = self.claims(began);
        if self.dice.percent(4) {
            self.meddle(began);
        }
        if self.dice.percent(1) {
            self.approve_set(began);
        }
        if self.dice.percent(if claims.is_empty() { 1 } else { 50 }) {
            self.register_again(began);
        }
        self.watch(began);
        if !self.leader.is_current() {
            return Err(self.fail(began, "the machine has other nodes"));
        }
        let before = self.leader.store.values().cloned().collect();
        let effects = self.leader.tell(began, Event::Pass(Sight { wall: wall(began), claims }));
        self.knows_claims(began)?;
        self.removes_marks(began, &effects)?;
        self.mark(began, effects)?;
        Ok(before)
    }

    fn latency(&mut self) -> u64 {
        if self.dice.percent(3) {
            self.dice.within(5_000, 45_000)
        } else {
            self.dice.within(20, 800)
        }
    }

    pub fn index(&self, uid: &str) -> Option<usize> {
        self.world.nodes.iter().position(|node| &*node.uid == uid)
    }

    /// Makes the calls of a pass, and handles the answers. Returns the time of its end.
    fn look(&mut self, asked: u64, ask: &Ask) -> Result<u64, String> {
        let mut mode = self.schedule.answer_mode(&mut self.dice, asked);
        if mode == AnswerMode::Wrong && self.world.blinks_near(asked) {
            mode = AnswerMode::True;
        }
        let mut now = asked + self.latency();
        self.watch(now);
        let mut look = Look { asked, answered: now, ..Look::default() };
        let witnesses = ask.witnesses.iter().map(|node| (node, true));
        for (node, is_witness) in ask.look_up.iter().map(|node| (node, false)).chain(witnesses) {
            let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
            let result = self.answer(node, is_witness, asked, mode);
            look.heard(node, is_witness, &result);
            if !is_witness && matches!(result, Ok(Lookup::Found(_))) {
                self.leader.trail.moved.remove(&node.uid);
            }
            self.leader.tell(now, Event::LookedUp { name, uid, is_witness, result });
        }
        let mut listed = (None, AnswerMode::True);
        if ask.list {
            let before = now;
            now += self.latency();
            self.watch(now);
            listed = self.list(before, now, mode, &mut look);
        }
        let all_read = self.read_leases(now);
        let (unlisted, list_mode) = listed;
        let is_true = mode == AnswerMode::True && list_mode == AnswerMode::True;
        let hidden = self.world.nodes.iter().any(|node| world::within(node.blink, asked));
        let lies =
            world::within(self.schedule.zone, asked) || self.schedule.denies_any(asked) || hidden;
        let healthy = is_true && now - asked < 3_000 && all_read && !lies;
        let unlisted = unlisted.unwrap_or_default();
        if self.dice.percent(2) && !world::within(self.schedule.zone, asked) {
            // A node arrives after the comparison with the list.
            self.register_again(now);
            self.watch(now);
        }
        let sight = Sight { wall: wall(now), claims: self.claims(now) };
        let effects = self.leader.tell(now, Event::Decide { sight, unlisted });
        let views = self.views(now);
        self.follow_breaker(now, &views, &effects);
        self.is_doubted(now, &views, &look)?;
        self.shows_why(now, &views, &look)?;
        let (fate, ended) = self.judge(now, &views, effects, healthy, &look)?;
        now = ended;
        if fate.is_death() {
            now += self.dice.within(1_000, 20_000);
            self.succeed(now);
        }
        Ok(now)
    }

    /// Reads the Leases of kubelets after answers "gone". Returns true if that succeeded.
    fn read_leases(&mut self, now: u64) -> bool {
        let mut all_read = true;
        for effect in self.leader.tell(now, Event::Answered) {
            let Effect::ReadLeases(names) = effect else { continue };
            for name in names {
                let node = self.leader.store.get(&name).and_then(|node| self.index(&node.uid));
                let node = node.and_then(|index| self.world.nodes.get(index));
                let shown = match self.sabotage {
                    Some(Sabotage::Life) => Some(Heartbeat::default()),
                    _ => node.map(|node| node.heartbeat(now)).filter(|_| !self.dice.percent(3)),
                };
                all_read &= shown.is_some();
                self.leader.tell(now, Event::Beat { name, shown });
            }
        }
        all_read
    }

    fn judge(
        &mut self,
        now: u64,
        views: &[NodeView],
        effects: Vec<Effect>,
        healthy: bool,
        look: &Look,
    ) -> Result<(Fate, u64), String> {
        let (mut decisions, mut writes, mut left) = (Vec::new(), Vec::new(), None);
        for effect in effects {
            match effect {
                Effect::Decided(decided) => decisions.push(decided.decision),
                Effect::Write(action) => writes.push(action),
                Effect::Leave(leaves) => left = Some(leaves),
                _ => {}
            }
        }
        for Decision { uid, verdict, evidence, .. } in &decisions {
            writeln!(self.timeline, "{now} {uid} {verdict:?} {evidence}").unwrap();
        }
        let fate = self.fate(now, &decisions, left)?;
        for decision in &decisions {
            self.is_founded(now, views, decision, look)?;
            self.is_protected(now, views, decision)?;
            match decision.verdict {
                Verdict::Delete => self.is_rightful(now, views, decision)?,
                Verdict::BreakerOpen | Verdict::OverBudget { .. } => self.tally.held += 1,
                Verdict::Keep(Reason::Alive) => self.tally.kept += 1,
                _ => {}
            }
        }
        let ended = self.write(now, views, writes, fate)?;
        // The next look waits for the writes.
        self.note_health(now, &decisions, healthy && ended - now < 3_000);
        Ok((fate, ended))
    }

    fn note_health(&mut self, now: u64, decisions: &[Decision], healthy: bool) {
        let is_open = self.leader.machine.gauges(at(now)).is_open;
        for (node, slot) in self.world.nodes.iter().zip(&mut self.healthy) {
            let appeared = self.leader.trail.appeared.get(&node.uid).copied().unwrap_or(0);
            let judged = node.registered(now)
                && !node.lives(now)
                && !node.ready(now)
                && !node.protected(now)
                && !node.leaving(now)
                && !node.kubelet_runs(now)
                && self.variant.judges(node.kind, self.policy.ghosts)
                && self.world.schemes_from <= now
                && now.saturating_sub(node.created.max(appeared)) >= ms(self.policy.grace_period);
            let held = decisions.iter().any(|decision| {
                let restarts = match decision.verdict {
                    Verdict::OverBudget { .. } | Verdict::Keep(Reason::Alive) => true,
                    Verdict::Delete => self.observes,
                    _ => false,
                };
                decision.uid == node.uid && restarts
            });
            let marks = self.objects.marks.get(&node.uid);
            let is_approved = node.approved(now) && !marks.is_some_and(|marks| marks.is_unapproved);
            let free = judged && healthy && !held && (!is_open || is_approved);
            *slot = if free { slot.or(Some(now)) } else { None };
        }
    }

    /// Checks that a judged node is deleted within a confirmation period, three monitor periods and
    /// ten seconds of truthful answers, with a closed breaker and free budget.
    fn gone_nodes_are_deleted_in_time(&self, now: u64) -> Result<(), String> {
        let confirmation = self.variant.confirmation(&self.policy);
        let bound = ms(confirmation + 3 * self.policy.monitor_period) + 10_000;
        let lost = self.healthy.iter().flatten().any(|since| now.saturating_sub(*since) > bound);
        if lost { Err(self.fail(now, "a dead node was not deleted in time")) } else { Ok(()) }
    }

    pub fn fail(&self, now: u64, what: &str) -> String {
        let nodes: Vec<String> = self.world.nodes.iter().map(ToString::to_string).collect();
        format!("at {now}: {what}\n{}\n{}\n{:?}", self.timeline, nodes.join("\n"), self.schedule)
    }
}
