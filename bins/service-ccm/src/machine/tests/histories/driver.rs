//! Performs what the machine says, as time passes.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, Depth, ErrorKind};
use ccm_controller::brake::approval::{KEYS, SELECTOR, SetApproval, UNTIL};
use ccm_kube::ApiError;
use ccm_objects::{Service, Shared as Name};

use super::{
    cloud::Balancer,
    labels, operator,
    outside::LATE,
    rules::{Rules, asks_for_one},
    variants::Without,
    world::{Kind, World},
};
use crate::machine::{
    effect::{Ask, Effect, Lane, OrphanDue, Write},
    event::{Event, Listed, NodesWhy, Polled, Written},
};
use crate::plan::orphans::{OrphanRules, Policy};

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
/// How soon the rules are checked again when only time passes.
const RARELY: Duration = Duration::from_secs(30);

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
            let is_note = matches!(what, Next::Note);
            self.perform(what);
            // A note does not change anything that a rule checks.
            if !is_note || self.now.since(self.checked) > RARELY {
                self.check();
            }
        }
        panic!("there is no end of work at {}", self.now);
    }

    /// Checks the rules that hold after each event.
    fn check(&mut self) {
        self.checked = self.now;
        self.see_labels();
        self.rules.check(&self.cloud, self.now);
        self.check_room();
        self.check_classes();
        let is_slow = matches!(self.kind, Kind::Faults | Kind::Refusals);
        let is_slow = is_slow || !self.offer.traits.lists;
        let (api, store, settings) = (&self.api, &self.store, &self.settings);
        let is_kept = |one: &Service| operator::is_kept(one, settings);
        self.claims.check([api, store], &self.cloud, is_kept, (is_slow, self.now));
        if self.trouble.is_some() {
            self.claims.pause();
        }
    }

    fn next(&self) -> Option<(At, Next)> {
        let flight = self.flights.iter().enumerate().map(|(place, (at, _))| (*at, place)).min();
        let all = [
            flight.map(|(at, place)| (at, Next::Flight(place))),
            self.next_due().map(|(at, lane, name)| (at, Next::Due(lane, name))),
            self.tasks.nodes.map(|at| (at, Next::Nodes)),
            self.machine.nodes_due().map(|at| (at, Next::NodesDue)),
            self.machine.next_poll().map(|at| (at, Next::Poll)),
            Some((self.tasks.audit, Next::Audit)).filter(|_| !self.is_listing()),
            Some((self.tasks.orphans, Next::Orphans)),
            Some((self.tasks.note, Next::Note)),
        ];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Returns true while a list is under way: one list comes after the other.
    fn is_listing(&self) -> bool {
        let is_part = |flight: &Flight| {
            matches!(flight, Flight::List(_) | Flight::Instance | Flight::Read(..))
        };
        self.flights.iter().any(|(_, flight)| is_part(flight))
    }

    pub(super) fn fly(&mut self, flight: Flight) {
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
                self.nodes_are(NodesWhy::Due { selectors: self.selectors(), services });
            }
            Next::Poll => {
                for request in self.hear(Event::PollDue) {
                    self.request(request);
                }
            }
            Next::Audit => {
                self.tasks.audit = self.now + Duration::from_mins(5);
                self.list_all();
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
                // This renews the Lease.
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

    /// Makes a Service due on this lane.
    pub(super) fn look(&mut self, lane: Lane, name: &Name, may_call: bool) {
        let mut due = self.due(lane, name, may_call);
        self.tell_labels(&due.selector);
        self.lack(&mut due);
        due.changes = self.machine.changes();
        let is_read = self.is_read(&mut due);
        let requests = self.hear(Event::Due(due));
        assert!(requests.len() <= 1, "{requests:?}");
        assert!(is_read || requests.is_empty(), "Read: {name} was not read: {requests:?}");
        match requests.into_iter().next() {
            None => self.done(lane, name),
            Some(Effect::Write(write)) => self.fly(Flight::Write(write, may_call)),
            Some(Effect::Ask(ask)) => {
                if ask.is_charged {
                    self.leave(true);
                    self.lease.0 = self.lease.1.clone();
                }
                let is_sent = self.trouble.as_ref().is_none_or(|error| !error.unsent);
                self.rules.calls.asked(&ask, is_sent, self.now);
                self.rules.asked(&ask, &self.api, &self.cloud);
                self.asks(&ask);
                self.fly(Flight::Ask(ask));
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    pub(super) fn request(&mut self, request: Effect) {
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

    pub(super) fn fails(&mut self) -> bool {
        let fails = matches!(self.kind, Kind::Faults | Kind::Refusals);
        !self.is_calm && fails && self.random.one_in(5)
    }

    pub(super) fn error(&mut self) -> CloudError {
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
                let polled = self.polled(asked, started, Depth::Members);
                self.hear(Event::Read(polled));
            }
            Flight::Poll(asked, started) => {
                if self.fails() || self.without == Some(Without::Polls) {
                    let error = self.error();
                    self.hear(Event::NotPolled(error));
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
        self.hear(Event::OrphansCalled(Vec::new()));
    }

    /// Ends all faults, approves what is held, and checks that all is right in the end.
    pub(super) fn settle(&mut self) {
        self.is_calm = true;
        self.marked_leave();
        self.contest();
        if self.is_lying && self.is_same {
            self.tell_all();
            self.approval_replaces();
        }
        self.end_lie();
        self.rules.is_approved = true;
        self.contested = None;
        self.end_trouble();
        self.approve_all();
        (0..4).for_each(|number| self.set_node(number, false));
        self.tell_all();
        self.mend_all();
        let end = self.now + Duration::from_hours(3);
        self.run(end);
        Rules::right(self.now, &self.api, &self.nodes, &self.cloud, &self.offer.selector);
        let lists = self.offer.traits.lists;
        self.claims.right(&self.api, &self.nodes, &self.cloud, (lists, self.now));
        self.rules.begin_quiet(lists);
        let end = self.now + Duration::from_mins(20);
        self.run(end);
        self.explain(&self.api);
        self.rules.end_quiet();
        self.tries_again_soon();
        self.follows_soon();
        self.follows_default();
    }

    /// Approves on the Lease that any member leaves, and that any load balancer is replaced.
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

    /// Checks that a Service is served, and that load balancers follow a node that joins and one
    /// that leaves.
    fn follows_soon(&mut self) {
        let key: Name = "other/late".into();
        self.add_service(&key);
        self.tell_all();
        let end = self.now + 2 * self.cloud.takes + Duration::from_secs(30);
        self.run(end);
        self.is_served(&key);
        for is_marked in [false, true] {
            self.set_node(LATE, is_marked);
            let end = self.now + Duration::from_secs(90) + 2 * self.cloud.takes;
            self.run(end);
            let node = format!("node-{LATE}");
            // Without a list the members of a load balancer may not be known.
            let all = self.served().filter(|_| self.offer.traits.lists);
            for (service, one) in all {
                let by = labels::selector(service, &self.offer.selector);
                let is_selected = labels::is_selected(&self.nodes[&*node], &by);
                let is_right = one.members.contains_key(&node) == (is_selected && !is_marked);
                assert!(is_right, "Leaves: {node} is marked: {is_marked}, {one:?}");
            }
        }
    }
}

impl World {
    /// Returns the Services that ask for a load balancer, and their load balancers.
    fn served(&self) -> impl Iterator<Item = (&Arc<Service>, &Balancer)> {
        let own = |service: &Arc<Service>| self.cloud.of(&service.uid);
        let asking = self.api.values().filter(|service| asks_for_one(service));
        let all = asking.flat_map(move |one| own(one).into_iter().map(move |id| (one, id)));
        all.filter_map(|(service, id)| Some((service, self.cloud.balancers.get(&id)?)))
    }
}

/// Returns the first whole millisecond from then on: events of the door come at whole milliseconds.
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
