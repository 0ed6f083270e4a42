//! One Service, or one load balancer, for a person: why it is as it is, and what would change that.

mod reasons;

use ccm_base::At;
use ccm_cloud::{IngressAddress, LoadBalancer, Phase};
use ccm_objects::{Service, ServicePort, service_keys};
use ccm_runtime::explain::{Explanation, Fares, NOTHING, mend, moment};

use self::reasons::{annotate, approve};
use super::{
    Machine,
    entry::Entry,
    page::{class, not_served},
};
use crate::plan::{
    ADOPT, CallKind, Failed, Inputs, Known, RELEASE_APPROVED,
    front_end::{Problem, desired, in_words},
    reason::Reason,
};

/// A Service, and what is remembered of it.
#[derive(Clone, Copy)]
struct About<'a> {
    service: &'a Service,
    entry: Option<&'a Entry>,
    inputs: Inputs,
    now: At,
}

/// The mend of work that is under way.
const WAIT: &str = "wait: nothing has to be done";

type Cause = fn(&Machine, About<'_>) -> Option<Explanation>;

/// The possible causes, the first that holds counts. What the conditions of the Service say comes last: they may
/// be older than the memory of this process.
const CAUSES: &[Cause] = &[
    |_, about| asks_for_none(about),
    |machine, about| machine.does_not_serve(about),
    |machine, about| machine.has_no_offer(about),
    |machine, about| machine.is_wrong(about),
    |_, about| is_full(about),
    |machine, about| machine.holds_replacement(about),
    |_, about| waits_for_adoption(about),
    |_, about| has_failed(about),
    |_, about| is_worked_on(about),
    |_, about| is_refused(about),
    |_, about| is_removed(about),
    |machine, about| machine.is_behind(about),
    |_, about| reasons::shown(about.service),
    |machine, about| machine.has_not_looked(about),
];

impl Machine {
    /// Explains a Service.
    pub(crate) fn explain(&self, name: &str, service: Option<&Service>, now: At) -> Explanation {
        let Some(service) = service else { return no_service(name) };
        let entry = self.balancers.get(name).filter(|entry| *entry.uid() == *service.uid);
        let about = About { service, entry, inputs: self.inputs(), now };
        let cause = CAUSES.iter().find_map(|cause| cause(self, about));
        let mut explanation = cause.unwrap_or_else(|| {
            let cause = "service-ccm has not written a condition to it yet";
            Explanation::new(Fares::Working, cause, WAIT)
        });
        explanation.wanted = self.asks_for(service);
        explanation.there = there(about);
        explanation.last = entry.map(|entry| last(entry, now)).unwrap_or_default();
        explanation.next = self.next_time(about);
        explanation
    }

    /// Explains a load balancer by its ID.
    pub(crate) fn explain_load_balancer(&self, id: &str, now: At) -> Explanation {
        let of_service = |(_, entry): &(_, &Entry)| entry.state().id() == Some(id);
        if let Some((name, _)) = self.balancers.all().find(of_service) {
            let cause = format!("it is the load balancer of Service {name}");
            let mend = format!("{NOTHING} here; /explain?kind=Service&name={name} says how it is");
            return Explanation::new(Fares::Fine, cause, mend);
        }
        let Some(orphan) = self.orphans.get(id) else {
            let cause = format!("no list has shown a load balancer {id:?} of this cluster");
            let mend = "check the ID; load balancers of other clusters are not looked at";
            return Explanation::new(Fares::Unknown, cause, mend);
        };
        let owner = &orphan.owner;
        let cause = format!(
            "it has no Service: its owner is Service {}/{} with UID {}; {}",
            owner.namespace,
            owner.name,
            owner.uid,
            orphan.age_and_cost()
        );
        let mend = "with --orphaned-load-balancers=delete service-ccm deletes it after --orphan-confirmation-period; or delete it in the cloud";
        let (first, last) = orphan.seen();
        let seen =
            |what: &str, at| format!("the {what} list that has shown it came {}", moment(at, now));
        Explanation {
            there: vec![seen("first", first), seen("last", last)],
            next: "with each list of the cloud's load balancers".to_owned(),
            ..Explanation::new(Fares::Held, cause, mend)
        }
    }

    fn does_not_serve(&self, about: About<'_>) -> Option<Explanation> {
        let (service, entry) = (about.service, about.entry);
        if self.parameters.classes.cover(service) || !service.is_load_balancer || service.deleting {
            return None;
        }
        let why = not_served(service);
        let option = match class(service) {
            Some(class) => {
                format!("add {class} to --load-balancer-classes, or ask its own controller")
            }
            None => "set --serve-classless-services=true, or a class of --load-balancer-classes"
                .to_owned(),
        };
        if entry.is_some_and(Entry::is_release_held) {
            let cause = format!("{why}, and its load balancer stays until somebody releases it");
            let mend =
                format!("{option}; or let it be deleted: {}", approve(service, RELEASE_APPROVED));
            return Some(Explanation::new(Fares::Held, cause, mend));
        }
        Some(Explanation::new(Fares::Foreign, why, option))
    }

    fn has_no_offer(&self, _: About<'_>) -> Option<Explanation> {
        let error = self.offer.as_ref().err().filter(|_| self.leads)?;
        let cause = format!("the provider offers no load balancers now: {error}");
        Some(Explanation::new(reasons::fares(Reason::of(error)), cause, mend(error)))
    }

    /// A mistake in the Service itself.
    fn is_wrong(&self, about: About<'_>) -> Option<Explanation> {
        let service = about.service;
        // What is right depends on the provider's traits.
        if !service.is_load_balancer || service.deleting || self.offer.is_err() {
            return None;
        }
        let desired = desired(service, &self.cluster, &self.traits);
        let fatal: Vec<&Problem> = desired.problems.iter().filter(|one| one.fatal).collect();
        let mend = "change what the cause names in the Service; the load balancer stays as it is until then";
        (!fatal.is_empty()).then(|| Explanation::new(Fares::Blocked, in_words(&fatal), mend))
    }

    fn holds_replacement(&self, about: About<'_>) -> Option<Explanation> {
        about.entry.filter(|entry| entry.is_replacement_held())?;
        let cause = self.losses.in_words(&about.service.uid);
        let mend = reasons::mend_of(Reason::ReplacementHeld, about.service);
        Some(Explanation::new(Fares::Held, cause, mend))
    }

    /// The Service has changed since, or has no load balancer yet.
    fn is_behind(&self, about: About<'_>) -> Option<Explanation> {
        let (service, state) = (about.service, about.entry?.state());
        let front_end = desired(service, &self.cluster, &self.traits).front_end;
        let digest = front_end.map(|front_end| front_end.digest);
        let has_address = service.details.as_ref().is_some_and(|it| !it.ingress.is_empty());
        let cause = match &state.known {
            Known::Absent => "it has no load balancer yet, or the cloud does not show it any more",
            Known::There(_) if state.configured != digest => {
                "service-ccm has not seen yet that the load balancer is as the Service asks"
            }
            _ if !has_address && !self.is_observing => "it does not show an address yet",
            _ => return None,
        };
        // The condition may know more.
        let wrong = reasons::wrong(service);
        Some(wrong.unwrap_or_else(|| Explanation::new(Fares::Working, cause, WAIT)))
    }

    /// Nothing is known of its load balancer.
    fn has_not_looked(&self, about: About<'_>) -> Option<Explanation> {
        let is_known = about.entry.is_some_and(|entry| entry.state().known != Known::Nothing);
        if is_known {
            return None;
        }
        let (cause, mend) = match self.leads {
            true => ("this process has not seen yet what the cloud has", "wait for the first list"),
            false => ("this replica does not lead, and asks the cloud nothing", "ask the leader"),
        };
        Some(Explanation::new(Fares::Working, cause, mend))
    }

    fn asks_for(&self, service: &Service) -> Vec<String> {
        let Some(details) = &service.details else { return Vec::new() };
        if !service.is_load_balancer || service.deleting {
            return vec!["no load balancer".to_owned()];
        }
        let ports: Vec<String> = details.ports.iter().map(port).collect();
        let mut lines = vec![format!("a load balancer with {}", ports.join(", "))];
        if let Some(address) = &details.load_balancer_ip {
            lines.push(format!("with the address {address}"));
        }
        if self.leads {
            lines.push(format!("nodes: {}", self.nodes.set().summary()));
        }
        lines
    }

    fn next_time(&self, about: About<'_>) -> String {
        let state = about.entry.map(Entry::state);
        let failed = state.iter().flat_map(|state| &state.failed);
        let tries = failed.map(|failed| (failed.due(about.inputs), "the call is made again"));
        let pending = state.and_then(|state| state.pending.as_ref());
        let looks =
            pending.map(|pending| (pending.check_at, "service-ccm looks at the cloud's work"));
        match tries.chain(looks).min() {
            Some((at, what)) => format!("{what} {}", moment(at, about.now)),
            None if !self.leads => "when this replica leads".to_owned(),
            None => "when the Service, the nodes, the settings or the cloud's list change; a full look comes within half an hour".to_owned(),
        }
    }
}

fn no_service(name: &str) -> Explanation {
    let cause = format!("the API server has shown no Service {name:?}");
    let mend = match name.contains('/') {
        true => {
            "check the name; a load balancer that is left is explained by kind=LoadBalancer&name=ID"
        }
        false => "a Service is NAMESPACE/NAME",
    };
    Explanation::new(Fares::Unknown, cause, mend)
}

/// A Service that asks for no load balancer, and has none that is to be removed.
fn asks_for_none(about: About<'_>) -> Option<Explanation> {
    let service = about.service;
    if service.has_finalizer || service.is_load_balancer && !service.deleting {
        return None;
    }
    Some(match service.deleting {
        true => Explanation::new(
            Fares::Foreign,
            "it is being deleted, and does not have service-ccm's finalizer any more",
            "if it stays, another controller has to remove its own finalizer: see metadata.finalizers",
        ),
        false => Explanation::new(
            Fares::Foreign,
            "its type is not LoadBalancer",
            "set spec.type to LoadBalancer if it should have one",
        ),
    })
}

/// Its load balancer should go, and then the finalizer.
fn is_removed(about: About<'_>) -> Option<Explanation> {
    let service = about.service;
    if !service.has_finalizer || service.is_load_balancer && !service.deleting {
        return None;
    }
    let cause = "its load balancer has to be deleted first, then service-ccm removes the finalizer";
    Some(reasons::wrong(service).unwrap_or_else(|| Explanation::new(Fares::Working, cause, WAIT)))
}

fn is_full(about: About<'_>) -> Option<Explanation> {
    about.entry.filter(|entry| entry.waits())?;
    let cause =
        "its namespace has as many load balancers as --max-load-balancers-per-namespace allows";
    let mend =
        "delete another Service of the namespace, or raise --max-load-balancers-per-namespace";
    Some(Explanation::new(Fares::Blocked, cause, mend))
}

fn waits_for_adoption(about: About<'_>) -> Option<Explanation> {
    let (id, why) = about.entry?.state().adoptable.as_ref()?;
    let named = about.service.annotation(ADOPT) == Some(id);
    let cause = format!("load balancer {id} was made by another controller: {why}");
    let command = annotate(about.service, ADOPT, id);
    let mend = format!("look at what would change (decided), then: {command}");
    (!named).then(|| Explanation::new(Fares::Blocked, cause, mend))
}

/// The last error of the cloud, if a call has failed and was not made with success since.
fn has_failed(about: About<'_>) -> Option<Explanation> {
    let failed = about.entry?.state().failed.iter().max_by_key(|failed| failed.retry_at)?;
    let fares = match failed.may_pass() {
        true => Fares::Working,
        false => reasons::fares(Reason::of(&failed.error)),
    };
    let cause = format!("{} has failed {}: {}", call(failed.call), times(failed), failed.error);
    Some(Explanation::new(fares, cause, mend(&failed.error)))
}

fn is_worked_on(about: About<'_>) -> Option<Explanation> {
    let entry = about.entry?;
    if let Some(pending) = &entry.state().pending {
        let since = moment(pending.since, about.now);
        let cause = format!("the cloud works on it: {} (begun {since})", pending.what);
        return Some(Explanation::new(Fares::Working, cause, WAIT));
    }
    let asked = entry.all_asked().min_by_key(|asked| asked.began)?;
    let since = moment(asked.began, about.now);
    let cause = format!("{} is under way (begun {since})", call(asked.call));
    Some(Explanation::new(Fares::Working, cause, WAIT))
}

/// Members that are held, addresses that the Service does not show, and who else is responsible.
fn is_refused(about: About<'_>) -> Option<Explanation> {
    let entry = about.entry?;
    if let Known::Elsewhere(who) = &entry.state().known {
        let mend = "ask that controller; service-ccm leaves the Service to it";
        return Some(Explanation::new(Fares::Foreign, who, mend));
    }
    if let Some(foreign) = &entry.state().foreign {
        let cause = format!("it is on load balancer {}: {}", foreign.id, foreign.whose);
        let mend = "remove the annotation that names it, if the Service should have its own";
        return Some(Explanation::new(Fares::Foreign, cause, mend));
    }
    if let Some(refused) = entry.refused.first() {
        let mend = "if it is right, allow it by --load-balancer-allowed-addresses; otherwise ask the provider";
        return Some(Explanation::new(Fares::Blocked, refused.why.clone(), mend));
    }
    (entry.held() > 0).then(|| {
        let (held, all) = (entry.held(), entry.membership.len());
        let cause = format!("members that are held: {held} of {all}; their nodes are gone or changed, and too many at once");
        let mend = reasons::mend_of(Reason::MembersHeld, about.service);
        Explanation::new(Fares::Held, cause, mend)
    })
}

/// What was seen last: the load balancer, and what the Service shows.
fn there(about: About<'_>) -> Vec<String> {
    let (service, now) = (about.service, about.now);
    let mut lines: Vec<String> = about.entry.into_iter().flat_map(|one| seen(one, now)).collect();
    if service.has_finalizer {
        lines.push(format!("the Service has the finalizer {}", service_keys::CLEANUP));
    }
    let conditions = service.details.iter().flat_map(|details| &details.conditions);
    lines.extend(conditions.map(|one| {
        let since = one.last_transition_time.map(|at| moment(At::from(at), now));
        let since = since.map(|since| format!(" ({since})")).unwrap_or_default();
        format!("{}={} {}: {}{since}", one.kind, one.status, one.reason, one.message)
    }));
    lines
}

/// What was seen of its load balancer.
fn seen(entry: &Entry, now: At) -> Vec<String> {
    let mut lines = vec![match &entry.state().known {
        Known::Nothing => "nothing was seen of a load balancer yet".to_owned(),
        Known::Absent => "no load balancer".to_owned(),
        Known::There(balancer) => balancer_in_words(balancer),
        Known::Recorded { id } => format!("load balancer {id}, by the Service alone"),
        Known::Elsewhere(who) => format!("another controller is responsible: {who}"),
    }];
    if entry.membership.is_known() {
        lines.push(format!("members: {}, held: {}", entry.membership.len(), entry.held()));
    }
    lines.extend(entry.read.map(|at| format!("read in full {}", moment(at, now))));
    lines
}

fn balancer_in_words(balancer: &LoadBalancer) -> String {
    let phase = match &balancer.phase {
        Phase::Ready => "ready".to_owned(),
        Phase::Pending(waiting) => format!("the cloud works: {}", waiting.what),
        Phase::Failed { why, .. } => format!("failed: {why}"),
    };
    let addresses: Vec<String> = balancer.ingress.iter().map(|one| address(&one.address)).collect();
    let addresses =
        if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    format!("load balancer {} ({}), {phase}, {addresses}", balancer.id, balancer.name)
}

fn address(address: &IngressAddress) -> String {
    match address {
        IngressAddress::Ip(ip) => ip.to_string(),
        IngressAddress::Hostname(name) => name.clone(),
    }
}

/// The calls that failed, and the last answer.
fn last(entry: &Entry, now: At) -> Vec<String> {
    let failed = entry.state().failed.iter();
    let failed =
        failed.map(|one| format!("{} failed {}: {}", call(one.call), times(one), one.error));
    let answered = (entry.answered > At::default())
        .then(|| format!("the cloud answered a call about it {}", moment(entry.answered, now)));
    failed.chain(answered).collect()
}

fn times(failed: &Failed) -> String {
    if failed.times == 1 { "once".to_owned() } else { format!("{} times", failed.times) }
}

/// A call in words.
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
