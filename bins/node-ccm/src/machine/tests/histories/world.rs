//! The world of a machine: objects of the API server, a store that lags behind, the cloud, the queue, what is in
//! flight, and leaders that come and go.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, RetryClass};
use ccm_cloud::{Instance, LookupResult};
use ccm_controller::{
    brake::{Limit, Window, approval::SetApproval},
    queue::LONG_RETRY,
};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::explain::{Explanation, ObjectState};
use ccm_tests::{dice::Dice, queue::Queue};

use super::{
    super::{super::*, params, seen},
    Kind,
    claims::{Claims, Heard},
    cloud::FOREIGN,
    outside::Part,
    rules::Rules,
    variants::Without,
};
use crate::plan::{IdentityPolicy, InternalIpChange, LabelPolicy, Policy, Step};

/// The most Ready nodes that change within the window, where this is a number.
const BUDGET: u32 = 2;

/// The inputs of the plan that a write follows.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    /// The node for which the plan was made.
    pub(super) node: Arc<Node>,
    pub(super) instance: Option<Instance>,
    pub(super) policy: Policy,
    pub(super) rivals: Vec<Arc<Node>>,
}

/// A request that waits for its answer.
pub(super) enum Flight {
    Lookup { node: Arc<Node>, began: At },
    Worker { asked: Arc<Node>, answer: LookupResult },
    Write { name: Name, node: Arc<Node>, step: Step, basis: Box<Basis> },
}

impl Flight {
    pub(super) fn name(&self) -> &Name {
        match self {
            Self::Lookup { node, .. } | Self::Worker { asked: node, .. } => &node.name,
            Self::Write { name, .. } => name,
        }
    }
}

pub(super) enum Refresh {
    Asked { nodes: Vec<Arc<Node>>, began: At },
    Compares { left: Vec<(Arc<Node>, KnownAnswer)>, began: At },
}

pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) without: Option<Without>,
    pub(super) random: Dice,
    pub(super) now: At,
    pub(super) machine: Machine,
    /// A machine that hears the same, if there is one.
    twin: Option<Machine>,
    pub(super) params: Params,
    pub(super) labels_only_add: bool,
    pub(super) objects: BTreeMap<Name, Arc<Node>>,
    pub(super) versions: u64,
    pub(super) store: BTreeMap<Name, Arc<Node>>,
    pub(super) news: VecDeque<(Name, Option<Arc<Node>>)>,
    /// The nodes as the last own write has left them.
    pub(super) stored: BTreeMap<Name, Arc<Node>>,
    /// By the cloud's own part of their IDs.
    pub(super) instances: BTreeMap<Name, Instance>,
    /// True if the nodes of another controller are not this provider's any more.
    pub(super) is_split: bool,
    /// The admission policies: what they drop of which node.
    pub(super) drops: BTreeSet<(Name, Part)>,
    /// The parts that another client sets back at once.
    pub(super) fights: BTreeSet<(Name, Part)>,
    pub(super) queue: Queue,
    pub(super) flights: Vec<Flight>,
    pub(super) refresh: Option<Refresh>,
    /// The note on the Lease, and the newer one that the API server has not stored yet.
    pub(super) lease: (Window, Window),
    pub(super) approval: Option<SetApproval>,
    pub(super) is_calm: bool,
    pub(super) rules: Rules,
    pub(super) claims: Claims,
    pub(super) events: usize,
}

/// Returns the settings of a history.
fn settings(kind: Kind, seed: u64) -> Params {
    let mut params = params();
    let is_by_percent = kind == Kind::Budget && seed % 2 == 1;
    params.budget.limit = if is_by_percent { Limit::Percent(50) } else { Limit::Count(BUDGET) };
    params.is_observing = kind == Kind::Observer;
    let policy = &mut params.policy;
    if seed % 3 == 1 {
        policy.identity = IdentityPolicy::Report;
    }
    match seed % 8 {
        1 => policy.labels = LabelPolicy::Once,
        3 => policy.internal_ip_change = InternalIpChange::Hold,
        5 => policy.without_address = true,
        6 => policy.labels = LabelPolicy::Off,
        _ => {}
    }
    params
}

impl World {
    pub(super) fn new(kind: Kind, without: Option<Without>, seed: u64) -> Self {
        let params = settings(kind, seed);
        let machine = Machine::new(params.clone());
        let mut world = Self {
            kind,
            without,
            random: Dice::new(seed),
            now: At(Duration::from_secs(1_000_000)),
            twin: seed.is_multiple_of(8).then(|| Machine::new(params.clone())),
            machine,
            params,
            labels_only_add: seed % 5 == 4,
            objects: BTreeMap::new(),
            versions: 0,
            store: BTreeMap::new(),
            news: VecDeque::new(),
            stored: BTreeMap::new(),
            instances: BTreeMap::new(),
            is_split: false,
            drops: BTreeSet::new(),
            fights: BTreeSet::new(),
            queue: Queue::default(),
            flights: Vec::new(),
            refresh: None,
            lease: Default::default(),
            approval: None,
            is_calm: false,
            rules: Rules::default(),
            claims: Claims::default(),
            events: 0,
        };
        world.lead();
        world
    }

    /// Returns a node as a translator tells of it.
    pub(super) fn claimed(&self, node: &Arc<Node>) -> SeenNode {
        let claim = match node.provider_id.as_deref() {
            None => Claim::Unclaimed,
            Some(_) if self.is_foreign(node) => Claim::Foreign,
            Some(_) => Claim::Ours,
        };
        let own = self.as_told(Node::clone(node));
        let labels_only_add = self.labels_only_add;
        self.seen_without(SeenNode { claim: Some(claim), labels_only_add, ..seen(own) })
    }

    /// Returns true if the node's provider ID is another provider's.
    pub(super) fn is_foreign(&self, node: &Node) -> bool {
        let id = node.provider_id.as_deref().unwrap_or_default();
        id.starts_with("other://") || self.is_split && id.starts_with(FOREIGN)
    }

    pub(super) fn is_selected(&self, node: &Node) -> bool {
        self.params.selector.matches(node)
    }

    pub(super) fn hear(&mut self, event: Event) -> Vec<Request> {
        self.events += 1;
        let heard = self.heard(&event);
        let copy = self.twin.as_ref().map(|_| serde_json::to_string(&event).unwrap());
        let effects = self.machine.apply(event, self.now);
        if let (Some(twin), Some(copy)) = (&mut self.twin, copy) {
            let again = twin.apply(serde_json::from_str(&copy).unwrap(), self.now);
            let text = |effects: &[Effect]| serde_json::to_string(effects).unwrap();
            assert_eq!(text(&again), text(&effects), "Plain: the same events have other effects");
        }
        if self.random.one_in(200) {
            let text = serde_json::to_string(&self.machine).unwrap();
            self.machine = serde_json::from_str(&text).unwrap();
            self.lose_a_part();
        }
        let mut requests = Vec::new();
        for effect in effects {
            if self.is_silent(&effect) {
                continue;
            }
            self.claims.hear(&effect, &heard, self.now);
            match effect {
                Effect::Queue(name, queued) => self.queued(&name, queued),
                Effect::Retry(node, again, _) => self.again(&node.name, again),
                Effect::Forget(name) => self.queue.remove(&name),
                Effect::Leave => self.lease.1 = self.machine.window().clone(),
                Effect::Request(request) => requests.push(request),
                _ => {}
            }
        }
        self.after(&heard, &requests);
        self.rules.note_population(self.population());
        // One at a time, and not after each event: a text is made of each.
        if self.events.is_multiple_of(4) {
            self.claims.check(&self.machine);
            if let Some((_, node)) = (0..=self.versions % 12).zip(self.store.values()).last() {
                self.told(node);
            }
        }
        requests
    }

    fn heard(&self, event: &Event) -> Heard {
        match event {
            Event::Work(work) if work.asked.has_identity_of(&work.seen.node) => {
                Heard::work(&work.seen.node, &work.answer)
            }
            Event::Written { name, answer: Ok(node) } => {
                let stored = self.stored.get(name).unwrap_or(node);
                Heard::Written { stored: Arc::clone(stored) }
            }
            Event::Compare { seen, answer } => {
                let found = match answer {
                    KnownAnswer::Found(id) => self.machine.inventory.found(id),
                    KnownAnswer::Other(_) => None,
                };
                let now = self.store.get(&seen.node.name);
                let is_now =
                    now.is_some_and(|now| now.resource_version == seen.node.resource_version);
                let instance = found.map(|known| Instance::clone(&known.instance));
                Heard::Compare { node: Arc::clone(&seen.node), is_now, instance }
            }
            Event::Updated { old, new }
                if !old.is_uninitialised() && new.node.is_uninitialised() =>
            {
                Heard::Tainted(Name::clone(&new.node.name))
            }
            _ => Heard::Other,
        }
    }

    fn queued(&mut self, name: &Name, queued: Queued) {
        match queued {
            Queued::Add(_) => self.queue.after(name, self.now),
            Queued::After(wait) => self.queue.after(name, self.now + wait),
            Queued::Again(again) => self.again(name, again),
            Queued::Forget => self.queue.forget(name),
        }
    }

    fn again(&mut self, name: &Name, again: Again) {
        let class = match again {
            Again::As(class) => class,
            Again::Every(wait) => RetryClass::RetryAfter(wait),
            Again::Rarely => RetryClass::RetryAfter(LONG_RETRY),
        };
        self.queue.again(name, class, self.now);
    }

    /// Returns the Ready nodes that are guarded by the brake.
    fn population(&self) -> usize {
        let is_guarded = |node: &&Arc<Node>| {
            let is_ours = !self.is_foreign(node) && self.is_selected(node);
            is_ours && node.is_ready() && !node.is_uninitialised()
        };
        let count = |all: &BTreeMap<Name, Arc<Node>>| all.values().filter(is_guarded).count();
        count(&self.objects).max(count(&self.store))
    }

    /// Explains a node. Each explanation has a cause and a fix, and a node with the taint is never
    /// fine.
    pub(super) fn told(&self, node: &Arc<Node>) -> Explanation {
        let is_selected = self.is_selected(node);
        let is_left_out = !is_selected || self.is_foreign(node);
        let shown = NodeFacts {
            seen: Some(self.claimed(node)),
            rivals: self.rivals_in_store(node, node.provider_id.as_deref()),
            is_selected,
            why_left_out: is_left_out.then(|| "left out".to_owned()),
            is_listed: true,
        };
        let told = self.machine.explain(&node.name, &shown, self.now);
        let has_words = !told.cause.is_empty() && !told.fix.is_empty();
        assert!(has_words, "Explained: {told:?}");
        let may_be_fine = !node.is_uninitialised() && !is_left_out;
        assert!(told.state != ObjectState::Fine || may_be_fine, "Explained: {told:?}");
        let is_standby = is_left_out || told.state == ObjectState::Unknown;
        assert!(self.machine.leads || is_standby, "Standby: it has looked at no node: {told:?}");
        told
    }

    /// Returns the other nodes of the store with this provider ID.
    pub(super) fn rivals_in_store(&self, node: &Node, id: Option<&str>) -> Vec<Arc<Node>> {
        let is_rival = |one: &&Arc<Node>| {
            id.is_some() && one.name != node.name && one.provider_id.as_deref() == id
        };
        self.store.values().filter(is_rival).cloned().collect()
    }

    /// Lets another process lead. What the last one has sent may be carried out still.
    pub(super) fn lead(&mut self) {
        for flight in std::mem::take(&mut self.flights) {
            if let Flight::Write { node, step, basis, .. } = flight
                && self.random.one_in(2)
            {
                drop(self.write(&node, &step, &basis));
            }
        }
        self.machine = Machine::new(self.params.clone());
        self.twin = self.twin.take().map(|_| Machine::new(self.params.clone()));
        (self.queue, self.refresh) = (Queue::default(), None);
        self.rules.leads_anew();
        self.claims = Claims::default();
        let left = self.lease.0.clone();
        self.lease.1 = left.clone();
        let (left, params) = (self.left_without(left), self.params_without());
        self.hear(Event::TermBegins { left, params });
        self.hear(Event::Approved(self.approval.clone()));
        while self.deliver() {}
        if let Some(node) = self.store.values().next() {
            self.told(node);
        }
        self.hear(Event::StoreIsNew);
        for node in self.store.values().cloned().collect::<Vec<_>>() {
            let seen = self.claimed(&node);
            self.hear(Event::Listed(seen));
        }
    }

    pub(super) fn set(&mut self, mut node: Node) -> Arc<Node> {
        self.versions += 1;
        node.resource_version = self.versions.to_string().into();
        let node = Arc::new(node);
        self.objects.insert(Name::clone(&node.name), Arc::clone(&node));
        self.news.push_back((Name::clone(&node.name), Some(Arc::clone(&node))));
        node
    }

    /// Delivers the next change of an object, if there is one.
    pub(super) fn deliver(&mut self) -> bool {
        let Some((name, node)) = self.news.pop_front() else { return false };
        let old = self.store.get(&name).cloned();
        let version = |node: &Node| node.resource_version.parse::<u64>().unwrap();
        match (old, node) {
            (Some(old), Some(new)) if version(&old) >= version(&new) => {}
            (Some(old), Some(new)) if old.uid == new.uid => {
                self.store.insert(name, Arc::clone(&new));
                let new = self.claimed(&new);
                self.hear(Event::Updated { old, new });
            }
            (old, new) => {
                if let Some(old) = old {
                    self.store.remove(&name);
                    if self.without != Some(Without::Ends) {
                        self.hear(Event::Deleted(old));
                    }
                }
                if let Some(new) = new {
                    self.store.insert(name, Arc::clone(&new));
                    let seen = self.claimed(&new);
                    self.hear(Event::Added(seen));
                }
            }
        }
        true
    }

    pub(super) fn approve(&mut self, approval: Option<SetApproval>) {
        self.approval = approval;
        self.hear(Event::Approved(self.approval.clone()));
    }
}
