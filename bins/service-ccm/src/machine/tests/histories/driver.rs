//! Performs what the machine says, as time passes.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, Depth, ErrorKind, LoadBalancer, Loss, Progress, Wanted};
use ccm_controller::brake::approval::{KEYS, SELECTOR, SetApproval, UNTIL};
use ccm_kube::ApiError;
use ccm_objects::{Service, Shared as Name};

use super::{
    outside::LATE,
    rules::Rules,
    variants::Without,
    world::{Kind, World},
};
use crate::machine::{
    effect::{Ask, Effect, Lane, OrphanDue, Question, Write},
    event::{Answer, Answered, Event, Listed, NodesWhy, Polled, Written},
};
use crate::plan::orphans::{Policy, Rules as OrphanRules};

/// A request that waits for its answer.
pub(super) enum Flight {
    Ask(Box<Ask>),
    Write(Box<Write>, bool),
    List(At),
    Read(Vec<(String, Name)>, At),
    Poll(Vec<(String, Name)>, At),
    Confirm(Vec<(String, Name)>, At),
    Instance,
    Orphan(Box<OrphanDue>),
}

/// How long the longest answer takes, in milliseconds.
const SLOWEST: usize = 2000;

impl World {
    /// Lets time pass until then.
    pub(super) fn run(&mut self, until: At) {
        for _ in 0..100_000 {
            let Some((at, what)) = self.next().filter(|(at, _)| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(whole(at));
            self.cloud.work(self.now);
            self.perform(what);
            self.rules.check(&self.cloud, self.now);
            if self.kind == Kind::Nodes {
                Rules::check_room(&self.api, &self.cloud);
            }
            self.claims.check([&self.api, &self.store], &self.cloud, (self.kind, self.now));
        }
        panic!("there is no end of work at {}", self.now);
    }

    fn next(&self) -> Option<(At, Next)> {
        let flight = self.flights.iter().enumerate().map(|(place, (at, _))| (*at, place)).min();
        let all = [
            flight.map(|(at, place)| (at, Next::Flight(place))),
            self.next_due().map(|(at, lane, name)| (at, Next::Due(lane, name))),
            self.tasks.nodes.map(|at| (at, Next::Nodes)),
            self.machine.nodes_due().map(|at| (at, Next::NodesDue)),
            self.machine.next_poll().map(|at| (at.max(self.tasks.polls), Next::Poll)),
            Some((self.tasks.audit, Next::Audit)),
            Some((self.tasks.orphans, Next::Orphans)),
            Some((self.tasks.note, Next::Note)),
        ];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn fly(&mut self, flight: Flight) {
        let wait = Duration::from_millis(u64::try_from(self.random.below(SLOWEST)).unwrap_or(0));
        self.flights.push((self.now + wait, flight));
    }

    fn perform(&mut self, what: Next) {
        match what {
            Next::Flight(place) => {
                let (_, flight) = self.flights.swap_remove(place);
                self.answer(flight);
            }
            Next::Due(lane, name) => {
                self.take(lane, &name);
                self.look(lane, &name, true);
            }
            Next::Nodes => {
                self.tasks.nodes = None;
                self.nodes_are(NodesWhy::Changed);
            }
            Next::NodesDue => {
                let services = self.store.values().cloned().collect();
                self.nodes_are(NodesWhy::Due { selectors: Vec::new(), services });
            }
            Next::Poll => {
                self.tasks.polls = self.now + Duration::from_secs(1);
                for request in self.hear(Event::PollDue) {
                    self.request(request);
                }
            }
            Next::Audit => {
                self.tasks.audit = self.now + Duration::from_mins(5);
                let started = self.now;
                self.fly(Flight::List(started));
            }
            Next::Orphans => {
                self.tasks.orphans = self.now + Duration::from_mins(5);
                let policy = if self.deletes { Policy::Delete } else { Policy::Report };
                let rules = OrphanRules { policy, confirmation: Duration::from_mins(15) };
                for request in self.hear(Event::OrphansDue(rules)) {
                    self.request(request);
                }
                let next = self.machine.next_orphan().filter(|next| self.now < *next);
                self.tasks.orphans =
                    next.map_or(self.tasks.orphans, |at| self.tasks.orphans.min(at));
            }
            Next::Note => {
                self.tasks.note = self.now + Duration::from_secs(2);
                // The Lease is renewed.
                self.lease.0 = self.lease.1.clone();
                self.leave(false);
            }
        }
    }

    fn leave(&mut self, must: bool) {
        if must || self.machine.has_note() {
            let mut gone = self.machine.marked_nodes();
            gone.retain(|node| !self.nodes.contains_key(node));
            self.hear(Event::NoteDue { gone, must });
        }
    }

    /// A Service is due on this lane.
    fn look(&mut self, lane: Lane, name: &Name, may_call: bool) {
        let requests = self.hear(self.due(lane, name, may_call));
        assert!(requests.len() <= 1, "{requests:?}");
        match requests.into_iter().next() {
            None => self.done(lane, name),
            Some(Effect::Write(write)) => self.fly(Flight::Write(write, may_call)),
            Some(Effect::Ask(ask)) => {
                if ask.is_charged {
                    self.leave(true);
                    self.lease.0 = self.lease.1.clone();
                }
                Rules::asked(&ask, &self.api, &self.cloud);
                self.fly(Flight::Ask(ask));
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    fn request(&mut self, request: Effect) {
        let now = self.now;
        match request {
            Effect::Poll(asked) => self.fly(Flight::Poll(asked, now)),
            Effect::Confirm(asked) => self.fly(Flight::Confirm(asked, now)),
            Effect::Read(asked) => self.fly(Flight::Read(asked, now)),
            Effect::AskInstance => self.fly(Flight::Instance),
            Effect::DeleteOrphans(all) => {
                self.leave(true);
                self.lease.0 = self.lease.1.clone();
                let owners = all.iter().map(|due| due.orphan.owner.clone()).collect();
                self.hear(Event::OrphansCalled(owners));
                for due in all {
                    self.fly(Flight::Orphan(Box::new(due)));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn fails(&mut self) -> bool {
        !self.is_calm && self.kind == Kind::Faults && self.random.one_in(5)
    }

    fn error(&mut self) -> CloudError {
        let kinds = [ErrorKind::Unavailable, ErrorKind::Throttled, ErrorKind::Timeout];
        CloudError::new(kinds[self.random.below(3)], "no")
    }

    fn answer(&mut self, flight: Flight) {
        match flight {
            Flight::Ask(ask) => self.answer_ask(*ask),
            Flight::Write(write, may_call) => self.answer_write(*write, may_call),
            Flight::List(started) => self.answer_list(started),
            Flight::Instance => {
                let is_shown = !self.nodes.is_empty() && !self.is_lying;
                for request in self.hear(Event::Instance { is_shown }) {
                    self.request(request);
                }
            }
            Flight::Read(asked, started) => {
                let ids: Vec<String> = asked.iter().map(|(id, _)| id.clone()).collect();
                let list = self.list(Some(&ids), Depth::Members);
                for balancer in list.load_balancers {
                    let name = asked.iter().find(|(id, _)| *id == balancer.id);
                    let Some((_, name)) = name else { continue };
                    let (name, balancer) = (Name::clone(name), Box::new(balancer));
                    self.hear(Event::Read { name, balancer, started });
                }
            }
            Flight::Poll(asked, started) => {
                if self.fails() || self.without == Some(Without::Polls) {
                    self.tasks.polls = self.now + Duration::from_secs(5);
                    return;
                }
                let polled = self.polled(asked, started, Depth::Summary);
                for request in self.hear(Event::Polled(polled)) {
                    self.request(request);
                }
            }
            Flight::Confirm(asked, started) => {
                let polled = self.polled(asked, started, Depth::Members);
                self.hear(Event::Confirmed(polled));
            }
            Flight::Orphan(due) => self.answer_orphan(*due),
        }
    }

    fn polled(&mut self, asked: Vec<(String, Name)>, started: At, depth: Depth) -> Polled {
        let ids: Vec<String> = asked.iter().map(|(id, _)| id.clone()).collect();
        let list = self.list(Some(&ids), depth);
        let services = asked.iter().filter_map(|(_, name)| self.store.get(name).cloned());
        Polled { started, services: services.collect(), asked, list }
    }

    fn answer_list(&mut self, started: At) {
        let concerned = |service: &&Arc<Service>| service.concerns_load_balancers();
        let services: Vec<_> = self.store.values().filter(concerned).cloned().collect();
        if self.fails() {
            self.tasks.audit = self.now + Duration::from_secs(5);
            let error = self.error();
            self.hear(Event::NotListed { error, services });
            return;
        }
        let list = self.list(None, Depth::Summary);
        let needs_all = self.machine.needs_all(&list, &services);
        let all = needs_all.then(|| self.cloud.list_all(self.now));
        let count = self.store.len() + 1;
        let listed = Listed { started, list, all, services, count };
        for request in self.hear(Event::Listed(Box::new(listed))) {
            self.request(request);
        }
    }

    fn answer_ask(&mut self, ask: Ask) {
        let Ask { lane, name, uid, question, .. } = ask;
        // A call that fails may have been carried out.
        let fails = self.fails();
        let is_made = !fails || self.random.one_in(2);
        let error = self.error().that_may_be_done();
        let now = self.now;
        let uid_of = uid.to_string();
        let answer = match question {
            Question::Ensure(wanted) if self.is_lying => {
                Answer::Ensure(Box::new(self.ensure_elsewhere(&wanted)))
            }
            Question::Ensure(mut wanted) => {
                wanted.members = self.members(&uid_of, &wanted.members);
                let made = is_made.then(|| self.cloud.ensure(&wanted, now));
                self.rules.ensured(&uid_of, &self.cloud);
                let own = self.cloud.of(&uid_of).into_iter();
                self.asked.extend(own.map(|id| (id, wanted.front_end.digest)));
                Answer::Ensure(Box::new(made.filter(|_| !fails).ok_or(error)))
            }
            Question::Members(_) if self.is_lying => {
                Answer::Members(Err(CloudError::new(ErrorKind::NotFound, "it is not here")))
            }
            Question::Members(mut change) => {
                change.members = self.members(&uid_of, &change.members);
                let gone = || CloudError::new(ErrorKind::NotFound, "it is gone");
                let made = is_made.then(|| self.cloud.set_members(&change, now).ok_or_else(gone));
                Answer::Members(made.filter(|_| !fails).unwrap_or(Err(error)))
            }
            Question::Delete(_) if self.is_lying => Answer::Delete(Err(error)),
            Question::Delete(unwanted) => {
                let (is_duplicate, unwanted) = (unwanted.duplicate, self.unwanted(&unwanted));
                if is_made {
                    Rules::deleted(&unwanted, self.api.get(&name).map(|it| &**it), &self.cloud);
                }
                let made = is_made.then(|| self.cloud.delete(&unwanted, now));
                let made = made.filter(|_| !fails).map(|made| self.deleted(made));
                match is_duplicate {
                    true => Answer::DeleteDuplicate(made.ok_or(error)),
                    false => Answer::Delete(made.ok_or(error)),
                }
            }
            Question::Preview(wanted) => Answer::Preview(wanted.front_end.digest, Ok(Vec::new())),
        };
        let answered = Answered { lane, name: Name::clone(&name), uid, answer };
        let requests = self.hear(Event::Answered(answered));
        match requests.is_empty() {
            true => self.done(lane, &name),
            false => self.look(lane, &name, false),
        }
    }

    /// Another cloud has none of the load balancers, and makes none that replaces one.
    fn ensure_elsewhere(&mut self, wanted: &Wanted) -> Result<Progress<LoadBalancer>, CloudError> {
        let uid = &wanted.front_end.owner.uid;
        if wanted.known.is_some() && !wanted.may_replace {
            let why = "it is not here".to_owned();
            return Ok(Progress::Lost(Loss { why, is_gone: true }));
        }
        // Clients have learnt its address.
        let details = self.api.values().find(|one| *one.uid == **uid);
        let details = details.and_then(|service| service.details.as_deref());
        let is_shown = details.is_some_and(|details| !details.ingress.is_empty());
        if wanted.known.is_some() && is_shown && !self.cloud.of(uid).is_empty() {
            self.rules.replaced(uid, self.now);
        }
        Err(CloudError::new(ErrorKind::Timeout, "another cloud").that_may_be_done())
    }

    fn answer_write(&mut self, write: Write, may_call: bool) {
        let answer = self.write(&write);
        if answer.is_ok() {
            self.rules.wrote(&write, self.now);
        }
        let Write { lane, service, step, .. } = write;
        let name = Name::clone(&service.key);
        let written = Written { lane, service, step, answer };
        match self.hear(Event::Written(written)).is_empty() {
            true => self.done(lane, &name),
            false => self.look(lane, &name, may_call),
        }
    }

    fn answer_orphan(&mut self, due: OrphanDue) {
        let found = self.api.get(&*due.orphan.owner.to_string()).map(|one| Service::clone(one));
        let found = match self.fails() {
            true => Err(ApiError::Timeout),
            false => Ok(found.map(Box::new)),
        };
        let requests = self.hear(Event::OrphanLookedUp { due: Box::new(due.clone()), found });
        if let Some(Effect::DeleteOrphan(due)) = requests.into_iter().next() {
            self.rules.orphan_goes(&due, &self.api, self.now);
            let answer = Ok(self.cloud.delete(&due.question(), self.now));
            self.hear(Event::OrphanAnswered { due, answer });
        }
        self.hear(Event::OrphansAnswered);
    }

    /// Ends all faults, approves what is held, and checks that all is right in the end.
    pub(super) fn settle(&mut self) {
        (self.is_calm, self.rules.is_approved, self.is_lying) = (true, true, false);
        self.contested = None;
        self.approve_all();
        (0..4).for_each(|number| self.set_node(number, false));
        self.tell_all();
        let end = self.now + Duration::from_hours(3);
        self.run(end);
        Rules::right(self.now, &self.api, &self.nodes, &self.cloud);
        self.claims.right(&self.api, &self.nodes, &self.cloud);
        self.rules.begin_quiet();
        let end = self.now + Duration::from_mins(20);
        self.run(end);
        self.explain(&self.api);
        self.rules.end_quiet();
        self.follows_soon();
    }

    /// The Lease approves that any member leaves, and that any load balancer is replaced.
    pub(super) fn approve_all(&mut self) {
        let until = (self.now + Duration::from_hours(1000)).to_string();
        let annotation = |key: &str| match key {
            SELECTOR => Some("*".to_owned()),
            UNTIL => Some(until.clone()),
            _ => None,
        };
        let approval = SetApproval::read(KEYS, annotation).expect("an approval");
        self.hear(Event::Approved([approval.clone(), approval]));
    }

    /// A Service is served, and load balancers follow a node that joins and one that leaves.
    fn follows_soon(&mut self) {
        let key: Name = "other/late".into();
        self.add_service(&key);
        self.tell_all();
        let end = self.now + 2 * self.cloud.takes + Duration::from_secs(30);
        self.run(end);
        let service = self.api.get(&key).and_then(|service| service.details.as_deref());
        let is_served = service.is_some_and(|details| !details.ingress.is_empty());
        assert!(is_served, "Soon: {service:?}, and the cloud needs {:?}", self.cloud.takes);
        for is_marked in [false, true] {
            self.set_node(LATE, is_marked);
            let end = self.now + Duration::from_secs(90) + 2 * self.cloud.takes;
            self.run(end);
            let node = format!("node-{LATE}");
            let own = self.api.values().flat_map(|service| self.cloud.of(&service.uid));
            for one in own.filter_map(|id| self.cloud.balancers.get(&id)) {
                let is_right = one.members.contains_key(&node) != is_marked;
                assert!(is_right, "Leaves: {node} is marked: {is_marked}, {one:?}");
            }
        }
    }
}

/// The first whole millisecond from then on: events of the door come at whole milliseconds.
fn whole(at: At) -> At {
    let millis = at.0.as_nanos().div_ceil(1_000_000);
    At(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// The next event.
enum Next {
    Flight(usize),
    Due(Lane, Name),
    Nodes,
    NodesDue,
    Poll,
    Audit,
    Orphans,
    Note,
}
