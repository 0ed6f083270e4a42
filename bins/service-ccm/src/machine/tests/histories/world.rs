//! The world of a machine: Services of the API server, a store that lags behind, nodes, the cloud,
//! the queues, requests in flight, and leaders that come and go.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{CloudError, Digest, LoadBalancerTraits, NodeSelector};
use ccm_controller::{
    brake::{Budget, Limit},
    machine::Machine as _,
};
use ccm_objects::{Node, Service, Shared as Name};
use ccm_tests::dice::Dice;

use super::{
    claims::Claims,
    cloud::Cloud,
    driver::Flight,
    labels::{self, OTHER, PROVIDER},
    outside::MARK,
    rules::Rules,
    variants::{self, Shown, Without},
};
use crate::machine::{
    Machine,
    effect::{Effect, Lane, Task, Turn},
    event::{Due, Event, NodesSeen, NodesWhy, Offer, Parameters},
    left::LeaderNote,
    tests::machine,
};

/// The kinds of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Cloud and API server fail.
    Faults,
    /// Nodes go, some of them by mistake.
    Nodes,
    /// Other clients change the cloud, and undo the writes to Services.
    Others,
    /// The cloud is another one for a while, without load balancers and instances.
    Lies,
    /// The cloud refuses calls, does not send them, breaks off and shows no members.
    Refusals,
    /// The operator changes the settings, and users change the classes of Services and their parts
    /// that are read.
    Settings,
    /// Load balancers select nodes by labels; nodes are excluded, and have taints of no autoscaler.
    Labels,
}

/// A key of a queue.
#[derive(Default)]
struct Key {
    due: Option<At>,
    is_busy: bool,
    failures: u32,
    /// The last turns that its rate allowed.
    paced: VecDeque<At>,
}

impl Key {
    /// Returns when the next turn comes that its rate allows: five in a row, then one in ten
    /// seconds.
    fn pace(&mut self, now: At) -> At {
        self.paced.retain(|at| now.since(*at) < 5 * PACE);
        let due = match self.paced.len() {
            0..5 => now,
            _ => self.paced.back().map_or(now, |last| *last + PACE),
        };
        self.paced.push_back(due);
        due
    }
}

/// When each task is due.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) audit: At,
    pub(super) orphans: At,
    pub(super) note: At,
    pub(super) nodes: Option<At>,
}

pub(super) struct World {
    pub(super) kind: Kind,
    /// The protection that is taken out.
    pub(super) without: Option<Without>,
    pub(super) random: Dice,
    pub(super) now: At,
    pub(super) machine: Machine,
    pub(super) settings: Parameters,
    /// The offer of the provider.
    pub(super) offer: Offer,
    /// A machine that hears the same, if there is one.
    twin: Option<Machine>,
    pub(super) api: BTreeMap<Name, Arc<Service>>,
    pub(super) versions: u64,
    pub(super) store: BTreeMap<Name, Arc<Service>>,
    pub(super) news: VecDeque<(Name, Option<Arc<Service>>)>,
    pub(super) nodes: BTreeMap<Name, Arc<Node>>,
    pub(super) cloud: Cloud,
    queues: [BTreeMap<Name, Key>; 2],
    pub(super) flights: Vec<(At, Flight)>,
    pub(super) tasks: Tasks,
    /// The note on the Lease, and the newer one that the API server has not stored yet.
    pub(super) lease: (LeaderNote, LeaderNote),
    pub(super) is_calm: bool,
    /// True if load balancers without a Service are deleted.
    pub(super) deletes: bool,
    /// True while the cloud is another one.
    pub(super) is_lying: bool,
    /// True if that cloud says that it is the same one, as after a restore.
    pub(super) is_same: bool,
    /// The answer to all calls, if the cloud does not carry out any.
    pub(super) trouble: Option<CloudError>,
    /// The Service whose conditions another client sets back.
    pub(super) contested: Option<Name>,
    pub(super) rules: Rules,
    pub(super) claims: Claims,
    /// The load balancers of earlier lists, and the digests of the last calls.
    pub(super) shown: Shown,
    pub(super) asked: BTreeMap<String, Digest>,
    pub(super) events: usize,
    /// When the rules were last checked.
    pub(super) checked: At,
}

/// The most load balancers of the namespace, in some histories.
pub(super) const ROOM: usize = 3;

/// The wait of a Service that its user changes all the time.
const PACE: Duration = Duration::from_secs(10);

/// Returns the settings of this world.
fn settings(kind: Kind, without: Option<Without>) -> Parameters {
    let mut settings = machine().parameters;
    settings.scale_down_taints = vec![MARK.to_owned(), OTHER.to_owned()];
    settings.budget = Budget { limit: Limit::Count(3), window: Duration::from_hours(6) };
    if kind == Kind::Settings {
        settings.classes.served = vec!["gold".to_owned()];
    }
    settings.most_per_namespace = if kind == Kind::Nodes { ROOM } else { 0 };
    variants::change(without, &mut settings);
    settings
}

/// Returns a machine with these settings.
fn begin(settings: &Parameters) -> Machine {
    let mut machine = machine();
    machine.parameters = settings.clone();
    machine
}

impl World {
    pub(super) fn new(kind: Kind, without: Option<Without>, seed: u64) -> Self {
        let mut settings = settings(kind, without);
        let lists = kind != Kind::Lies || !seed.is_multiple_of(3);
        settings.look_period = Duration::from_mins(if lists { 24 * 60 } else { 10 });
        let traits = LoadBalancerTraits {
            member_addresses: false,
            lists,
            member_labels: kind == Kind::Labels,
            annotations: vec![PROVIDER.to_owned()],
            ..LoadBalancerTraits::default()
        };
        let mut world = Self {
            kind,
            without,
            random: Dice::new(seed),
            now: At(Duration::from_secs(1_000_000)),
            twin: seed.is_multiple_of(7).then(|| begin(&settings)),
            machine: begin(&settings),
            settings,
            offer: Offer { traits, selector: NodeSelector::default() },
            api: BTreeMap::new(),
            versions: 0,
            store: BTreeMap::new(),
            news: VecDeque::new(),
            nodes: BTreeMap::new(),
            cloud: Cloud::default(),
            queues: Default::default(),
            flights: Vec::new(),
            tasks: Tasks::default(),
            lease: Default::default(),
            is_calm: false,
            deletes: seed.is_multiple_of(2),
            is_lying: false,
            is_same: false,
            trouble: None,
            contested: None,
            rules: Rules::default(),
            claims: Claims::default(),
            shown: Shown::default(),
            asked: BTreeMap::new(),
            events: 0,
            checked: At::default(),
        };
        world.cloud.takes = Duration::from_secs([0, 0, 3, 40][world.random.below(4)]);
        for number in 0..10 {
            world.set_node(number, false);
        }
        (0..2).for_each(|number| world.cloud.add_foreign(&format!("web-{number}"), world.now));
        world.lead();
        world
    }

    /// Lets another process begin to lead, with the data on the Lease.
    pub(super) fn lead(&mut self) {
        self.machine = begin(&self.settings);
        self.rules.leads(self.now);
        self.claims.leads();
        self.twin = self.twin.take().map(|_| begin(&self.settings));
        (self.queues, self.flights, self.tasks) = Default::default();
        self.news.clear();
        self.store = self.api.clone();
        self.offered(false);
        for service in self.store.clone().into_values() {
            self.service_changed(None, Some(service));
        }
        let left = match self.without {
            Some(Without::Memory | Without::OrphanBudget) => Box::default(),
            _ => Box::new(self.lease.0.clone()),
        };
        self.lease.1 = self.lease.0.clone();
        self.hear(Event::TermBegins(left));
        self.nodes_are(NodesWhy::Term { selectors: self.selectors() });
        self.hear(Event::QueueOpens);
        if self.without == Some(Without::Replacements) {
            self.approve_all();
        }
        let services = self.store.values().cloned().collect();
        self.hear(Event::Services(services));
        self.tasks.audit = self.now;
    }

    /// Applies an event, and performs its effects but the requests, which are returned.
    pub(super) fn hear(&mut self, event: Event) -> Vec<Effect> {
        self.events += 1;
        let copy = self.twin.as_ref().map(|_| text(&event));
        let effects = self.machine.apply(event, self.now);
        if let (Some(twin), Some(copy)) = (&mut self.twin, copy) {
            let event = serde_json::from_str(&copy).expect("an event as text");
            let again = twin.apply(event, self.now);
            assert_eq!(text(&again), text(&effects), "Plain: {copy} has other effects");
        }
        if self.twin.is_some() && self.random.one_in(100) {
            let checkpoint = text(&self.machine);
            let mut twin: Machine = serde_json::from_str(&checkpoint).expect("a memory as text");
            if self.without == Some(Without::Checkpoint) {
                twin.leads = false;
            }
            self.twin = Some(twin);
        }
        let mut requests = Vec::new();
        for effect in effects {
            self.rules.hear(&effect, self.now);
            // A deletion is reported before its Service is released.
            if (self.without, self.kind) != (Some(Without::ProofOfAbsence), Kind::Faults) {
                self.claims.hear(&effect, &self.cloud, (self.kind, self.now));
            }
            match effect {
                Effect::Queue(name, lane, turn) => self.turn(&name, lane, turn),
                Effect::Wake(task) => self.wake(task),
                Effect::Leave(left) => self.lease.1 = *left,
                Effect::Show(shown) => self.shown(&shown),
                Effect::Tell(..)
                | Effect::TellOrphan(_)
                | Effect::Log(..)
                | Effect::ForgetReports(_)
                | Effect::Count(_)
                | Effect::Health(..) => {}
                request => requests.push(request),
            }
        }
        requests
    }

    fn wake(&mut self, task: Task) {
        match task {
            Task::Audit => self.tasks.audit = self.tasks.audit.min(self.now),
            Task::Orphans => self.tasks.orphans = self.tasks.orphans.min(self.now),
            Task::Note => self.tasks.note = self.tasks.note.min(self.now),
            Task::Nodes => self.tasks.nodes = Some(self.now),
            Task::Poll => {}
        }
    }

    fn turn(&mut self, name: &Name, lane: Lane, turn: Turn) {
        let now = self.now;
        self.rules.calls.queued(name, lane, turn);
        let key = self.queues[place(lane)].entry(Name::clone(name)).or_default();
        let paced = matches!(turn, Turn::Paced(_)).then(|| key.pace(now));
        let mut after = |at: At| key.due = Some(key.due.map_or(at, |due| due.min(at)));
        match turn {
            Turn::Now(_) => after(now),
            Turn::Paced(_) => after(paced.unwrap_or(now)),
            Turn::After(wait, _) => after(now + wait),
            Turn::Failed(_) => {
                key.failures += 1;
                let wait = crate::machine::RETRY.after(key.failures);
                key.due = Some(key.due.map_or(now + wait, |due| due.min(now + wait)));
            }
            Turn::Well => key.failures = 0,
            Turn::Gone => {
                (key.due, key.failures) = (None, 0);
                key.paced.clear();
            }
        }
    }

    /// Returns true if the key is due or at work.
    pub(super) fn is_in_hand(&self, name: &Name) -> bool {
        let keys = self.queues.iter().filter_map(|queue| queue.get(name));
        keys.into_iter().any(|key| key.is_busy || key.due.is_some_and(|due| due <= self.now))
    }

    /// Tells the provider's offer.
    pub(super) fn offered(&mut self, has_changed: bool) {
        let offer = Box::new(Ok(self.offer.clone()));
        self.hear(Event::Offered { offer, has_changed });
    }

    /// Returns the next key of a queue that may be handed out, and when.
    pub(super) fn next_due(&self) -> Option<(At, Lane, Name)> {
        let due = |lane: Lane| {
            let keys = self.queues[place(lane)].iter().filter(|(_, key)| !key.is_busy);
            keys.filter_map(move |(name, key)| Some((key.due?, place(lane), lane, name)))
        };
        let first = due(Lane::Normal).chain(due(Lane::Slow)).min_by_key(|it| (it.0, it.1));
        first.map(|(at, _, lane, name)| (at, lane, Name::clone(name)))
    }

    pub(super) fn take(&mut self, lane: Lane, name: &Name) {
        if let Some(key) = self.queues[place(lane)].get_mut(name) {
            (key.due, key.is_busy) = (None, true);
        }
    }

    pub(super) fn done(&mut self, lane: Lane, name: &Name) {
        if let Some(key) = self.queues[place(lane)].get_mut(name) {
            key.is_busy = false;
        }
    }

    pub(super) fn due(&self, lane: Lane, name: &Name, may_call: bool) -> Due {
        let mut service = self.store.get(name).cloned();
        if self.without == Some(Without::FinalizerFirst) {
            service = service
                .map(|one| Arc::new(Service { has_finalizer: true, ..Service::clone(&one) }));
        }
        let of = |service: &Arc<Service>| labels::selector(service, &self.offer.selector);
        let selector = service.as_ref().map_or_else(NodeSelector::default, of);
        Due {
            lane,
            name: Name::clone(name),
            service,
            is_default: selector == self.offer.selector,
            selector,
            is_read: true,
            changes: self.machine.changes(),
            is_same_cloud: !self.is_elsewhere(),
            neighbours: self.neighbours(name),
            may_call,
        }
    }

    /// Returns the other Services of the namespace.
    fn neighbours(&self, name: &Name) -> Vec<Arc<Service>> {
        let namespace = |key: &Name| key.split('/').next().map(str::to_owned);
        let is_neighbour =
            |one: &&Arc<Service>| one.key != *name && namespace(&one.key) == namespace(name);
        self.store.values().filter(is_neighbour).cloned().collect()
    }

    pub(super) fn service_changed(&mut self, old: Option<Arc<Service>>, new: Option<Arc<Service>>) {
        self.hear(Event::Service(crate::machine::event::Changed { old, new }));
    }

    pub(super) fn nodes_are(&mut self, why: NodesWhy) {
        let nodes = self.nodes.values().cloned().collect();
        self.hear(Event::Nodes(NodesSeen { nodes, schemes: Vec::new(), why }));
    }
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("text")
}

const fn place(lane: Lane) -> usize {
    match lane {
        Lane::Normal => 0,
        Lane::Slow => 1,
    }
}
