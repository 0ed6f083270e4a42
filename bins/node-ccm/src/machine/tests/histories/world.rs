//! The world of a machine: objects of the API server, a store that lags behind, the cloud, the queue, what is in
//! flight, and leaders that come and go.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{Instance, Lookup, LookupResult};
use ccm_controller::brake::{Limit, Window, approval::SetApproval};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::explain::{Explanation, Fares};
use ccm_tests::dice::Dice;

use super::{
    super::{super::*, params, seen},
    queue::Queue,
    rules::{BUDGET, Rules},
};
use crate::plan::Step;

/// The kinds of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Cloud and API server fail.
    Faults,
    /// Other clients undo what was written, and admission policies drop it.
    Others,
    /// The cloud changes its word about many nodes.
    Budget,
}

/// A node as a translator tells of it.
fn claimed(node: &Arc<Node>) -> Seen {
    let claim = match node.provider_id.as_deref() {
        None => Claim::Unclaimed,
        Some(id) if id.starts_with("sim://") => Claim::Ours,
        Some(_) => Claim::Foreign,
    };
    Seen { node: Arc::clone(node), claim: Some(claim), ..seen(Node::clone(node)) }
}

/// A request that waits for its answer.
enum Flight {
    Lookup { node: Arc<Node>, began: At },
    Worker { asked: Arc<Node>, answer: LookupResult },
    Write { name: Name, node: Arc<Node>, step: Step },
}

enum Refresh {
    Asked { nodes: Vec<Arc<Node>>, began: At },
    Compares { left: Vec<(Arc<Node>, Answer)>, began: At },
}

pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) random: Dice,
    pub(super) now: At,
    pub(super) machine: Machine,
    /// A machine that hears the same, if there is one.
    twin: Option<Machine>,
    pub(super) params: Params,
    pub(super) objects: BTreeMap<Name, Arc<Node>>,
    pub(super) versions: u64,
    pub(super) store: BTreeMap<Name, Arc<Node>>,
    pub(super) news: VecDeque<(Name, Option<Arc<Node>>)>,
    pub(super) instances: BTreeMap<Name, Instance>,
    queue: Queue,
    flights: Vec<Flight>,
    refresh: Option<Refresh>,
    /// The note on the Lease, and the newer one that the API server has not stored yet.
    lease: (Window, Window),
    pub(super) approval: Option<SetApproval>,
    pub(super) is_calm: bool,
    pub(super) rules: Rules,
    pub(super) events: usize,
}

impl World {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        let mut params = params();
        params.budget.limit = Limit::Count(u32::try_from(BUDGET).unwrap());
        let machine = Machine::new(params.clone());
        let mut world = Self {
            kind,
            random: Dice::new(seed),
            now: At(Duration::from_secs(1_000_000)),
            twin: seed.is_multiple_of(8).then(|| Machine::new(params.clone())),
            machine,
            params,
            objects: BTreeMap::new(),
            versions: 0,
            store: BTreeMap::new(),
            news: VecDeque::new(),
            instances: BTreeMap::new(),
            queue: Queue::default(),
            flights: Vec::new(),
            refresh: None,
            lease: Default::default(),
            approval: None,
            is_calm: false,
            rules: Rules::default(),
            events: 0,
        };
        world.lead();
        world
    }

    pub(super) fn hear(&mut self, event: Event) -> Vec<Request> {
        self.events += 1;
        let copy = self.twin.as_ref().map(|_| serde_json::to_string(&event).unwrap());
        let effects = self.machine.apply(event, self.now);
        if let (Some(twin), Some(copy)) = (&mut self.twin, copy) {
            let again = twin.apply(serde_json::from_str(&copy).unwrap(), self.now);
            let text = |effects: &[Effect]| serde_json::to_string(effects).unwrap();
            assert_eq!(text(&again), text(&effects), "the same events have other effects");
        }
        if self.random.one_in(200) {
            let text = serde_json::to_string(&self.machine).unwrap();
            self.machine = serde_json::from_str(&text).unwrap();
        }
        let mut requests = Vec::new();
        for effect in effects {
            self.rules.hear(&effect);
            match effect {
                Effect::Queue(name, queued) => self.queue.perform(&name, queued, self.now),
                Effect::Retry(node, again, _) => self.queue.again(&node.name, again, self.now),
                Effect::Forget(name) => self.queue.remove(&name),
                Effect::Leave => self.lease.1 = self.machine.window().clone(),
                Effect::Request(request) => requests.push(request),
                _ => {}
            }
        }
        self.rules.check(&self.machine);
        // One at a time: a text is made of each.
        if let Some((_, node)) = (0..=self.versions % 6).zip(self.store.values()).last() {
            self.told(node);
        }
        requests
    }

    /// Explains a node. Each explanation has a cause and a mend, and a node with the taint is never fine.
    pub(super) fn told(&self, node: &Arc<Node>) -> Explanation {
        let seen = Some(claimed(node));
        let shown = Shown { seen, is_selected: true, is_listed: true, ..Shown::default() };
        let told = self.machine.explain(&node.name, &shown, self.now);
        assert!(!told.cause.is_empty() && !told.mend.is_empty(), "{told:?}");
        assert!(told.fares != Fares::Fine || !node.is_uninitialised(), "{told:?}");
        told
    }

    fn lead(&mut self) {
        self.machine = Machine::new(self.params.clone());
        self.twin = self.twin.take().map(|_| Machine::new(self.params.clone()));
        (self.queue, self.flights, self.refresh) = (Queue::default(), Vec::new(), None);
        self.rules.leads_anew();
        let (left, params) = (self.lease.0.clone(), self.params.clone());
        self.lease.1 = left.clone();
        self.hear(Event::TakesOver { left, params });
        self.hear(Event::Approved(self.approval.clone()));
        while self.deliver() {}
        self.hear(Event::Leads);
        for node in self.store.values().cloned().collect::<Vec<_>>() {
            self.hear(Event::Listed(claimed(&node)));
        }
    }

    fn look(&mut self, name: &Name) {
        self.queue.take(name);
        let Some(node) = self.store.get(name).cloned() else { return self.done(name) };
        match self.hear(Event::Look(claimed(&node))).pop() {
            Some(Request::Due(Due::Ask)) => {
                self.flights.push(Flight::Lookup { node, began: self.now });
            }
            Some(Request::Due(Due::Known(answer))) => {
                self.flights.push(Flight::Worker { asked: node, answer });
            }
            _ => {
                self.queue.perform(name, Queued::Forget, self.now);
                self.done(name);
            }
        }
    }

    fn done(&mut self, name: &Name) {
        if !self.store.contains_key(name) {
            self.hear(Event::Gone(Name::clone(name)));
        }
        self.queue.done(name);
    }

    fn fly(&mut self, flight: Flight) {
        match flight {
            Flight::Lookup { node, began } => {
                if !self.is_calm && self.random.one_in(20) {
                    self.hear(Event::AskedAgain(Name::clone(&node.name)));
                    self.queue.perform(&node.name, Queued::After(Duration::ZERO), self.now);
                    return self.done(&node.name);
                }
                let (answer, ago) = (self.answer(&node), self.now.since(began));
                let answers = vec![(Arc::clone(&node), answer.clone())];
                self.hear(Event::Answered { ago, answers });
                self.flights.push(Flight::Worker { asked: node, answer });
            }
            Flight::Worker { asked, answer } => {
                let name = Name::clone(&asked.name);
                let Some(node) = self.store.get(&name).cloned() else { return self.done(&name) };
                let (seen, failures) = (claimed(&node), self.queue.failures(&name));
                let is_left_out =
                    seen.claim == Some(Claim::Foreign) || !self.params.selector.matches(&node);
                let is_other = !asked.has_identity_of(&node);
                let work = Work { asked, seen, answer, rivals: Vec::new(), failures };
                let requests = self.hear(Event::Work(Box::new(work)));
                assert!(requests.is_empty() || !(is_left_out || is_other), "written: {node:?}");
                self.follow(&name, requests);
            }
            Flight::Write { name, node, step } => {
                let answer = self.write(&node, &step);
                let requests = self.hear(Event::Written { name: Name::clone(&name), answer });
                self.follow(&name, requests);
            }
        }
    }

    fn follow(&mut self, name: &Name, mut requests: Vec<Request>) {
        match requests.pop() {
            Some(Request::Write { node, step, is_charged }) => {
                if is_charged {
                    self.lease.0 = self.lease.1.clone();
                }
                let name = Name::clone(name);
                self.flights.push(Flight::Write { name, node, step });
            }
            Some(Request::Conflict { node, what, most, .. }) => {
                if !self.queue.conflict(name, most, self.now) {
                    self.hear(Event::Conflicts { node, what: what.to_owned() });
                }
                self.done(name);
            }
            _ => self.done(name),
        }
    }

    pub(super) fn begin_refresh(&mut self) {
        if self.refresh.is_none() {
            let nodes = self.store.values().map(claimed).collect();
            if let Some(Request::LookUp(nodes)) = self.hear(Event::Refresh(nodes)).pop() {
                self.refresh = Some(Refresh::Asked { nodes, began: self.now });
            }
        }
    }

    fn go_on_refresh(&mut self) {
        self.refresh = match self.refresh.take() {
            None => None,
            Some(Refresh::Asked { nodes, began }) => {
                let (mut left, mut instances) = (Vec::new(), Vec::new());
                for node in nodes {
                    let answer = match self.answer(&node) {
                        Ok(Lookup::Found(instance)) => {
                            let id = instance.provider_id.clone();
                            instances.push(*instance);
                            Answer::Found(id)
                        }
                        other => Answer::Other(other),
                    };
                    left.push((node, answer));
                }
                self.hear(Event::Found { ago: self.now.since(began), instances });
                let is_answered = left.iter().any(|(_, answer)| answer.error().is_none());
                is_answered.then_some(Refresh::Compares { left, began })
            }
            Some(Refresh::Compares { mut left, began }) => match left.pop() {
                Some((node, answer)) => {
                    self.hear(Event::Compare { seen: claimed(&node), answer });
                    Some(Refresh::Compares { left, began })
                }
                None => {
                    self.hear(Event::Compared { ago: self.now.since(began) });
                    None
                }
            },
        };
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
    fn deliver(&mut self) -> bool {
        let Some((name, node)) = self.news.pop_front() else { return false };
        let old = self.store.get(&name).cloned();
        let version = |node: &Node| node.resource_version.parse::<u64>().unwrap();
        match (old, node) {
            (Some(old), Some(new)) if version(&old) >= version(&new) => {}
            (Some(old), Some(new)) if old.uid == new.uid => {
                self.store.insert(name, Arc::clone(&new));
                self.hear(Event::Updated { old, new: claimed(&new) });
            }
            (old, new) => {
                if let Some(old) = old {
                    self.store.remove(&name);
                    self.hear(Event::Deleted(old));
                }
                if let Some(new) = new {
                    self.store.insert(name, Arc::clone(&new));
                    self.hear(Event::Added(claimed(&new)));
                }
            }
        }
        true
    }

    pub(super) fn step(&mut self) {
        match self.random.below(16) {
            0 => self.register(),
            1 => self.change_node(),
            2 => self.change_cloud(),
            3 => self.change_settings(),
            4 | 5 => {
                self.deliver();
            }
            6..=8 => {
                let due = self.queue.due(self.now);
                if !due.is_empty() {
                    let at = self.random.below(due.len());
                    self.look(&due[at]);
                }
            }
            9..=11 => {
                if !self.flights.is_empty() {
                    let at = self.random.below(self.flights.len());
                    let flight = self.flights.swap_remove(at);
                    self.fly(flight);
                }
            }
            12 if self.random.one_in(4) => self.begin_refresh(),
            12 | 13 => self.go_on_refresh(),
            14 if self.random.one_in(15) => {
                if self.random.one_in(2) {
                    self.lease.0 = self.lease.1.clone();
                }
                self.lead();
            }
            14 => self.work_off(),
            _ => {
                let wait = [1, 100, 1000, 5000, 20_000][self.random.below(5)];
                self.pass_time(Duration::from_millis(wait));
                if self.random.one_in(10) {
                    self.work_off();
                    self.pass_time(Duration::from_mins(10));
                }
            }
        }
    }

    pub(super) fn pass_time(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    /// Works for this time: whatever is due is done in time.
    pub(super) fn work(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.work_off();
            self.now = self.queue.next().unwrap_or(end).max(self.now).min(end);
        }
    }

    /// Answers everything that is due now.
    pub(super) fn work_off(&mut self) {
        for _ in 0..100 {
            while self.deliver() {}
            while let Some(flight) = self.flights.pop() {
                self.fly(flight);
            }
            while self.refresh.is_some() {
                self.go_on_refresh();
            }
            let due = self.queue.due(self.now);
            if due.is_empty() && self.news.is_empty() {
                return;
            }
            for name in due {
                self.look(&name);
            }
        }
        assert!(!self.is_calm, "the work does not end");
    }

    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        self.params.selector = "!edge".parse().unwrap();
        self.hear(Event::Set(self.params.clone()));
    }

    pub(super) fn approve(&mut self, approval: Option<SetApproval>) {
        self.approval = approval;
        self.hear(Event::Approved(self.approval.clone()));
    }
}
