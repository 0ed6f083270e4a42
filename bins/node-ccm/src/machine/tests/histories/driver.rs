//! Carries out what the machine asks for, in any order.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Instance, Lookup, LookupResult};
use ccm_objects::Shared as Name;

use super::{
    super::super::*,
    Kind,
    cloud::WAVE,
    variants::Without,
    world::{Basis, Flight, Refresh, World},
};
use crate::plan::Policy;

impl World {
    fn look(&mut self, name: &Name) {
        self.queue.take(name);
        let Some(node) = self.store.get(name).cloned() else { return self.done(name) };
        let seen = self.claimed(&node);
        match self.hear(Event::Look(seen)).pop() {
            Some(Request::Due(Due::Ask)) => {
                self.flights.push(Flight::Lookup { node, began: self.now });
            }
            Some(Request::Due(Due::Known(answer))) => {
                self.flights.push(Flight::Worker { asked: node, answer });
            }
            _ => {
                self.queue.forget(name);
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
                    self.queue.after(&node.name, self.now);
                    return self.done(&node.name);
                }
                let (answer, ago) = (self.answer(&node), self.now.since(began));
                let answers = vec![(Arc::clone(&node), answer.clone())];
                self.hear(Event::Answered { ago, answers });
                self.flights.push(Flight::Worker { asked: node, answer });
            }
            Flight::Worker { asked, answer } => self.work_on(asked, answer),
            Flight::Write { name, node, step, basis } => {
                let answer = self.write(&node, &step, &basis);
                let answer = self.answer_without(answer, &node, &step);
                let requests = self.hear(Event::Written { name: Name::clone(&name), answer });
                self.lose_repeats(&name);
                self.follow(&name, requests, basis);
            }
        }
    }

    fn work_on(&mut self, asked: Arc<Node>, answer: LookupResult) {
        let name = Name::clone(&asked.name);
        let Some(node) = self.store.get(&name).cloned() else { return self.done(&name) };
        let instance = match &answer {
            Ok(Lookup::Found(instance)) => Some(Instance::clone(instance)),
            _ => None,
        };
        let id = instance.as_ref().map(|one| one.provider_id.as_str());
        let rivals = self.rivals_in_store(&node, id);
        let policy = Policy { labels_only_add: self.labels_only_add, ..self.params.policy };
        let basis =
            Box::new(Basis { node: Arc::clone(&node), instance, policy, rivals: rivals.clone() });
        let is_left_out = self.is_foreign(&node) || !self.is_selected(&node);
        let is_other = !asked.has_identity_of(&node);
        let asked = if self.without == Some(Without::Asked) { Arc::clone(&node) } else { asked };
        let rivals = if self.without == Some(Without::Rivals) { Vec::new() } else { rivals };
        let (seen, failures) = (self.claimed(&node), self.queue.failures(&name));
        self.lose_agreement(&name);
        let work = Work { asked, seen, answer, rivals, failures };
        let requests = self.hear(Event::Work(Box::new(work)));
        assert!(requests.is_empty() || !is_left_out, "LeftOut: {node:?} is written");
        assert!(requests.is_empty() || !is_other, "Another: the answer is not about {node:?}");
        self.follow(&name, requests, basis);
    }

    fn follow(&mut self, name: &Name, mut requests: Vec<Request>, basis: Box<Basis>) {
        match requests.pop() {
            Some(Request::Write { node, step, is_charged }) => {
                assert!(!self.params.is_observing, "Observer: {step:?} of {node:?}");
                if is_charged && self.without != Some(Without::Charge) {
                    self.lease.0 = self.lease.1.clone();
                }
                let name = Name::clone(name);
                self.flights.push(Flight::Write { name, node, step, basis });
                if self.kind == Kind::Budget && !self.is_calm && self.random.one_in(12) {
                    self.lead();
                }
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
        if self.refresh.is_none() && self.without != Some(Without::Refresh) {
            let nodes = self.store.values().map(|node| self.claimed(node)).collect();
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
                            KnownAnswer::Found(id)
                        }
                        other => KnownAnswer::Other(other),
                    };
                    left.push((node, answer));
                }
                self.hear(Event::Found { ago: self.now.since(began), instances });
                let is_answered = left.iter().any(|(_, answer)| answer.error().is_none());
                is_answered.then_some(Refresh::Compares { left, began })
            }
            Some(Refresh::Compares { mut left, began }) => match left.pop() {
                Some((node, answer)) => {
                    let seen = self.claimed(&node);
                    self.hear(Event::Compare { seen, answer });
                    Some(Refresh::Compares { left, began })
                }
                None => {
                    self.hear(Event::Compared { ago: self.now.since(began) });
                    None
                }
            },
        };
    }

    pub(super) fn step(&mut self) {
        match self.random.below(16) {
            0 => self.register(),
            1 => self.change_node(),
            2 | 3 if self.kind == Kind::Budget && self.random.one_in(3) => self.small_change(),
            2 | 3 if self.kind == Kind::Others && self.random.one_in(6) => self.edited(),
            2 => self.change_cloud(),
            3 if self.random.one_in(6) => self.wave(),
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

    /// Gives all machines another label in the cloud. Then they have the old one again, or a
    /// machine is gone.
    fn wave(&mut self) {
        let before = self.instances.clone();
        for instance in self.instances.values_mut() {
            instance.labels.insert(WAVE.to_owned(), self.versions.to_string());
        }
        self.begin_refresh();
        self.work_off();
        let name = self.name();
        match self.random.below(4) {
            0 | 1 => {
                self.work(Duration::from_secs(4));
                self.instances = before;
            }
            2 if self.kind != Kind::Others => drop(self.instances.remove(&name)),
            _ => self.selects_or_not(&name),
        }
        self.begin_refresh();
        self.work_off();
    }

    /// Makes all nodes as the cloud says, and lets another client change one of them.
    fn edited(&mut self) {
        self.begin_refresh();
        self.work(Duration::from_secs(10));
        self.begin_refresh();
        self.work_off();
        self.is_edited();
        self.work_off();
    }

    /// Changes a few instances in the cloud, and lets node-ccm notice the changes.
    fn small_change(&mut self) {
        for _ in 0..=self.random.below(2) {
            self.change_cloud();
        }
        self.begin_refresh();
        self.work(Duration::from_secs(20));
    }

    fn pass_time(&mut self, by: Duration) {
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
        assert!(!self.is_calm, "Ends: the work does not end");
    }
}
