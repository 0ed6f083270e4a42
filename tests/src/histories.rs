//! Random histories of a small fleet, judged by the deletion policy: safety (no wrong
//! deletion) and liveness (deletion in time). A history comes from a seed and replays.

mod dice;
mod faults;
mod leaders;
mod variant;
mod world;

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use ccm_cloud::{AbsenceProof, Instance, Lookup, ProofMethod, ProviderId};
use lifecycle_ccm::policy::{
    Abilities, Agenda, Answers, At, Decider, Decision, Ghosts, Heartbeat, Limit, Listing, LookedUp,
    NodeView, Policy, Reason, Replaced, Verdict,
};

pub use self::variant::{Sabotage, Variant};
use self::{
    dice::Dice,
    faults::{AnswerMode, FaultSchedule},
    leaders::{Fate, Lease},
    world::{Kind, Node, START, World},
};

/// Counts of one history, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passes.
    pub steps: u64,
    /// Nodes deleted whose instance was gone.
    pub deletions: u64,
    /// Decisions held by the breaker.
    pub breaker: u64,
    /// Decisions held by the budget.
    pub budget: u64,
    /// Leader changes.
    pub leaders: u64,
    /// Leaders that died in a pass with deletions.
    pub killed: u64,
    /// Deletions without effect, and those whose answer was lost.
    pub undone: u64,
    /// See [`Tally::undone`].
    pub uncertain: u64,
    /// Deletions of nodes that an autoscaler removes, and of Ready nodes on a replaced machine.
    pub marked: u64,
    /// See [`Tally::marked`].
    pub replaced: u64,
    /// Nodes kept because their kubelets live.
    pub alive: u64,
}

impl Tally {
    /// Adds the counts of another history.
    pub fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.deletions += more.deletions;
        self.breaker += more.breaker;
        self.budget += more.budget;
        self.leaders += more.leaders;
        self.killed += more.killed;
        self.undone += more.undone;
        self.uncertain += more.uncertain;
        self.marked += more.marked;
        self.replaced += more.replaced;
        self.alive += more.alive;
    }
}

struct Run {
    variant: Variant,
    sabotage: Option<Sabotage>,
    dice: Dice,
    world: World,
    schedule: FaultSchedule,
    policy: Policy,
    told: Policy,
    decider: Decider,
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

/// Plays one history. The error says what was wrong, with the timeline.
pub fn play(seed: u64, variant: Variant, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    let mut dice = Dice::new(seed);
    let policy = Policy {
        budget: dice
            .pick(&[Limit::Percent(10), Limit::Count(1), Limit::Count(2), Limit::Percent(0)])
            .unwrap_or(Limit::Percent(10)),
        replaced: dice.pick(&[Replaced::Report, Replaced::Delete]).unwrap_or_default(),
        confirmation_period: Duration::from_secs(20),
        grace_period: Duration::from_mins(2),
        monitor_period: Duration::from_secs(5),
        budget_window: Duration::from_mins(10),
        shrink_threshold: 50,
        ghosts: Ghosts::default(),
        evidence_age: Duration::from_secs(30),
    };
    let mut told = policy.clone();
    match sabotage {
        None
        | Some(
            Sabotage::Life
            | Sabotage::Witnesses
            | Sabotage::Memory
            | Sabotage::Store
            | Sabotage::Doubt
            | Sabotage::Release,
        ) => {}
        Some(Sabotage::Answers) => told.confirmation_period /= 3,
        Some(Sabotage::Confirmation) => told.confirmation_period = Duration::ZERO,
        Some(Sabotage::Grace) => told.grace_period = Duration::ZERO,
        Some(Sabotage::Breaker) => told.shrink_threshold = 100,
        Some(Sabotage::Budget) => told.budget = Limit::Count(u32::MAX),
    }
    let world = World::draw(&mut dice, variant, variant.confirmation(&policy));
    let schedule = FaultSchedule::draw(&mut dice, variant, &world, 110_000);
    let healthy = vec![None; world.nodes.len()];
    let run = Run {
        variant,
        sabotage,
        dice,
        world,
        schedule,
        policy,
        told,
        decider: Decider::default(),
        instance: Instance::new(
            ProviderId::parse("sim://i-1").map_err(|error| error.to_string())?,
            "found",
        ),
        lease: Lease::default(),
        spent: Vec::new(),
        charged: Vec::new(),
        doubtful: BTreeSet::new(),
        healthy,
        tally: Tally::default(),
        timeline: String::new(),
    };
    run.play().map_err(|what| format!("seed {seed}: {what}"))
}

fn at(ms: u64) -> At {
    At(Duration::from_millis(ms))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Run {
    fn play(mut self) -> Result<Tally, String> {
        let mut now = START;
        while now < self.world.end {
            self.renew();
            if self.dice.percent(1) {
                self.succeed(now)?;
            }
            for (node, healthy) in self.world.nodes.iter().zip(&mut self.healthy) {
                if node.ready(now) || node.protected(now) || !node.registered(now) {
                    *healthy = None;
                }
            }
            let views = self.views(now);
            let seed = self.dice.within(0, u64::MAX);
            let lists = self.variant != Variant::Listless;
            self.decider.adapt_to(Abilities { lists, seed, ..Abilities::default() });
            let agenda = self.decider.agenda(at(now), &views, &self.told);
            let quiet = views.iter().all(|node| !node.is_watched());
            if quiet && !self.decider.breaker().is_open() && !agenda.is_empty() {
                return Err(self.fail(now, "a call though every node is Ready"));
            }
            if agenda.look_up.len() > 1000 {
                return Err(self.fail(now, "more than two batches"));
            }
            if !agenda.is_empty() {
                now = self.pass(now, &agenda)?;
            }
            self.gone_nodes_are_deleted_in_time(now)?;
            now = self.sleep(now, agenda.next, agenda.is_empty());
        }
        Ok(self.tally)
    }

    /// Time to the next agenda: at least a second, then the next due case or change.
    fn sleep(&self, now: u64, next: Option<At>, was_empty: bool) -> u64 {
        if !was_empty {
            return now + 1000;
        }
        let changes = &self.world.changes;
        let change = changes.get(changes.partition_point(|change| *change <= now)).copied();
        let due = next.map(|at| ms(at.0));
        let wake = change.into_iter().chain(due).min().unwrap_or(self.world.end);
        wake.max(now + 1000)
    }

    fn views(&self, now: u64) -> Vec<NodeView> {
        let nodes = &self.world.nodes;
        // A store shows one node of each name, and the end of a deleted one late.
        let is_again =
            |old: &Node| nodes.iter().any(|node| node.name == old.name && node.registered(now));
        let shown =
            |node: &&Node| node.registered(now) || (now < node.shown_until && !is_again(node));
        nodes.iter().filter(shown).map(|node| node.view(now)).collect()
    }

    fn latency(&mut self) -> u64 {
        if self.dice.percent(3) {
            self.dice.within(5_000, 45_000)
        } else {
            self.dice.within(20, 800)
        }
    }

    fn index(&self, uid: &str) -> Option<usize> {
        self.world.nodes.iter().position(|node| &*node.uid == uid)
    }

    /// One pass: calls, and the answers. Returns the time of its end.
    fn pass(&mut self, asked: u64, agenda: &Agenda) -> Result<u64, String> {
        self.tally.steps += 1;
        let before = self.views(asked);
        let mut mode = self.schedule.answer_mode(&mut self.dice, asked);
        if mode == AnswerMode::Wrong && self.world.blinks_near(asked) {
            mode = AnswerMode::True;
        }
        let answered = asked + self.latency();
        let look_up = |names: &[Arc<str>]| -> Vec<LookedUp> {
            let wanted = before.iter().filter(|view| names.contains(&view.name));
            wanted.map(|view| self.look_up(view, (asked, answered), mode)).collect()
        };
        let mut lookups = look_up(&agenda.look_up);
        let mut witnesses = look_up(&agenda.witnesses);
        let mut now = answered;
        let mut listed = (None, AnswerMode::True);
        if agenda.list && self.variant == Variant::Listless {
            listed.0 = Some(Listing::Witnesses);
            self.bribe(&mut witnesses);
        } else if agenda.list {
            now += self.latency();
            listed = self.list(answered, now, mode);
        }
        let all_read = self.read_leases(now, &mut lookups, agenda);
        let (listing, list_mode) = listed;
        let true_calls =
            mode == AnswerMode::True && list_mode == AnswerMode::True && now - asked < 3_000;
        let hidden =
            |world: &World| world.nodes.iter().any(|node| world::within(node.blink, asked));
        let lies = world::within(self.schedule.zone, asked) || self.schedule.denies_any(asked);
        let healthy = true_calls && all_read && !lies && !hidden(&self.world);
        let answers = Answers { asked: at(asked), lookups, witnesses, list: listing };
        let views = self.views(now);
        let decisions = self.decider.decide(at(now), &views, answers, &self.told);
        let fate = self.fate(now, &decisions)?;
        self.judge(now, &views, &decisions, (healthy, fate))?;
        if fate.is_death() {
            now += self.dice.within(1_000, 20_000);
            self.succeed(now)?;
        }
        Ok(now)
    }

    /// Reads the Leases of kubelets after answers "gone". Returns whether that succeeded.
    fn read_leases(&mut self, now: u64, lookups: &mut [LookedUp], agenda: &Agenda) -> bool {
        let mut all_read = true;
        for lookup in lookups {
            let is_gone = matches!(lookup.result, Ok(Lookup::Gone(_)));
            if !is_gone || !agenda.heartbeats.contains(&lookup.name) {
                continue;
            }
            let index = self.index(&lookup.uid);
            let node = index.and_then(|index| self.world.nodes.get(index));
            let heartbeat = node.map(|node| node.heartbeat(now));
            lookup.heartbeat = if self.sabotage == Some(Sabotage::Life) {
                Some(Heartbeat::default())
            } else {
                heartbeat.filter(|_| !self.dice.percent(3))
            };
            all_read &= lookup.heartbeat.is_some();
        }
        all_read
    }

    /// Witnesses that are not asked say that they were found.
    fn bribe(&self, witnesses: &mut [LookedUp]) {
        if self.sabotage == Some(Sabotage::Witnesses) {
            for witness in witnesses {
                witness.result = Ok(Lookup::Found(Box::new(self.instance.clone())));
            }
        }
    }

    fn look_up(
        &self,
        view: &NodeView,
        (asked, answered): (u64, u64),
        mode: AnswerMode,
    ) -> LookedUp {
        let seen = self
            .index(&view.uid)
            .is_some_and(|index| faults::sees(&self.world, &self.schedule, index, asked, mode));
        let method = if view.has_id { ProofMethod::ById } else { ProofMethod::ByName };
        let result = match mode {
            AnswerMode::Error(kind) => Err(faults::error(kind)),
            _ if self.is_stranger(view) => Ok(Lookup::NotOurs("another region".to_owned())),
            _ if seen => Ok(Lookup::Found(Box::new(self.instance.clone()))),
            _ => Ok(Lookup::Gone(AbsenceProof {
                method,
                evidence: format!("{mode:?}"),
                request_id: None,
            })),
        };
        LookedUp {
            name: Arc::clone(&view.name),
            uid: view.uid.clone(),
            answered: at(answered),
            result,
            heartbeat: None,
        }
    }

    /// A list requested at `asked` and read by `now`, after lookups in that mode.
    fn list(&mut self, asked: u64, now: u64, lookups: AnswerMode) -> (Option<Listing>, AnswerMode) {
        let mut mode = self.schedule.answer_mode(&mut self.dice, asked);
        let zone = world::within((self.schedule.zone.0, self.schedule.zone.1 + 120_000), asked);
        // Only one of lookups and list lies at a time: see `faults`.
        if mode == AnswerMode::Shrunken && (lookups == AnswerMode::Wrong || zone) {
            mode = AnswerMode::True;
        }
        if let AnswerMode::Error(kind) = mode {
            return (Some(Listing::Failed(faults::error(kind))), mode);
        }
        let shown = faults::list(&self.world, &self.schedule, &mut self.dice, asked, mode);
        let views = self.views(now);
        let missing: BTreeSet<Arc<str>> = views
            .iter()
            .filter(|view| self.index(&view.uid).is_none_or(|index| !shown.contains(&index)))
            .map(|view| Arc::clone(&view.name))
            .collect();
        let is_hidden = world::within(self.schedule.zone, asked) && !self.is_mass(&views, &missing);
        let lies = matches!(mode, AnswerMode::Wrong | AnswerMode::Empty);
        if is_hidden || (lies && !self.lacks_a_witness(&views, &missing)) {
            return (Some(Listing::Failed(faults::error(ccm_cloud::ErrorKind::Unavailable))), mode);
        }
        let instances = shown.len();
        let listing =
            Listing::Read { asked: at(asked), answered: at(now), instances, malformed: 0, missing };
        (Some(listing), mode)
    }

    /// True if the list lacks too many nodes to be credible: an invisible zone of only one or
    /// two nodes looks the same as deleted machines.
    fn is_mass(&self, views: &[NodeView], missing: &BTreeSet<Arc<str>>) -> bool {
        let known = views.iter().filter(|node| self.is_counted(node));
        let lacking = known.clone().filter(|node| missing.contains(&node.name)).count();
        lacking >= 3 && lacking * 2 > known.count()
    }

    /// True if a list of another project is noticed, because it lacks a node that should be in it.
    /// If an autoscaler removes all nodes, another project looks the same as a fleet of size zero,
    /// and such a fleet has to go without anyone's approval.
    fn lacks_a_witness(&self, views: &[NodeView], missing: &BTreeSet<Arc<str>>) -> bool {
        views.iter().filter(|node| missing.contains(&node.name)).any(|node| {
            let runs = node.in_reach() && node.has_id && node.is_well() && !node.marked;
            self.is_counted(node) || (runs && !self.is_stranger(node))
        })
    }

    /// Counted as the breaker counts: without nodes that the policy never deletes, because their
    /// instances may be gone for long, those that an autoscaler removes, and those that the cloud
    /// cannot answer for. (Of the last the policy may not know yet. Then it counts one more that
    /// is missing, so it doubts whatever is doubtful here.)
    fn is_counted(&self, node: &NodeView) -> bool {
        node.in_reach()
            && !node.approved
            && !node.protected
            && !node.marked
            && node.age >= self.policy.grace_period
            && !self.is_stranger(node)
    }

    fn is_stranger(&self, view: &NodeView) -> bool {
        let node = self.index(&view.uid).and_then(|index| self.world.nodes.get(index));
        node.is_some_and(|node| node.kind == Kind::Stranger)
    }

    fn judge(
        &mut self,
        now: u64,
        views: &[NodeView],
        decisions: &[Decision],
        (healthy, fate): (bool, Fate),
    ) -> Result<(), String> {
        let mut deletions = 0;
        for decision in decisions {
            let Decision { uid, verdict, evidence, .. } = decision;
            writeln!(self.timeline, "{now} {uid} {verdict:?} {evidence}")
                .map_err(|error| error.to_string())?;
            match decision.verdict {
                Verdict::Delete => {
                    let index = self.is_rightful(now, views, decision)?;
                    if fate.allows(deletions) {
                        self.delete(now, index, views, decision)?;
                    }
                    deletions += 1;
                }
                Verdict::BreakerOpen => self.tally.breaker += 1,
                Verdict::OverBudget { .. } => self.tally.budget += 1,
                Verdict::Keep(Reason::Alive) => self.tally.alive += 1,
                _ => {}
            }
        }
        let open = self.decider.breaker().is_open();
        for index in 0..self.healthy.len() {
            let Some(node) = self.world.nodes.get(index) else { continue };
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
            let free = judged && healthy && !held && (!open || node.approved(now));
            let since = self.healthy.get(index).copied().flatten();
            if let Some(slot) = self.healthy.get_mut(index) {
                *slot = if free { since.or(Some(now)) } else { None };
            }
        }
        Ok(())
    }

    /// A judged node must be deleted within a confirmation period, three monitor periods and
    /// ten seconds of truthful answers, a closed breaker and free budget.
    fn gone_nodes_are_deleted_in_time(&self, now: u64) -> Result<(), String> {
        let confirmation = self.variant.confirmation(&self.policy);
        let bound = ms(confirmation + 3 * self.policy.monitor_period) + 10_000;
        let lost = self.healthy.iter().flatten().any(|since| now - since > bound);
        if lost { Err(self.fail(now, "a dead node was not deleted in time")) } else { Ok(()) }
    }

    fn fail(&self, now: u64, what: &str) -> String {
        let nodes: Vec<String> = self.world.nodes.iter().map(ToString::to_string).collect();
        format!("at {now}: {what}\n{}\n{}\n{:?}", self.timeline, nodes.join("\n"), self.schedule)
    }
}
