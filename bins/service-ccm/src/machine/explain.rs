//! Explains one Service, or one load balancer, to a person: the reasons of its state, and what
//! would change it.

mod decided;
mod reasons;
mod seen;

use ccm_base::{At, message::line_about};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_objects::{Service, ServicePort};
use ccm_runtime::explain::{Explanation, ObjectState, moment};

use self::seen::{balancer_in_words, there};
use super::{Machine, entry::BalancerEntry, page::not_served};
use crate::plan::{
    CallKind, Failed, Inputs, Known, List,
    evidence::{INSTANCE, Whose, class},
};

/// A Service, and what is remembered of it.
#[derive(Clone, Copy)]
struct About<'a> {
    service: &'a Service,
    entry: Option<&'a BalancerEntry>,
    inputs: Inputs,
    now: At,
}

impl About<'_> {
    /// Returns true if the Service asks for a load balancer.
    fn asks(&self) -> bool {
        self.service.is_load_balancer && !self.service.deleting
    }
}

impl Machine {
    /// Explains a Service.
    pub(crate) fn explain(&self, name: &str, service: Option<&Service>, now: At) -> Explanation {
        let Some(service) = service else { return self.no_service(name) };
        let entry = self.balancers.get(name).filter(|entry| *entry.uid == *service.uid);
        let about = About { service, entry, inputs: self.inputs(), now };
        let mut explanation = self.cause(about);
        explanation.wanted = self.asks_for(service);
        explanation.there = there(about);
        explanation.last = entry.map(|entry| last(entry, now)).unwrap_or_default();
        if explanation.next.is_empty() {
            explanation.next = self.next_time(about, explanation.state);
        }
        explanation
    }

    /// Takes the cause from the last plan. Before the first plan, it takes the conditions of the Service.
    fn cause(&self, about: About<'_>) -> Explanation {
        let service = about.service;
        if !service.has_finalizer && !about.asks() {
            return asks_for_none(service);
        }
        if let Some(error) = self.offer.as_ref().err().filter(|_| self.leads) {
            let cause = format!("the provider offers no load balancers now: {error}");
            return Explanation::of_error(error, cause);
        }
        if let Some(entry) = about.entry.filter(|entry| entry.last_plan.is_made) {
            return self.decided(about, entry, &entry.last_plan);
        }
        let is_compared = self.leads && self.balancers.list == List::Compared;
        if about.asks() && !self.parameters.classes.cover(service) {
            return self.does_not_serve(service);
        }
        if is_compared && !about.asks() {
            return leaves_it(service);
        }
        let shown = reasons::shown(service);
        match self.leads {
            true => self.explain_unplanned(shown),
            false => shown.unwrap_or_else(|| {
                let cause = "this replica does not lead, and does not ask the cloud";
                Explanation::new(ObjectState::Unknown, cause, "ask the leader")
            }),
        }
    }

    /// Explains a load balancer by its ID.
    pub(crate) fn explain_load_balancer(&self, id: &str, now: At) -> Explanation {
        let entries = || self.balancers.all();
        if let Some((name, entry)) = entries().find(|(_, entry)| entry.state.id() == Some(id)) {
            return of_service(name, entry);
        }
        let ask = |name: &str| format!("/explain?kind=Service&name={name} says more");
        for (name, entry) in entries() {
            let state = &entry.state;
            if state.duplicate.as_deref() == Some(id) {
                let cause =
                    format!("Service {name} has two load balancers, and this one is deleted");
                return Explanation::new(ObjectState::Working, cause, ask(name));
            }
            let adoptable = state.adoptable.as_ref().is_some_and(|(one, _)| one == id);
            let foreign = state.foreign.as_ref().is_some_and(|one| one.id == id);
            if adoptable || foreign {
                let cause =
                    format!("another controller made it, and Service {name} has or names it");
                return Explanation::new(ObjectState::Foreign, cause, ask(name));
            }
        }
        self.without_service(id, now)
    }

    fn without_service(&self, id: &str, now: At) -> Explanation {
        if let Some(line) = line_about(&self.audits.malformed, id) {
            return unreadable(line);
        }
        let Some(orphan) = self.orphans.get(id) else {
            let cause = format!("no list has shown a load balancer {id:?} of this cluster");
            let fix = match self.leads && self.balancers.list != List::Awaited {
                true => {
                    "check the ID; service-ccm does not look at load balancers of other clusters"
                }
                false => "ask the leader, or wait for its first list",
            };
            return Explanation::new(ObjectState::Unknown, cause, fix);
        };
        let owner = &orphan.owner;
        let cause = format!(
            "it has no Service: its owner is Service {}/{} with UID {}; {}",
            owner.namespace,
            owner.name,
            owner.uid,
            orphan.age_and_cost()
        );
        let fix = "if its Service should be there, restore it first; with --orphaned-load-balancers=delete service-ccm deletes it, as the line decided says";
        let (first, last) = orphan.seen();
        let seen =
            |what: &str, at| format!("the {what} list that has shown it came {}", moment(at, now));
        Explanation {
            there: vec![seen("first", first), seen("last", last)],
            next: "with each list of the cloud's load balancers".to_owned(),
            ..Explanation::new(ObjectState::Held, cause, fix)
        }
    }

    /// Explains a Service that asks for a load balancer of a class that is not served here.
    fn does_not_serve(&self, service: &Service) -> Explanation {
        let why = not_served(service);
        let is_anothers = self.parameters.classes.whose(service) == Whose::Anothers;
        if let Some(lease) = service.annotation(INSTANCE).filter(|_| is_anothers) {
            let cause = format!("{why}; the service-ccm with the Lease {lease} serves it");
            return Explanation::new(ObjectState::Foreign, cause, "ask its page /explain");
        }
        let option = match class(service) {
            Some(class) => {
                format!(
                    "ask the controller of this class, or add {class} to --load-balancer-classes"
                )
            }
            None => "set --serve-classless-services=true, or a class of --load-balancer-classes"
                .to_owned(),
        };
        Explanation::new(ObjectState::Foreign, why, option)
    }

    /// Explains a Service that this leader has not planned yet.
    fn explain_unplanned(&self, shown: Option<Explanation>) -> Explanation {
        let mut told = match &self.audits.error {
            Some(error) => {
                let cause = format!("the load balancers cannot be listed: {error}");
                Explanation::of_error(error, cause)
            }
            None => {
                let cause = "this process has not seen yet what the cloud has";
                Explanation::new(ObjectState::Working, cause, "wait for the first list")
            }
        };
        if let Some(shown) = shown {
            told.cause = format!("{}; the Service shows {}", told.cause, shown.cause);
        }
        told
    }

    fn asks_for(&self, service: &Service) -> Vec<String> {
        let Some(details) = &service.details else { return Vec::new() };
        if !service.is_load_balancer || service.deleting {
            return vec!["no load balancer".to_owned()];
        }
        if let Some(cut) = &details.too_large {
            return vec![format!("unknown: {} is too large to be read", cut.part)];
        }
        let ports: Vec<String> = details.ports.iter().map(port).collect();
        let mut lines = vec![format!("a load balancer with {}", ports.join(", "))];
        if let Some(address) = &details.load_balancer_ip {
            lines.push(format!("with the address {address}"));
        }
        if self.leads {
            lines.push(format!("nodes: {}", self.nodes.set.summary()));
        }
        lines
    }

    fn next_time(&self, about: About<'_>, state: ObjectState) -> String {
        let memory = about.entry.map(|entry| &entry.state);
        let failed = memory.iter().flat_map(|memory| &memory.failed);
        let tries = failed.map(|failed| (failed.due(about.inputs), "the call is made again"));
        let pending = memory.and_then(|memory| memory.pending.as_ref());
        let looks =
            pending.map(|pending| (pending.check_at, "service-ccm looks at the cloud's work"));
        let repeats = memory.iter().flat_map(|memory| memory.repeats.waiting(about.now));
        let repeats =
            repeats.map(|one| (about.now + one.wait, "the call or the write is made again"));
        match tries.chain(looks).chain(repeats).min() {
            Some((at, what)) if at > about.now => format!("{what} {}", moment(at, about.now)),
            Some((at, what)) => format!("{what} now: due {}", moment(at, about.now)),
            None if !self.leads => "when this replica leads".to_owned(),
            None => match state {
                ObjectState::Foreign | ObjectState::Unknown => {
                    "when the Service changes".to_owned()
                }
                ObjectState::Held => {
                    "twice a minute, and when the Service or the nodes change".to_owned()
                }
                _ => "when the Service, the nodes, the settings or the cloud's list change"
                    .to_owned(),
            },
        }
    }

    fn no_service(&self, name: &str) -> Explanation {
        let cause = format!("the API server does not show a Service {name:?}");
        let left = self.orphans.left_by(name).map(|orphan| {
            format!(
                "its load balancer {0} still exists: /explain?kind=LoadBalancer&name={0}",
                orphan.id
            )
        });
        let fix = match name.contains('/') {
            true => left.unwrap_or_else(|| "check namespace and name".to_owned()),
            false => "a Service is NAMESPACE/NAME".to_owned(),
        };
        Explanation::new(ObjectState::Unknown, cause, fix)
    }
}

/// Explains a load balancer whose entry in the cloud's list cannot be read, as this line says.
fn unreadable(line: &str) -> Explanation {
    let cause = format!("its entry in the cloud's list cannot be read: {line}");
    Explanation::of_error(&CloudError::new(ErrorKind::Malformed, line), cause)
}

/// Explains a load balancer that belongs to a Service.
fn of_service(name: &str, entry: &BalancerEntry) -> Explanation {
    if let Some(line) = &entry.state.unreadable {
        let told = unreadable(line);
        let cause = format!("it is the load balancer of Service {name}: {}", told.cause);
        return Explanation { cause, ..told };
    }
    let (state, what) = match &entry.state.known {
        Known::There(balancer) => (seen::state_for(balancer), balancer_in_words(balancer)),
        _ => (ObjectState::Working, "it has not been seen yet".to_owned()),
    };
    let cause = format!("it is the load balancer of Service {name}: {what}");
    let fix = format!("/explain?kind=Service&name={name} says how the Service is");
    Explanation::new(state, cause, fix)
}

/// Explains a Service that should go, or has another type now, and whose finalizer belongs to
/// another controller.
fn leaves_it(service: &Service) -> Explanation {
    let cause = match class(service) {
        Some(class) => format!("the finalizer belongs to the controller of the class {class}"),
        None => "the finalizer does not belong to this service-ccm, as far as the Service shows"
            .to_owned(),
    };
    let fix = "the controller that has set the finalizer should remove it; if that controller is gone, the events of the Service have the command";
    Explanation::new(ObjectState::Foreign, cause, fix)
}

/// Explains a Service that does not ask for a load balancer, and does not have one to remove.
fn asks_for_none(service: &Service) -> Explanation {
    match service.deleting {
        true => Explanation::new(
            ObjectState::Foreign,
            "it is being deleted, and does not have service-ccm's finalizer any more",
            "if it stays, another controller has to remove its own finalizer: see metadata.finalizers",
        ),
        false => Explanation::new(
            ObjectState::Foreign,
            "its type is not LoadBalancer",
            "set spec.type to LoadBalancer if it should have one",
        ),
    }
}

/// Returns the calls that failed, and the last answer.
fn last(entry: &BalancerEntry, now: At) -> Vec<String> {
    let failed = entry.state.failed.iter();
    let failed = failed.map(|one| format!("{}: {}", failure_text(one), one.error));
    let answered = (entry.answered > At::default())
        .then(|| format!("the cloud answered a call about it {}", moment(entry.answered, now)));
    failed.chain(answered).collect()
}

/// Returns the failure in words: `the call to delete it has failed twice`.
fn failure_text(failed: &Failed) -> String {
    let call = call(failed.call);
    match failed.times {
        1 => format!("{call} has failed once"),
        times => format!("{call} has failed {times} times"),
    }
}

/// Returns a call in words.
const fn call(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Ensure => "the call to create or update it",
        CallKind::Members => "the call to change members",
        CallKind::Delete => "the call to delete it",
        CallKind::DeleteDuplicate => "the call to delete its duplicate",
    }
}

fn port(port: &ServicePort) -> String {
    let node_port =
        port.node_port.map_or("no node port".to_owned(), |port| format!("node port {port}"));
    format!("{} {} ({node_port})", port.protocol, port.port)
}

#[cfg(test)]
mod tests;
