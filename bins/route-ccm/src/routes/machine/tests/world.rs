//! A cluster and a cloud as plain values.

mod cloud;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{
    AbsenceProof, AppliedChange, CloudError, ErrorKind, Instance, Lookup, LookupResult,
    NodeAddress, ProofMethod, ProviderId, Route, RouteChange, RouteTable, RouteTarget, RouteTraits,
    TargetState, WantedRoute,
};
use ccm_controller::brake::{Budget, Limit, Window};
use ccm_controller::machine::Machine as _;
use ccm_kube::ApiError;
use ccm_objects::{Address, Condition, Node, Shared as Name, Taint};
use ipnet::IpNet;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use crate::{
    networks::MaxPodCidr,
    routes::{
        machine::{
            Applied, Basis, Call, Effect, Event, Fixed, Machine, Parameters, Pass, Sending, Term,
            Written,
        },
        plan::{Planned, condition::NETWORK_UNAVAILABLE, wanted::NodeView},
    },
};

const NODES: u8 = 12;
const TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// How many routes may go within a window.
const LOSS: usize = 3;
const WINDOW: Duration = Duration::from_mins(10);
/// How late a deletion may be told.
const LATE: Duration = Duration::from_mins(3);

/// A protection that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    None,
    /// Any number of routes may go.
    NoBrake,
    /// A new leader does not know the deletions of the last one.
    ForgetfulLeader,
    /// The cloud says of each target that it is gone, and no target of a node is asked about.
    BelievedCloud,
    /// The machine never learns the answers to changes.
    LostAnswers,
    /// A part of the memory is lost when it is written and read.
    NotPlain,
}

/// All there is.
pub(super) struct World {
    variant: Variant,
    dice: StdRng,
    now: At,
    machine: Machine,
    nodes: BTreeMap<Name, NodeView>,
    /// The addresses of machines: of nodes, and of some nodes that are gone.
    machines: BTreeSet<IpAddr>,
    table: BTreeMap<IpNet, Route>,
    foreign: Vec<Route>,
    version: u64,
    traits: RouteTraits,
    calls: Vec<Call>,
    /// The nodes whose condition may have to be written.
    conditions: BTreeSet<Name>,
    due: At,
    left: (Window, Vec<IpNet>),
    made: u32,
    /// Changes that are under way.
    sent: BTreeSet<IpNet>,
    /// The targets of nodes that were marked when they went.
    marked: BTreeSet<RouteTarget>,
    /// The deletions that count.
    lost: BTreeMap<IpNet, At>,
    has_faults: bool,
    broken: Option<String>,
    pub(super) events: u64,
}

impl World {
    pub(super) fn new(seed: u64, variant: Variant) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let traits = RouteTraits {
            target_ids: false,
            target_addresses: true,
            replaces: dice.random(),
            compares_version: dice.random(),
            max_batch: dice.random_range(1..5),
            ..RouteTraits::default()
        };
        let mut world = Self {
            variant,
            dice,
            now: At(Duration::from_secs(1_000_000)),
            machine: machine(variant),
            nodes: BTreeMap::new(),
            machines: BTreeSet::new(),
            table: BTreeMap::new(),
            foreign: Vec::new(),
            version: 0,
            traits,
            calls: Vec::new(),
            conditions: BTreeSet::new(),
            due: At::default(),
            left: (Window::default(), Vec::new()),
            made: 0,
            sent: BTreeSet::new(),
            marked: BTreeSet::new(),
            lost: BTreeMap::new(),
            has_faults: true,
            broken: None,
            events: 0,
        };
        for number in 0..3_u8 {
            let address = IpAddr::from([10, 9, 9, number]);
            let destination = format!("10.120.{}.0/24", 200 + u16::from(number));
            let destination = destination.parse().expect("a network");
            world.machines.insert(address);
            let route = Route::new(destination, RouteTarget::Address(address));
            world.table.insert(destination, route.clone());
            world.foreign.push(route);
        }
        (0..NODES).for_each(|number| world.add(number));
        world.lead();
        world
    }

    /// The first rule that is broken.
    pub(super) fn check(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn breaks(&mut self, rule: &str, what: String) {
        self.broken.get_or_insert_with(|| format!("{rule}: {what}"));
    }

    /// A new leader begins.
    fn lead(&mut self) {
        self.calls.clear();
        self.sent.clear();
        self.machine = machine(self.variant);
        self.due = self.now;
        let (deleted, networks) = match self.variant {
            Variant::ForgetfulLeader => (Window::default(), Vec::new()),
            _ => self.left.clone(),
        };
        let term = Term { begun: self.now, deleted, networks, blocks: None };
        self.tell(Event::Term(Box::new(term)));
    }

    fn tell(&mut self, event: Event) {
        self.events += 1;
        for effect in self.machine.apply(event, self.now) {
            match effect {
                // Nothing comes between the last look and the call.
                Effect::Call(Call::Send { batch, base }) => {
                    let ended = self.send(batch, base);
                    self.tell(ended);
                }
                Effect::Call(call) => self.calls.push(call),
                Effect::Wake => self.due = self.now,
                Effect::Due(at) => self.due = at,
                Effect::Condition(name, _)
                | Effect::ConditionEvery(name, _)
                | Effect::ConditionAgain(name) => {
                    self.conditions.insert(name);
                }
                Effect::ConditionRefused { node, .. } => {
                    self.conditions.insert(Name::clone(&node.name));
                }
                Effect::Write { node, condition } => self.write(&node, condition),
                Effect::Leave { deleted, networks } => self.left = (deleted, networks),
                _ => {}
            }
        }
    }

    fn write(&mut self, node: &Arc<Node>, condition: crate::routes::plan::condition::NewCondition) {
        let answer = match self.nodes.get_mut(&node.name) {
            Some(view) if view.node.uid == node.uid => {
                let mut changed = (*view.node).clone();
                changed.conditions = vec![Condition {
                    kind: NETWORK_UNAVAILABLE.into(),
                    status: condition.status.as_str().into(),
                    reason: Some(condition.reason.into()),
                    message: Some(condition.message.into()),
                }];
                view.node = Arc::new(changed);
                Ok(view.clone())
            }
            _ => Err(Some(ApiError::NotFound)),
        };
        let (asked, status, moves) = (Arc::clone(node), condition.status, condition.moves);
        self.tell(Event::Written(Box::new(Written { asked, status, moves, answer, lack: None })));
    }

    fn add(&mut self, number: u8) {
        let name: Name = format!("n{number}").into();
        if self.nodes.contains_key(&name) {
            return;
        }
        self.made += 1;
        let address = self.machine();
        let node = Node {
            name: Name::clone(&name),
            uid: format!("u{}", self.made).into(),
            provider_id: Some(format!("sim://m{}", self.made).into()),
            pod_cidrs: vec![format!("10.120.{number}.0/24").into()],
            addresses: vec![Address::new("InternalIP", address.to_string())],
            ..Node::default()
        };
        let id = node.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok());
        let view = NodeView { node: Arc::new(node), id, left_out: None };
        self.nodes.insert(name, view.clone());
        self.tell(Event::Changed { before: None, after: view });
    }

    /// A new machine.
    fn machine(&mut self) -> IpAddr {
        self.made += 1;
        let [_, _, high, low] = self.made.to_be_bytes();
        let address = IpAddr::from([10, 1, high, low]);
        self.machines.insert(address);
        address
    }

    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Node)) {
        let Some(view) = self.nodes.get_mut(name) else { return };
        let before = view.clone();
        let mut node = (*view.node).clone();
        change(&mut node);
        view.node = Arc::new(node);
        let after = view.clone();
        self.tell(Event::Changed { before: Some(before), after });
    }

    fn remove(&mut self, name: &Name) {
        let Some(view) = self.nodes.remove(name) else { return };
        if !view.node.taints.is_empty() {
            self.marked.extend(view.ips().map(RouteTarget::Address));
        }
        if self.dice.random_bool(0.4) {
            for ip in view.ips() {
                self.machines.remove(&ip);
            }
        }
        self.tell(Event::Gone(view));
    }

    fn remove_many(&mut self, count: usize) {
        let names: Vec<Name> = self.nodes.keys().take(count).cloned().collect();
        for name in &names {
            self.remove(name);
        }
    }

    /// Lets one random thing happen.
    pub(super) fn step(&mut self) {
        let number = self.dice.random_range(0..NODES);
        let name: Name = format!("n{number}").into();
        match self.dice.random_range(0..100) {
            0..6 => self.remove(&name),
            6..16 => self.add(number),
            16..19 => {
                let address = self.machine();
                let moved = Address::new("InternalIP", address.to_string());
                self.change(&name, |node| node.addresses = vec![moved]);
            }
            19..22 => self.change(&name, |node| {
                node.taints = vec![Taint { key: TAINT.into(), ..Taint::default() }];
            }),
            22 => self.remove_many(usize::from(NODES)),
            23..26 => self.remove_many(4),
            26..30 => (0..NODES).for_each(|number| self.add(number)),
            30 => self.lead(),
            31 => self.store(),
            32..60 => self.pass(),
            60..85 => self.call(),
            _ => self.turn(),
        }
        let most = if self.dice.random_bool(0.1) { 120 } else { 3 };
        self.now = self.now + Duration::from_secs(self.dice.random_range(0..=most));
        if self.due <= self.now {
            self.pass();
        }
    }

    /// The memory is written and read. It goes on as before.
    fn store(&mut self) {
        let text = serde_json::to_string(&self.machine).expect("the memory can be written");
        self.machine = serde_json::from_str(&text).expect("the memory can be read");
        if self.variant == Variant::NotPlain {
            self.machine.is_asking = !self.machine.is_asking;
        }
        let again = serde_json::to_string(&self.machine).expect("the memory can be written");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        if sorted(value(&text)) != sorted(value(&again)) {
            self.breaks("Plain", "the memory is another one when it was read".to_owned());
        }
    }

    fn pass(&mut self) {
        let pass = Pass {
            nodes: self.nodes.values().cloned().collect(),
            lacks: BTreeMap::new(),
            awaited: Vec::new(),
            traits: self.traits.clone(),
            has_instances: true,
            room: 8_usize.saturating_sub(self.calls.len()),
        };
        self.tell(Event::Pass(Box::new(pass)));
    }

    /// The condition of a node has its turn.
    fn turn(&mut self) {
        let Some(name) = self.conditions.pop_first() else { return };
        let node = self.nodes.get(&name).cloned();
        self.tell(Event::Condition { name, node, lack: None });
    }

    /// Ends all faults, and lets an hour pass.
    pub(super) fn settle(&mut self) {
        self.has_faults = false;
        let of_nodes: BTreeSet<IpAddr> = self.nodes.values().flat_map(NodeView::ips).collect();
        let foreign = self.foreign.clone();
        self.machines.retain(|ip| {
            let is_foreign = |one: &Route| one.target == Some(RouteTarget::Address(*ip));
            of_nodes.contains(ip) || foreign.iter().any(is_foreign)
        });
        (0..NODES).for_each(|number| self.add(number));
        let end = self.now + Duration::from_hours(1);
        while self.now < end {
            if self.due <= self.now {
                self.pass();
            }
            while !self.calls.is_empty() {
                self.call();
            }
            for _ in 0..self.conditions.len() {
                self.turn();
            }
            self.now = self.due.max(self.now + Duration::from_secs(1));
        }
    }

    /// In the end each node has its route, and its condition says so.
    pub(super) fn converges(&self) -> Result<(), String> {
        for view in self.nodes.values() {
            let name = &view.node.name;
            for cidr in view.pod_cidrs() {
                let target = self.table.get(&cidr).and_then(|route| route.target.as_ref());
                if !target.is_some_and(|one| crate::routes::plan::targets::is_target(one, view)) {
                    return Err(format!("Converges: {name} has {cidr} at {target:?}"));
                }
            }
            if view.node.condition(NETWORK_UNAVAILABLE) != Some("False") {
                return Err(format!("Converges: {name} shows {:?}", view.node.conditions));
            }
        }
        Ok(())
    }
}

fn machine(variant: Variant) -> Machine {
    let limit = if variant == Variant::NoBrake { 1000 } else { 3 };
    let fixed = Fixed {
        cluster: ccm_cloud::ClusterId { name: "c".to_owned(), uid: "c-1".to_owned() },
        has_routes: true,
        gives_cidrs: false,
        is_observing: false,
    };
    let parameters = Parameters {
        cluster_cidrs: vec!["10.120.0.0/16".parse().expect("a network")],
        max_pod_cidr: MaxPodCidr::default(),
        budget: Budget { limit: Limit::Count(limit), window: WINDOW },
        period: Duration::from_mins(10),
        scale_down_taints: vec![TAINT.to_owned()],
        node_selector: ccm_kube::selector::NodeSelector::default(),
    };
    Machine::new(fixed, parameters)
}

/// The order of what has none: sets and maps as lists.
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
