//! A Service is due: decides what is done next for it.

use std::{mem, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_controller::queue::{Pace, Priority};
use ccm_objects::{Service, Shared as Name};

use super::{
    Machine, RETRY,
    effect::{Effect, Lane, PlanPage, Task, Tell, Turn, Write},
    event::Due,
    last_plan::LastPlan,
    page,
    planned::Planned,
};
use crate::plan::{
    CallKind, Plan, RELEASE_APPROVED, Step,
    evidence::INSTANCE,
    not_offered, protection,
    reason::{PROVISIONING, Reason},
    repeated::that_may_be_written,
    status::{DIGEST, ID, StatusPatch},
};

/// The pause before service-ccm again plans a Service whose old load balancer it deletes as an
/// orphan.
const AFTER_ORPHAN: Duration = Duration::from_secs(1);
/// The pause before a Service is planned that the informer is reading again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How often held members are checked again.
const HELD: Duration = Duration::from_secs(30);

impl Machine {
    /// Decides what is done next for a Service: at most one write or one call, which comes last.
    pub(super) fn due(&mut self, due: &Due, now: At) -> Vec<Effect> {
        let Some(service) = &due.service else { return self.forget(&due.name) };
        if let Some(effect) = self.redirect(due.lane, service) {
            return vec![effect];
        }
        let offer = match &self.offer {
            Ok(offer) => Arc::clone(offer),
            Err(error) => return self.without_offer(due.lane, service, error.clone(), now),
        };
        let is_news = self.learn(&service.key);
        // Settings, the provider or the labels of nodes may have changed since the translator looked.
        let is_old = due.changes != self.changes || self.lacks_labels(&due.selector);
        if is_news || is_old || !due.is_read {
            let turn = Turn::After(READ_AGAIN, Priority::Routine);
            return vec![Effect::queue(due.lane, service, turn)];
        }
        let mut effects = Vec::new();
        loop {
            let planned = self.plan(due, service, &offer, (now, &mut effects));
            if planned.members.changes || planned.is_replaced {
                // The next leader does not get a new budget.
                effects.push(self.change_note());
            }
            effects.extend(planned.reads_members.then_some(Effect::Wake(Task::Audit)));
            self.show(service, &planned, &mut effects);
            effects.extend(self.repaired(service, &planned.last_plan));
            let Plan::Next(step) = &planned.plan else {
                if self.balancers.entry(service).ends_wait(now) {
                    continue;
                }
                self.rest(due.lane, service, &planned, (now, &mut effects));
                return effects;
            };
            self.next(due, service, step, &planned, (now, &mut effects));
            return effects;
        }
    }

    /// Passes a Service on to the queue that should serve it, or delays it while service-ccm deletes its old
    /// load balancer as an orphan.
    fn redirect(&self, lane: Lane, service: &Service) -> Option<Effect> {
        let right = match self.balancers.get(&service.key).and_then(|entry| entry.slow) {
            Some(_) => Lane::Slow,
            None => Lane::Normal,
        };
        if right != lane {
            return Some(Effect::queue(right, service, Turn::Now(Priority::Urgent)));
        }
        let is_called = self.orphans.is_called(&service.uid);
        let turn = Turn::After(AFTER_ORPHAN, Priority::Routine);
        is_called.then(|| Effect::queue(lane, service, turn))
    }

    /// Handles a provider that does not offer load balancers, or of which this is not known. The
    /// Service is looked at again later. If it is served, its condition says so.
    fn without_offer(
        &mut self,
        lane: Lane,
        service: &Arc<Service>,
        error: CloudError,
        now: At,
    ) -> Vec<Effect> {
        let class = error.class();
        let mut effects = vec![Effect::queue(lane, service, Turn::Failed(class))];
        if error.kind != ErrorKind::Unsupported || self.is_observing {
            return effects;
        }
        let state = &self.balancers.entry(service).state;
        let (written, classes) = (state.condition_written, &self.parameters.classes);
        let change = not_offered(service, classes, &error.message, written, now);
        let Some(change) = change else { return effects };
        let change = that_may_be_written(&state.repeats, now, change);
        let wants = service.is_load_balancer && !service.deleting;
        let call = if wants { CallKind::Ensure } else { CallKind::Delete };
        let (members, pace) = (Box::default(), Pace::after_error(class, RETRY));
        effects.push(tell(service, Tell::Failed { call, members, error, pace }));
        if !change.is_empty() {
            effects.push(self.write(lane, service, Step::Write(change)));
        }
        effects
    }

    /// Publishes the plan of a Service, what is wrong with the Service, and what is held.
    fn show(&self, service: &Arc<Service>, planned: &Planned, effects: &mut Vec<Effect>) {
        let state = self.balancers.get(&service.key).map(|entry| &entry.state);
        let steps = state.map(|state| page::steps(planned, state)).unwrap_or_default();
        let shown = match page::blocked(service, planned) {
            Some(why) if steps.is_empty() => PlanPage::Blocked(Arc::clone(service), why),
            _ => PlanPage::Service(Arc::clone(service), steps),
        };
        effects.push(Effect::Show(shown));
        let last = &planned.last_plan;
        let mut say = |what: Option<Tell>| effects.extend(what.map(|what| tell(service, what)));
        say(last.held_release.clone().map(Tell::ReleaseHeld));
        say(planned.full.clone().map(Tell::Full));
        say(last.held_replacement.clone().map(|(why, _)| Tell::ReplacementHeld(why)));
        let is_served = service.is_load_balancer && planned.plan != Plan::NotOurs;
        let problems = Some(&planned.problems).filter(|all| is_served && !all.is_empty());
        say(problems.cloned().map(Tell::Problems));
        say(planned.trouble.clone().map(Tell::Trouble));
        let refused = Some(&last.refused).filter(|all| !all.is_empty());
        say(refused.cloned().map(Tell::Refused));
    }

    /// Reports the end of a creation or a change that had failed, once the load balancer is good.
    fn repaired(&mut self, service: &Arc<Service>, last: &LastPlan) -> Option<Effect> {
        let is_good = last.condition(PROVISIONING).is_some_and(|(reason, _)| {
            matches!(reason, Reason::Provisioned | Reason::PartlyProvisioned)
        });
        let entry = self.balancers.entry(service);
        let has_ended = is_good && entry.asked.is_empty() && mem::take(&mut entry.is_announced);
        has_ended.then(|| tell(service, Tell::Ensured))
    }

    /// Makes the next step.
    fn next(
        &mut self,
        due: &Due,
        service: &Arc<Service>,
        step: &Step,
        planned: &Planned,
        (now, effects): (At, &mut Vec<Effect>),
    ) {
        let step = match self.is_observing {
            true => self.observed(service, step),
            false => Some(step.clone()),
        };
        let Some(step) = step else {
            return effects.push(Effect::queue(due.lane, service, Turn::Well));
        };
        match step {
            Step::Protect | Step::Release | Step::Write(_) => {
                effects.push(self.write(due.lane, service, step));
            }
            _ if !due.may_call => {
                effects.push(Effect::queue(due.lane, service, Turn::Now(Priority::Urgent)));
            }
            step => effects.extend(self.ask(due.lane, service, step, planned, now)),
        }
    }

    /// Returns what an observer does instead of this step.
    fn observed(&self, service: &Service, step: &Step) -> Option<Step> {
        let front_end = match step {
            Step::Preview(front_end) => return Some(Step::Preview(Arc::clone(front_end))),
            Step::Ensure(front_end) => front_end,
            _ => return None,
        };
        let entry = self.balancers.get(&service.key);
        let is_known = entry.is_some_and(|entry| entry.state.is_previewed(front_end));
        (!is_known).then(|| Step::Preview(Arc::clone(front_end)))
    }

    /// Records that nothing is due now.
    fn rest(
        &mut self,
        lane: Lane,
        service: &Arc<Service>,
        planned: &Planned,
        (now, effects): (At, &mut Vec<Effect>),
    ) {
        let Planned { plan, members, inputs, last_plan, .. } = planned;
        if !members.held.is_empty() {
            effects.push(tell(service, Tell::Held(Box::new(members.clone()))));
        }
        let held = (!members.held.is_empty()).then(|| now + HELD);
        let held_until = last_plan.held_replacement.as_ref().map(|(_, until)| *until);
        let look = self.balancers.entry(service).state.next_look(*inputs, now);
        let (claim, report) = self.unclaimed(service, last_plan.unclaimed.as_ref(), now);
        // The queue keeps only the earliest time for each Service. The others follow from here.
        let due = held.into_iter().chain(look).chain(held_until).chain(claim).min();
        if let Some(due) = due {
            let turn = Turn::After(due.since(now), Priority::Routine);
            effects.push(Effect::queue(lane, service, turn));
        }
        if matches!(plan, Plan::Settled | Plan::NotOurs) {
            effects.push(Effect::queue(lane, service, Turn::Well));
        }
        let is_there = self.balancers.entry(service).state.balancer().is_some();
        // service-ccm deletes this load balancer when the other controller has made its own.
        let is_moving = service.annotation(ID).is_none() && is_there;
        if *plan == Plan::NotOurs && !is_moving {
            self.balancers.forget(&service.key);
        }
        effects.extend(report);
    }

    /// Reports a finalizer that no known controller removes, once it has stayed for long enough. Returns when
    /// that is.
    fn unclaimed(
        &mut self,
        service: &Arc<Service>,
        why: Option<&String>,
        now: At,
    ) -> (Option<At>, Option<Effect>) {
        let Some(why) = why else {
            self.unclaimed.forget(&service.key);
            return (None, None);
        };
        let due = self.unclaimed.seen(service, now);
        match now < due {
            true => (Some(due), None),
            false => (None, Some(tell(service, Tell::Unclaimed(why.clone())))),
        }
    }

    /// Forgets a Service that does not exist any more.
    pub(super) fn forget(&mut self, name: &Name) -> Vec<Effect> {
        self.balancers.remove(name);
        self.unclaimed.forget(name);
        let gone = |lane| Effect::Queue(Name::clone(name), lane, Turn::Gone);
        vec![
            Effect::ForgetReports(Name::clone(name)),
            Effect::Show(PlanPage::NoService(Name::clone(name))),
            gone(Lane::Normal),
            gone(Lane::Slow),
        ]
    }

    /// Returns what a release removes from the Service: everything that this program wrote. A Service that is being
    /// deleted only loses the finalizer.
    fn release(&self, service: &Service) -> StatusPatch {
        let mut release = StatusPatch::default();
        let Some(details) = service.details.as_deref().filter(|_| !service.deleting) else {
            return release;
        };
        let traits = self.traits();
        let entry = self.balancers.get(&service.key);
        let written = entry.map(|entry| &*entry.annotations).unwrap_or_default();
        let shown = entry.map(|entry| &*entry.shown).unwrap_or_default();
        let is_removed = |key: &&Name| {
            let is_own = [ID, DIGEST, INSTANCE, RELEASE_APPROVED].contains(&&***key);
            is_own || self.parameters.shown.is_removed(key, &traits, written)
        };
        let removed = details.annotations.keys().filter(is_removed);
        release.annotations = removed.map(|key| (key.to_string(), None)).collect();
        // The controller of the Service's class may have written these addresses.
        let is_ours = |one| !service.is_load_balancer || shown.contains(one);
        release.ingress = details.ingress.iter().any(is_ours).then(Vec::new);
        release
    }

    /// Returns the effect of a write to a Service.
    fn write(&self, lane: Lane, service: &Arc<Service>, step: Step) -> Effect {
        let change = match &step {
            Step::Protect => protection(service, &self.parameters.classes),
            Step::Write(change) => change.clone(),
            _ => self.release(service),
        };
        let service = Arc::clone(service);
        Effect::Write(Box::new(Write { lane, service, step, change }))
    }
}

/// Returns the effect of a report about a Service.
pub(super) fn tell(service: &Arc<Service>, what: Tell) -> Effect {
    Effect::Tell(Arc::clone(service), what)
}
