//! Random histories of a small fleet, judged by lifecycle-ccm's machine alone: events go in, effects come out, and a
//! world of plain values performs them. Safety (no wrong deletion), liveness (deletion in time), and a memory that
//! shows what the API server shows. A history comes from a seed and replays.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod cloud;
mod faults;
mod leaders;
mod objects;
mod variant;
mod world;

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use crate::dice::Dice;
use ccm_base::At;
use ccm_cloud::{Instance, ProviderId};
use lifecycle_ccm::{
    machine::{Effect, Event, Parameters, effect::Ask, event::Sight},
    policy::{
        Decision, Ghosts, Heartbeat, LOOKUPS_PER_PASS, Limit, NodeView, Policy, Reason, Replaced,
        Verdict, shutdown::Removal,
    },
};

pub use self::variant::{Sabotage, Variant};
use self::{
    faults::{AnswerMode, FaultSchedule},
    leaders::{Fate, Lease},
    objects::{LEAVES, LEFT_OUT, Objects, Process, wall},
    world::{START, World},
};

/// Counts of one history, or of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Passes.
    pub passes: u64,
    /// Nodes deleted whose instance was gone.
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
    dice: Dice,
    world: World,
    objects: Objects,
    schedule: FaultSchedule,
    /// The settings.
    policy: Policy,
    /// The settings that the machine has.
    parameters: Parameters,
    leader: Process,
    standby: Process,
    /// The detail of every lookup that finds an instance.
    instance: Instance,
    lease: Lease,
    /// The times of the deletions that needed budget, of all leaders.
    spent: Vec<u64>,
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

fn policy(dice: &mut Dice) -> Policy {
    let limits = [Limit::Percent(10), Limit::Count(1), Limit::Count(2), Limit::Percent(0)];
    Policy {
        budget: dice.pick(&limits).unwrap_or(Limit::Percent(10)),
        replaced: dice.pick(&[Replaced::Report, Replaced::Delete]).unwrap_or_default(),
        confirmation_period: Duration::from_secs(20),
        grace_period: Duration::from_mins(2),
        monitor_period: Duration::from_secs(5),
        budget_window: Duration::from_mins(10),
        shrink_threshold: 50,
        ghosts: Ghosts::default(),
        evidence_age: Duration::from_secs(30),
    }
}

fn without_rule(policy: &Policy, sabotage: Option<Sabotage>) -> Policy {
    let mut told = policy.clone();
    match sabotage {
        Some(Sabotage::Answers) => told.confirmation_period /= 3,
        Some(Sabotage::Confirmation) => told.confirmation_period = Duration::ZERO,
        Some(Sabotage::Grace) => told.grace_period = Duration::ZERO,
        Some(Sabotage::Breaker) => told.shrink_threshold = 100,
        Some(Sabotage::Budget) => told.budget = Limit::Count(u32::MAX),
        _ => {}
    }
    told
}

/// Plays one history. The error says what was wrong, with the timeline.
pub fn play(seed: u64, variant: Variant, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    let mut dice = Dice::new(seed);
    let policy = policy(&mut dice);
    let parameters = Parameters {
        policy: without_rule(&policy, sabotage),
        node_selector: format!("!{LEFT_OUT}").parse().unwrap(),
        scale_down_taints: vec![LEAVES.to_owned()],
        shutdown_taint_removal: Removal::default(),
    };
    let world = World::draw(&mut dice, variant, variant.confirmation(&policy));
    let schedule = FaultSchedule::draw(&mut dice, variant, &world, 110_000);
    let run = Run {
        variant,
        sabotage,
        dice,
        healthy: vec![None; world.nodes.len()],
        world,
        objects: Objects::default(),
        schedule,
        policy,
        leader: Process::new(&parameters),
        standby: Process::new(&parameters),
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
                if node.ready(now) || node.protected(now) || !node.registered(now) {
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

    /// The nodes as the informers show them now.
    pub fn watch(&mut self, now: u64) {
        let shown = self.objects.shown(&self.world, now);
        self.leader.watch(now, &shown);
        // A standby's watch may be late.
        if self.dice.percent(80) {
            self.standby.watch(now, &shown);
        }
    }

    /// The time of the next pass: when it is due, or soon after a change that needs one.
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

    /// The nodes as they are.
    pub fn views(&self, now: u64) -> Vec<NodeView> {
        let shown = |node: &&world::Node| {
            let known = self.leader.store.get(&node.name);
            known.is_some_and(|known| known.uid == node.uid)
        };
        let nodes = self.world.nodes.iter().filter(shown);
        let view = |node: &world::Node| {
            let mut view = node.view(now);
            let marks = self.objects.marks.get(&node.uid);
            view.approved &= !marks.is_some_and(|marks| marks.is_unapproved);
            view
        };
        nodes.map(view).collect()
    }

    fn sight(now: u64) -> Sight {
        Sight { wall: wall(now), claims: Vec::new() }
    }

    /// A pass. Returns the time of its end, and when the next one is due.
    fn pass(&mut self, began: u64) -> Result<(u64, u64), String> {
        self.tally.passes += 1;
        self.watch(began);
        if !self.leader.is_current() {
            return Err(self.fail(began, "the machine has other nodes"));
        }
        let effects = self.leader.tell(began, Event::Pass(Self::sight(began)));
        self.mark(began, effects);
        let (lists, seed) = (self.variant != Variant::Listless, self.dice.within(0, u64::MAX));
        let due = Event::Due { most_lookups: LOOKUPS_PER_PASS, lists, seed };
        let asks = self.leader.tell(began, due).into_iter().find_map(|effect| match effect {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        });
        let mut now = began;
        if let Some(ask) = asks {
            let is_open = self.leader.machine.gauges(at(now)).is_open;
            if !is_open && self.views(now).iter().all(|node| !node.is_watched()) {
                return Err(self.fail(now, "a call though every node is Ready"));
            }
            if ask.look_up.len() > LOOKUPS_PER_PASS {
                return Err(self.fail(now, "more than two batches"));
            }
            now = self.look(began, &ask)?;
        }
        self.watch(now);
        let next =
            self.leader.tell(now, Event::Ended).into_iter().find_map(|effect| match effect {
                Effect::Next(next) => Some(ms(next.0)),
                _ => None,
            });
        Ok((now, next.ok_or("no next pass")?))
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

    /// The calls of a pass, and what is done about the answers. Returns the time of its end.
    fn look(&mut self, asked: u64, ask: &Ask) -> Result<u64, String> {
        let mut mode = self.schedule.answer_mode(&mut self.dice, asked);
        if mode == AnswerMode::Wrong && self.world.blinks_near(asked) {
            mode = AnswerMode::True;
        }
        let mut now = asked + self.latency();
        self.watch(now);
        let witnesses = ask.witnesses.iter().map(|node| (node, true));
        for (node, is_witness) in ask.look_up.iter().map(|node| (node, false)).chain(witnesses) {
            let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
            let result = self.answer(node, is_witness, asked, mode);
            self.leader.tell(now, Event::LookedUp { name, uid, is_witness, result });
        }
        let mut listed = (None, AnswerMode::True);
        if ask.list {
            let before = now;
            now += self.latency();
            self.watch(now);
            listed = self.list(before, now, mode);
        }
        let all_read = self.read_leases(now);
        let (unlisted, list_mode) = listed;
        let is_true = mode == AnswerMode::True && list_mode == AnswerMode::True;
        let hidden = self.world.nodes.iter().any(|node| world::within(node.blink, asked));
        let lies =
            world::within(self.schedule.zone, asked) || self.schedule.denies_any(asked) || hidden;
        let healthy = is_true && now - asked < 3_000 && all_read && !lies;
        let unlisted = unlisted.unwrap_or_default();
        let decide = Event::Decide { sight: Self::sight(now), unlisted };
        let effects = self.leader.tell(now, decide);
        let views = self.views(now);
        let fate = self.judge(now, &views, effects, healthy)?;
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
    ) -> Result<Fate, String> {
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
            match decision.verdict {
                Verdict::Delete => self.is_rightful(now, views, decision)?,
                Verdict::BreakerOpen | Verdict::OverBudget { .. } => self.tally.held += 1,
                Verdict::Keep(Reason::Alive) => self.tally.kept += 1,
                _ => {}
            }
        }
        self.write(now, views, writes, fate)?;
        self.note_health(now, &decisions, healthy);
        Ok(fate)
    }

    fn note_health(&mut self, now: u64, decisions: &[Decision], healthy: bool) {
        let is_open = self.leader.machine.gauges(at(now)).is_open;
        for (node, slot) in self.world.nodes.iter().zip(&mut self.healthy) {
            let judged = node.registered(now)
                && !node.lives(now)
                && !node.ready(now)
                && !node.protected(now)
                && !node.kubelet_runs(now)
                && self.variant.judges(node.kind)
                && now.saturating_sub(node.created) >= ms(self.policy.grace_period);
            let held = decisions.iter().any(|decision| {
                let restarts = matches!(
                    decision.verdict,
                    Verdict::OverBudget { .. } | Verdict::Keep(Reason::Alive)
                );
                decision.uid == node.uid && restarts
            });
            let marks = self.objects.marks.get(&node.uid);
            let is_approved = node.approved(now) && !marks.is_some_and(|marks| marks.is_unapproved);
            let free = judged && healthy && !held && (!is_open || is_approved);
            *slot = if free { slot.or(Some(now)) } else { None };
        }
    }

    /// A judged node must be deleted within a confirmation period, three monitor periods and
    /// ten seconds of truthful answers, a closed breaker and free budget.
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
