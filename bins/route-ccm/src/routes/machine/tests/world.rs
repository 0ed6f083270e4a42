//! A cluster, a cloud and time as plain values. The world performs the effects of the machine.

mod cloud;
mod explained;
mod nodes;
mod people;
mod router;
mod rules;
mod settled;
mod truth;
mod variants;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{
    AppliedChange, CloudError, ClusterId, RouteChange, RouteTable, RouteTarget, TargetState,
};
use ccm_controller::{
    brake::{Budget, Limit, Window},
    machine::Machine as _,
};
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use self::{cloud::Fault, nodes::Process, router::Router, rules::Rules};
pub(super) use self::{
    rules::Rule,
    variants::{BROKEN, Variant},
};
use crate::{
    networks::MaxPodCidr,
    routes::{
        machine::{Call, Effect, Event, Fixed, Machine, Pass, Term},
        plan::{Counts, Parameters, Planned, wanted::NodeView},
    },
};

/// The number of names of nodes.
const NODES: u8 = 12;
/// The UID of the cluster.
const CLUSTER: &str = "c-1";
const CLUSTER_CIDRS: [&str; 2] = ["10.120.0.0/16", "fd00:120::/48"];
const TAINT: &str = "ToBeDeletedByClusterAutoscaler";
const WINDOW: Duration = Duration::from_mins(10);
/// A pass begins this long after the event that has woken it, and this long after the last pass.
const COALESCE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);
/// How many calls may wait for a lane.
const LANES: usize = 8;
/// More events at one time mean that they never end.
const AT_ONCE: usize = 20_000;

/// An event at a later time.
#[derive(Debug)]
enum Due {
    /// A call of the program gets a lane.
    Lane(Call),
    /// Changes reach the cloud, as the program asks for them in place of each planned one.
    Reach { batch: Vec<Planned>, asked: Vec<Vec<RouteChange>>, base: Option<String> },
    /// A change is answered.
    Answer(Box<Planned>, Result<AppliedChange, CloudError>),
    /// The table is listed.
    Listed(Result<RouteTable, CloudError>),
    /// Another answer.
    Tell(Box<Event>),
    /// The store of a new leader is as new as its term.
    CatchUp,
    /// The cloud carries out a change late.
    Late(RouteChange),
    /// A port is created.
    Port(std::net::IpAddr),
    /// The API server shows all nodes again.
    Truth,
    /// The competing writer of the condition looks at it.
    Rival(u32),
}

/// The whole world.
pub(super) struct World {
    variant: Variant,
    dice: StdRng,
    now: At,
    machine: Machine,
    parameters: Parameters,
    router: Router,
    /// The nodes of the API server.
    nodes: BTreeMap<Name, Arc<Node>>,
    /// The nodes that its lists omit.
    hidden: BTreeSet<Name>,
    /// The nodes that the process sees.
    store: BTreeMap<Name, NodeView>,
    /// True while the process does not see changes of nodes.
    is_blind: bool,
    /// The targets that the process has seen on nodes, with the last node of each.
    known: BTreeMap<RouteTarget, Arc<Node>>,
    /// The targets of nodes that were marked when they were deleted, and since when a node has had
    /// them again.
    marked: BTreeMap<RouteTarget, Option<At>>,
    agenda: BTreeMap<(At, u64), Due>,
    number: u64,
    /// The time of the next pass over all nodes, and of the last one.
    due: At,
    passed: At,
    /// The nodes whose condition may have to be written, and when.
    conditions: BTreeMap<Name, At>,
    left: (Window, Vec<IpNet>),
    counts: Counts,
    faults: Vec<Fault>,
    /// True until all faults end.
    has_faults: bool,
    /// The time until which the cloud says that no target exists.
    denies_until: At,
    has_rival: bool,
    is_dual: bool,
    made: u32,
    /// The table of some time ago.
    old_table: RouteTable,
    /// The first answers, for variants.
    first_table: Option<RouteTable>,
    looks: BTreeMap<RouteTarget, TargetState>,
    /// When the table was last listed.
    listed: At,
    pub(super) rules: Rules,
    pub(super) events: u64,
    /// True if events and effects are printed.
    pub(super) is_told: bool,
}

impl World {
    pub(super) fn new(seed: u64, variant: Variant) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let limit = if dice.random_bool(0.1) { 0 } else { 3 };
        let parameters = parameters(variant, limit, dice.random());
        let router = Router::new(&mut dice);
        let now = At(Duration::from_secs(1_000_000));
        let is_dual = dice.random();
        let mut world = Self {
            variant,
            dice,
            now,
            machine: machine(),
            parameters,
            router,
            nodes: BTreeMap::new(),
            hidden: BTreeSet::new(),
            store: BTreeMap::new(),
            is_blind: false,
            known: BTreeMap::new(),
            marked: BTreeMap::new(),
            agenda: BTreeMap::new(),
            number: 0,
            due: now,
            passed: At::default(),
            conditions: BTreeMap::new(),
            left: (Window::default(), Vec::new()),
            counts: Counts::default(),
            faults: Vec::new(),
            has_faults: true,
            denies_until: now,
            has_rival: false,
            is_dual,
            made: 0,
            old_table: RouteTable::default(),
            first_table: None,
            looks: BTreeMap::new(),
            listed: now,
            rules: Rules::new(usize::try_from(limit).unwrap_or_default()),
            events: 0,
            is_told: false,
        };
        world.add_others();
        world.old_table = world.router.table();
        (0..NODES).for_each(|number| world.add_node(number));
        world.restart();
        world
    }

    /// Starts a new process, which leads.
    fn restart(&mut self) {
        let process = self.process();
        self.lead(process);
    }

    /// Lets this process begin to lead. What the last leader has sent may reach the cloud, and is
    /// not answered.
    fn lead(&mut self, process: Process) {
        for ((at, number), due) in mem::take(&mut self.agenda) {
            match due {
                Due::Reach { asked, .. } if self.dice.random() => {
                    for change in asked.iter().flatten() {
                        self.carry_out(change, false).ok();
                    }
                }
                Due::Late(_) | Due::Port(_) | Due::Truth | Due::Rival(_) => {
                    self.agenda.insert((at, number), due);
                }
                _ => {}
            }
        }
        self.rules.lead();
        self.conditions.clear();
        self.looks.clear();
        self.first_table = None;
        Process { machine: self.machine, store: self.store, known: self.known } = process;
        let (deleted, networks) = match self.variant {
            Variant::ForgetfulLeader => (Window::default(), Vec::new()),
            _ => self.left.clone(),
        };
        let term = Term { begun: self.now, deleted, networks, blocks: None };
        self.tell(Event::Term(Box::new(term)));
        // A leader does not plan before its store is as new as its term.
        if self.variant == Variant::OldStore {
            self.is_blind = true;
            self.later(Duration::from_secs(5), Due::CatchUp);
        } else {
            self.catch_up();
        }
        self.due = self.now;
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.number += 1;
        self.agenda.insert((self.now + after, self.number), due);
    }

    fn wake(&mut self) {
        let soon = (self.now + COALESCE).max(self.passed + PAUSE);
        self.due = self.due.min(soon);
    }

    fn tell(&mut self, event: Event) {
        self.events += 1;
        if self.is_told {
            println!("{} {event:?}", self.now);
        }
        for effect in self.machine.apply(event, self.now) {
            if self.is_told {
                println!("    {effect:?}");
            }
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // Nothing happens between the last pass and the call.
            Effect::Call(Call::Send { batch, base }) => self.send(batch, base),
            Effect::Call(call) => {
                let wait = self.moment();
                self.later(wait, Due::Lane(call));
            }
            Effect::Wake => self.wake(),
            Effect::Due(at) => self.due = at.max(self.passed + PAUSE),
            Effect::Condition(name, _) => {
                let due = self.conditions.entry(name).or_insert(self.now);
                *due = (*due).min(self.now);
            }
            Effect::ConditionEvery(name, wait) => {
                self.conditions.insert(name, self.now + wait);
            }
            Effect::ConditionAgain(name) => self.write_again(name),
            Effect::ConditionRefused { node, .. } => self.write_again(Name::clone(&node.name)),
            Effect::Forget(name) => drop(self.conditions.remove(&name)),
            Effect::Write { node, condition } => self.write(&node, condition),
            Effect::Leave { deleted, networks } => self.left = (deleted, networks),
            Effect::Counted(counts) => self.counts = counts,
            Effect::ConditionShown(name, status) => self.check_shown(&name, status),
            _ => {}
        }
    }

    fn write_again(&mut self, name: Name) {
        let wait = Duration::from_secs(self.dice.random_range(1..30));
        self.conditions.insert(name, self.now + wait);
    }

    /// Returns a usual duration, or rarely a long one.
    fn moment(&mut self) -> Duration {
        let most = if self.dice.random_bool(0.05) { 3000 } else { 300 };
        Duration::from_millis(self.dice.random_range(0..most))
    }

    /// Lets this time pass.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let (mut at, mut count) = (self.now, 0);
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            count = if at == self.now { count + 1 } else { 0 };
            at = self.now;
            assert!(count < AT_ONCE, "no end of events at {at}");
            self.router.tick(self.now);
            self.one();
            self.look_at_conditions();
        }
        self.now = end;
        self.router.tick(self.now);
    }

    /// Returns when something happens next.
    fn next(&self) -> Option<At> {
        let agenda = self.agenda.keys().next().map(|(at, _)| *at);
        let condition = self.conditions.values().min().copied();
        [Some(self.due), agenda, condition].into_iter().flatten().min()
    }

    /// Lets the next thing happen.
    fn one(&mut self) {
        if let Some(first) = self.agenda.first_entry().filter(|first| first.key().0 <= self.now) {
            let due = first.remove();
            return self.happens(due);
        }
        if self.due <= self.now {
            return self.pass();
        }
        let mut waiting = self.conditions.iter();
        let name = waiting.find(|(_, due)| **due <= self.now).map(|(name, _)| Name::clone(name));
        let Some(name) = name else { return };
        self.conditions.remove(&name);
        let node = self.store.get(&name).cloned();
        self.tell(Event::Condition { name, node, lack: None });
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Lane(call) => self.lane(call),
            Due::Reach { batch, asked, base } => self.reach(batch, &asked, base.as_deref()),
            Due::Answer(planned, answer) => self.answer(*planned, answer),
            Due::Listed(answer) => {
                let pass = Box::new(self.look());
                self.tell(Event::Listed { answer, pass });
            }
            Due::Tell(event) => self.tell(*event),
            Due::CatchUp => {
                self.is_blind = false;
                self.catch_up();
            }
            Due::Late(change) => {
                self.rules.touched.insert(change.destination(), self.now);
                self.carry_out(&change, false).ok();
            }
            Due::Port(address) => drop(self.router.ports.insert(address)),
            Due::Truth => self.tell_the_truth(),
            Due::Rival(turn) => self.rival(turn),
        }
    }

    fn pass(&mut self) {
        self.passed = self.now;
        let pass = self.look();
        self.tell(Event::Pass(Box::new(pass)));
    }

    /// Returns all that a look depends on.
    fn look(&self) -> Pass {
        let waiting = self.agenda.values().filter(|due| matches!(due, Due::Lane(_)));
        Pass {
            parameters: self.parameters.clone(),
            nodes: self.store.values().cloned().chain(self.phantom()).collect(),
            lacks: BTreeMap::new(),
            awaited: Vec::new(),
            traits: self.told_traits(),
            has_instances: true,
            room: LANES.saturating_sub(waiting.count()),
        }
    }

    /// Writes and reads the memory. The machine continues as before.
    fn store_memory(&mut self) {
        let text = serde_json::to_string(&self.machine).expect("the memory can be written");
        self.machine = serde_json::from_str(&text).expect("the memory can be read");
        if self.variant == Variant::NotPlain {
            self.machine.is_asking = !self.machine.is_asking;
        }
        let again = serde_json::to_string(&self.machine).expect("the memory can be written");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        if sorted(value(&text)) != sorted(value(&again)) {
            self.rules.breaks(Rule::Plain, "the memory is another one when it was read".to_owned());
        }
    }
}

fn machine() -> Machine {
    let fixed = Fixed {
        cluster: cluster(CLUSTER),
        has_routes: true,
        gives_cidrs: false,
        is_observing: false,
    };
    Machine::new(fixed)
}

fn cluster(uid: &str) -> ClusterId {
    ClusterId { name: "kubernetes".to_owned(), uid: uid.to_owned() }
}

/// Returns the settings. Some variants have others.
fn parameters(variant: Variant, limit: u32, is_rare: bool) -> Parameters {
    let limit = if variant == Variant::NoBrake { 1000 } else { limit };
    let networks = match variant {
        Variant::EveryNetwork => ["0.0.0.0/1", CLUSTER_CIDRS[1]],
        _ => CLUSTER_CIDRS,
    };
    Parameters {
        cluster_cidrs: networks.map(|one| one.parse().expect("a network")).to_vec(),
        max_pod_cidr: MaxPodCidr::default(),
        budget: Budget { limit: Limit::Count(limit), window: WINDOW },
        period: Duration::from_secs(if is_rare { 600 } else { 30 }),
        node_selector: ccm_kube::selector::NodeSelector::default(),
        approval: None,
    }
}

/// Sorts what has no order: sets and maps as lists.
fn sorted(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(all) => {
            let mut all: Vec<Value> = all.into_iter().map(sorted).collect();
            all.sort_by_key(ToString::to_string);
            all.into()
        }
        Value::Object(all) => {
            Value::Object(all.into_iter().map(|(key, one)| (key, sorted(one))).collect())
        }
        other => other,
    }
}
