//! Calls to the cloud, and its answers.

use ccm_cloud::{
    AbsenceProof, AddressKind, ErrorKind, Instance, Lookup, LookupResult, NodeAddress, ProofMethod,
    ProviderId, RouteTraits,
};

use super::*;
use crate::routes::machine::{Applied, Sending};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How late the cloud carries out a change.
pub(super) const LATE: Duration = Duration::from_secs(45);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Apply,
    List,
    Find,
    LookUp,
}

/// The faults of the cloud and of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Fails(ErrorKind),
    Hangs,
    Slow(Duration),
    /// A list shows no route, only so many, or the previous routes.
    ShowsNothing,
    ShowsSome(usize),
    ShowsOld,
    /// An entry of a list cannot be read.
    Malformed,
    /// It is done, but the answer is lost.
    LosesAnswer,
    /// It is done later. The answer says so, or is an error.
    IsLate,
    /// The route carries no traffic until it is made again.
    Breaks,
}

/// A fault of the calls of an operation, or of the changes of one node or destination.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) trouble: Trouble,
    pub(super) on: Operation,
    pub(super) one: Option<(Name, IpNet)>,
    pub(super) until: At,
}

fn error(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "the cloud says no")
}

pub(super) fn gone(target: &RouteTarget) -> TargetState {
    let evidence = format!("no instance or port {target}");
    TargetState::Gone(AbsenceProof {
        method: ProofMethod::ById,
        evidence,
        request_id: None,
        kept: None,
    })
}

fn names(change: &RouteChange, one: &(Name, IpNet)) -> bool {
    let owner = match change {
        RouteChange::Create(new) | RouteChange::Replace { new, .. } => Some(&new.owner),
        RouteChange::Delete(old) => old.owner.as_ref(),
    };
    change.destination() == one.1 || owner.is_some_and(|owner| *owner.name == *one.0)
}

impl World {
    fn faults(&self, on: Operation) -> impl Iterator<Item = &Fault> {
        let now = self.now;
        self.faults.iter().filter(move |fault| fault.on == on && now < fault.until)
    }

    /// Returns the fault of all calls of this operation.
    fn trouble(&self, on: Operation) -> Option<Trouble> {
        self.faults(on).find(|fault| fault.one.is_none()).map(|fault| fault.trouble)
    }

    /// Returns the fault of this change.
    fn trouble_with(&self, change: &RouteChange) -> Option<Trouble> {
        let is_its = |fault: &&Fault| fault.one.as_ref().is_none_or(|one| names(change, one));
        self.faults(Operation::Apply).find(is_its).map(|fault| fault.trouble)
    }

    /// Returns how long an answer takes.
    fn latency(&mut self, on: Operation) -> Duration {
        match self.trouble(on) {
            Some(Trouble::Slow(slow)) => slow,
            Some(Trouble::Hangs) => LIMIT,
            _ => self.moment(),
        }
    }

    /// Returns the error of all calls of this operation, if there is one.
    fn failure(&self, on: Operation) -> Option<CloudError> {
        match self.trouble(on)? {
            Trouble::Fails(kind) => Some(error(kind)),
            Trouble::Hangs => Some(error(ErrorKind::Timeout)),
            _ => None,
        }
    }

    /// Gives a call a lane.
    pub(super) fn lane(&mut self, call: Call) {
        let (event, on) = match call {
            Call::List => {
                self.rules.count_calls(self.now, IpNet::default());
                let (answer, latency) = (self.list(), self.latency(Operation::List));
                return self.later(latency, Due::Listed(answer));
            }
            Call::Ask { targets, witnesses } => (self.ask(targets, witnesses), Operation::Find),
            Call::LookUp(claims) => {
                let claims = claims.into_iter();
                let answers = claims.map(|claim| {
                    let answer = self.look_up(&claim.node);
                    (claim, answer)
                });
                (Event::LookedUp(answers.collect()), Operation::LookUp)
            }
            Call::Apply { batch, base } => {
                let event = self.sending(batch, base);
                return self.tell(event);
            }
            Call::Send { batch, base } => return self.send(batch, base),
        };
        let latency = self.latency(on);
        self.later(latency, Due::Tell(Box::new(event)));
    }

    /// Returns the traits as the program knows them.
    pub(super) fn told_traits(&self) -> RouteTraits {
        let mut traits = self.router.traits.clone();
        match self.variant {
            Variant::NoVersions => traits.compares_version = false,
            Variant::LargeBatches => traits.max_batch = 500,
            _ => {}
        }
        traits
    }

    fn list(&mut self) -> Result<RouteTable, CloudError> {
        if let Some(error) = self.failure(Operation::List) {
            return Err(error);
        }
        let mut table = self.router.table();
        match self.trouble(Operation::List) {
            Some(Trouble::ShowsNothing) => table.routes.clear(),
            Some(Trouble::ShowsSome(count)) => table.routes.truncate(count),
            Some(Trouble::ShowsOld) => {
                let old = self.old_table.clone();
                let is_in = |one: &ccm_cloud::Route, table: &RouteTable| table.routes.contains(one);
                let new = table.routes.iter().filter(|one| !is_in(one, &old));
                let differs = new.chain(old.routes.iter().filter(|one| !is_in(one, &table)));
                let differs = differs.map(|one| (one.destination, self.now));
                self.rules.touched.extend(differs);
                table = old;
            }
            _ => {}
        }
        for (_, destination) in self.faults(Operation::List).filter_map(|fault| fault.one.as_ref())
        {
            table.routes.retain(|one| one.destination != *destination);
        }
        self.listed = self.now;
        Ok(self.seen_table(table))
    }

    /// Answers if targets exist. The cloud denies everything only while the program can find that out.
    fn ask(&mut self, targets: Vec<RouteTarget>, mut witnesses: Vec<RouteTarget>) -> Event {
        let failure = self.failure(Operation::Find);
        let believed = self.variant == Variant::BelievedCloud;
        if believed {
            witnesses.clear();
        }
        let found = witnesses.iter().any(|one| self.router.exists(one));
        let denies = self.now < self.denies_until && (found || believed);
        let (mut answers, has_witness) = (Vec::new(), found || witnesses.is_empty());
        for target in targets.into_iter().chain(witnesses.iter().cloned()) {
            let exists = self.router.exists(&target) && !denies;
            if failure.is_none() && !denies && has_witness {
                self.rules.answered(self.now, &target, !exists, found);
            }
            let state = if exists { TargetState::Exists } else { gone(&target) };
            let answer = failure.clone().map_or(Ok(state), Err);
            let answer = self.seen_state(&target, answer);
            answers.push((target, answer));
        }
        Event::Asked { answers, witnesses }
    }

    fn look_up(&self, node: &Node) -> LookupResult {
        if let Some(error) = self.failure(Operation::LookUp) {
            return Err(error);
        }
        let Ok(found) = self.router.machine_of(node) else {
            return Err(error(ErrorKind::Conflict));
        };
        let Some((id, computer)) = found else {
            let evidence = "no such instance".to_owned();
            let method = ProofMethod::ById;
            return Ok(Lookup::Gone(AbsenceProof {
                method,
                evidence,
                request_id: None,
                kept: None,
            }));
        };
        let id = ProviderId::parse(id).map_err(|_| error(ErrorKind::Malformed))?;
        let mut instance = Instance::new(id, computer.name.clone());
        let address =
            |ip: &std::net::IpAddr| NodeAddress::new(AddressKind::InternalIp, ip.to_string());
        instance.addresses = computer.ips.iter().map(address).collect();
        Ok(Lookup::Found(Box::new(instance)))
    }

    fn sending(&mut self, batch: Vec<Planned>, base: Option<String>) -> Event {
        let loses = batch.iter().any(|planned| planned.old().is_some());
        let is_named = |view: &&NodeView| {
            loses || batch.iter().any(|planned| planned.node.as_ref() == Some(&view.node.name))
        };
        let nodes = self.store.values().filter(is_named).cloned();
        let nodes = nodes.chain(self.phantom()).collect();
        let pass = Pass { nodes, ..self.look() };
        Event::Sending(Box::new(Sending { batch, base, pass }))
    }

    /// Sends a call.
    pub(super) fn send(&mut self, batch: Vec<Planned>, base: Option<String>) {
        self.check_call(&batch, base.as_deref());
        let asked: Vec<_> = batch.iter().map(|planned| self.asked_for(&planned.change)).collect();
        for change in asked.iter().flatten() {
            self.check_change(change);
        }
        if self.variant == Variant::NoAnswer {
            for planned in &batch {
                let answer = Err(error(ErrorKind::Unavailable));
                self.later(Duration::ZERO, Due::Answer(Box::new(planned.clone()), answer));
            }
            self.later(Duration::ZERO, Due::Tell(Box::new(Event::Ended)));
        }
        let latency = self.latency(Operation::Apply);
        self.later(latency, Due::Reach { batch, asked, base });
    }

    /// Lets a call reach the cloud. Its answers are on their way.
    pub(super) fn reach(
        &mut self,
        batch: Vec<Planned>,
        asked: &[Vec<RouteChange>],
        base: Option<&str>,
    ) {
        let is_old = base.is_some_and(|base| base != self.router.version.to_string());
        let all = match self.trouble(Operation::Apply) {
            Some(Trouble::Fails(kind)) => Some(error(kind)),
            Some(Trouble::Hangs) => Some(error(ErrorKind::Timeout).that_may_be_done()),
            _ => is_old.then(|| error(ErrorKind::Busy)),
        };
        let mut answers = Vec::new();
        for (planned, asked) in batch.iter().zip(asked) {
            // A destination may have two changes, of which the last answer counts.
            let mut answer = Ok(AppliedChange::default());
            for change in asked {
                answer = all.clone().map_or_else(|| self.made(change), Err);
                answer = self.seen_answer(change, answer);
            }
            answers.push((planned.clone(), answer));
        }
        if self.variant == Variant::NoAnswer {
            for planned in &batch {
                self.is_over(planned);
            }
            return;
        }
        let mut last = Duration::ZERO;
        for (planned, mut answer) in answers {
            if let Ok(applied) = &mut answer {
                applied.version = self.router.shown_version();
            }
            let hangs = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout);
            let latency = if hangs { LIMIT } else { self.moment() };
            last = last.max(latency);
            self.later(latency, Due::Answer(Box::new(planned), answer));
        }
        self.later(last, Due::Tell(Box::new(Event::Ended)));
    }

    /// Makes a change as the cloud does, unless something goes wrong.
    fn made(&mut self, change: &RouteChange) -> Result<AppliedChange, CloudError> {
        match self.trouble_with(change) {
            Some(Trouble::Fails(kind)) => Err(error(kind)),
            Some(Trouble::Hangs) => Err(error(ErrorKind::Timeout).that_may_be_done()),
            Some(Trouble::LosesAnswer) => {
                self.carry_out(change, false)?;
                Err(error(ErrorKind::Unavailable).that_may_be_done())
            }
            Some(Trouble::IsLate) => {
                self.later(LATE, Due::Late(change.clone()));
                let says_so = self.number.is_multiple_of(2);
                let kind = if says_so { ErrorKind::Pending } else { ErrorKind::Unavailable };
                Err(error(kind).that_may_be_done())
            }
            trouble => self.carry_out(change, trouble == Some(Trouble::Breaks)),
        }
    }

    /// Makes a change as the cloud does.
    pub(super) fn carry_out(
        &mut self,
        change: &RouteChange,
        breaks: bool,
    ) -> Result<AppliedChange, CloudError> {
        let done = self.router.change(change, breaks, self.now)?;
        if let Some(gone) = &done.gone {
            self.check_loss(change.destination(), gone);
        }
        Ok(AppliedChange { route: done.route, version: None })
    }

    fn is_over(&mut self, planned: &Planned) {
        if let Some(calls) = self.rules.in_flight.get_mut(&planned.change.destination()) {
            *calls = calls.saturating_sub(1);
        }
    }

    /// Lets the answer about a change arrive.
    pub(super) fn answer(&mut self, planned: Planned, answer: Result<AppliedChange, CloudError>) {
        if self.variant != Variant::NoAnswer {
            self.is_over(&planned);
        }
        if self.variant == Variant::LostAnswers {
            return;
        }
        let node = planned.node.as_ref().and_then(|name| self.store.get(name).cloned());
        let replaces = self.router.traits.replaces;
        let applied = Applied { planned, answer, node, replaces };
        self.tell(Event::Applied(Box::new(applied)));
    }
}
