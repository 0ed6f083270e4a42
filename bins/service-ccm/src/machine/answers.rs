//! The cloud answers calls: what follows for the Service and for others.

use std::{mem, ops::Range, sync::Arc, time::Duration};

use ccm_base::{At, Backoff, RetryClass};
use ccm_cloud::{
    AbsenceProof, CloudError, ErrorKind, LoadBalancer, Loss, MembersSet, Phase, Progress, Waiting,
};
use ccm_controller::{
    queue::{LONG_RETRY, Pace, Priority},
    repeats::Repeated,
};
use ccm_objects::{Service, Shared as Name};

use super::{
    Machine, RETRY,
    due::tell,
    effect::{Count, Effect, Ended, Lane, LogLevel, Task, Tell, Turn},
    entry::Asked,
    event::{Answered, CallAnswer},
};
use crate::plan::{
    CallKind, Known,
    front_end::owner,
    of_adoption, of_name,
    repeated::{self, UNLISTED},
    shown_id,
    status::{ID, has_address},
};

/// The share of a wait after a failure that is random, so that calls that failed together do not
/// come back together.
const SPREAD: Range<f64> = 0.8..1.0;
/// The minimum wait, even if the cloud asks for a shorter one.
const SHORTEST: Duration = Duration::from_secs(1);
/// The wait for the next call about items that were not sent because other items took the time of
/// the last call.
const UNSENT: Backoff = Backoff { first: SHORTEST, longest: Duration::from_secs(10) };

/// The load balancer after an answer that has carried something out.
type Apply<T> = fn(&mut Machine, &Asked, T, At) -> Vec<Effect>;

impl Machine {
    /// Handles the cloud's answer to a call. The Service is due again.
    pub(super) fn record_answer(&mut self, answered: Answered, now: At) -> Vec<Effect> {
        let Answered { lane, name, uid, answer } = answered;
        let Some(call) = answer.call() else { return self.previewed(lane, &name, &uid, answer) };
        let ended = Effect::Count(Count::Ended(call, answer.ended()));
        let entry = self.balancers.with_uid(&name, &uid);
        let asked = entry.and_then(|entry| entry.asked.remove(&lane));
        let look = Effect::Look(lane, Name::clone(&name));
        // A Service that is gone is not remembered.
        let Some(asked) = asked else { return vec![ended, look] };
        let mut effects = vec![ended];
        effects.extend(match answer {
            CallAnswer::Ensure(answer) => {
                self.apply_answer(lane, &asked, *answer, Self::ensured, now)
            }
            CallAnswer::Members(answer) => {
                self.apply_answer(lane, &asked, answer, Self::members_set, now)
            }
            CallAnswer::Delete(answer) => {
                self.apply_answer(lane, &asked, answer, Self::deleted, now)
            }
            CallAnswer::Preview(..) => Vec::new(),
        });
        effects.push(look);
        effects
    }

    fn apply_answer<T>(
        &mut self,
        lane: Lane,
        asked: &Asked,
        answer: Result<Progress<T>, CloudError>,
        done: Apply<T>,
        now: At,
    ) -> Vec<Effect> {
        let service = &asked.service;
        let mut effects = Vec::new();
        let is_timeout = answer.as_ref().is_err_and(did_not_return);
        let makes_room = match &answer {
            Ok(Progress::Elsewhere(_)) => true,
            Ok(Progress::Done(_)) => asked.call == CallKind::Delete,
            _ => false,
        };
        if answer.is_ok() {
            effects.extend(self.carried_out(service, asked.call, now));
        }
        let entry = self.balancers.entry(service);
        entry.answered = now;
        (entry.is_queued, entry.state.unreadable) = (false, None);
        effects.extend(match answer {
            Ok(Progress::Done(value)) => {
                entry.done(asked.call);
                let may_be_unlisted = entry.may_be_unlisted(asked);
                let mut effects = done(self, asked, value, now);
                effects.push(Effect::queue(lane, service, Turn::Well));
                effects.extend(self.confirmed_again(asked, may_be_unlisted, now));
                effects.extend(self.report_done(asked, now));
                effects
            }
            Ok(Progress::InProgress(waiting)) => self.in_progress(asked, waiting, now),
            Ok(Progress::Elsewhere(why)) => {
                entry.elsewhere(asked, why.clone());
                vec![log(LogLevel::Info, service, format!("skipped, owned by another controller: {why}"))]
            }
            Ok(Progress::NotSeen(why)) => {
                let text = format!("reading the load balancer in full: {why}");
                entry.state.pending = None;
                entry.state.saw_nothing(why, now);
                vec![log(LogLevel::Info, service, text)]
            }
            Ok(Progress::Lost(loss)) if asked.may_replace => {
                let what = format!("the provider may replace it, but does not: {}", loss.why);
                self.apply_failure(lane, asked, CloudError::new(ErrorKind::Malformed, what), now)
            }
            Ok(Progress::Lost(loss)) => vec![self.lost(asked, loss, now)],
            Err(error) if entry.note_copied(asked, &error) => vec![log(
                LogLevel::Warn,
                service,
                format!(
                    "annotation {ID} does not belong to this Service, which gets its own load balancer: {error}"
                ),
            )],
            Err(error) => self.apply_failure(lane, asked, error, now),
        });
        self.learn(&service.key);
        if is_timeout {
            // The slower lanes do the following work: the status as well as the next call.
            let slow = self.hangs.timed_out(asked.call, asked.began);
            self.balancers.entry(service).slow = Some(slow);
        } else if lane == Lane::Slow {
            self.balancers.entry(service).slow = None;
        }
        effects.extend(makes_room.then(|| self.let_next_in(service.names().0)).flatten());
        effects
    }

    /// Records that the load balancer matches its Service.
    fn ensured(&mut self, asked: &Asked, balancer: LoadBalancer, now: At) -> Vec<Effect> {
        let (nodes, id) = (Arc::clone(&self.nodes.set), balancer.id.clone());
        let entry = self.balancers.entry(&asked.service);
        let gone = entry.ensured(asked, balancer, &nodes, now);
        gone.map(|gone| self.gone(&asked.service, gone, Some(id))).unwrap_or_default()
    }

    /// Reports once that the load balancer whose address the Service shows is gone.
    fn gone(&mut self, service: &Arc<Service>, id: String, by: Option<String>) -> Vec<Effect> {
        let told = self.balancers.entry(service).told_gone.replace(id.as_str().into());
        match told.as_deref() == Some(&*id) {
            true => Vec::new(),
            false => vec![Effect::Count(Count::Gone), tell(service, Tell::Gone { id, by })],
        }
    }

    fn members_set(&mut self, asked: &Asked, set: MembersSet, now: At) -> Vec<Effect> {
        self.balancers.entry(&asked.service).members_set(asked.sent(), set, now);
        Vec::new()
    }

    fn deleted(&mut self, asked: &Asked, proof: AbsenceProof, _: At) -> Vec<Effect> {
        let entry = self.balancers.entry(&asked.service);
        match asked.call {
            CallKind::DeleteDuplicate => entry.state.duplicate = None,
            _ => entry.deleted(),
        }
        proof.kept.map(|kept| tell(&asked.service, Tell::Kept(kept))).into_iter().collect()
    }

    /// Records a call that has ended well. If it shows only that a list lacked the load balancer, nothing has
    /// undone the last one.
    fn confirmed_again(&mut self, asked: &Asked, may_be_unlisted: bool, now: At) -> Option<Effect> {
        let Asked { service, step, members, .. } = asked;
        let state = &mut self.balancers.entry(service).state;
        if !may_be_unlisted || state.id() != service.annotation(ID) {
            return self.called(asked, now);
        }
        let repeated = repeated::unlisted(&mut state.repeats, now, step, service, members);
        Some(match repeated {
            Some(_) => tell(service, Tell::Trouble(UNLISTED.to_owned())),
            None => log(LogLevel::Warn, service, UNLISTED.to_owned()),
        })
    }

    /// Records a call that the provider has confirmed, and reports it if it does not last.
    fn called(&mut self, asked: &Asked, now: At) -> Option<Effect> {
        let Asked { service, step, members, .. } = asked;
        let repeats = &mut self.balancers.entry(service).state.repeats;
        let repeated = repeated::called(repeats, now, step, service, members)?;
        Some(tell(service, Tell::Repeated(repeated)))
    }

    fn report_done(&mut self, asked: &Asked, now: At) -> Vec<Effect> {
        let service = &asked.service;
        let what = match asked.call {
            CallKind::Ensure => return self.completed(service, now),
            CallKind::Members => {
                let members = asked.sent().map_or(0, |members| members.present.len());
                let entry = self.balancers.entry(service);
                let has_changed = mem::take(&mut entry.has_changed);
                let why_empty = entry.state.why_empty();
                if members == 0 || why_empty.is_some() {
                    Some(Tell::NoMembers(why_empty.or_else(|| asked.members.why_none.clone())))
                } else {
                    has_changed.then_some(Tell::MembersChanged)
                }
            }
            CallKind::Delete => Some(Tell::Deleted),
            CallKind::DeleteDuplicate => Some(Tell::DuplicateDeleted),
        };
        what.map(|what| tell(service, what)).into_iter().collect()
    }

    /// Reports the end of a creation or a change, the provider's remarks, and the reason of empty pools.
    pub(super) fn completed(&mut self, service: &Arc<Service>, now: At) -> Vec<Effect> {
        self.losses.end(now, &service.uid);
        let entry = self.balancers.entry(service);
        let has_failed = |one: &LoadBalancer| matches!(one.phase, Phase::Failed { .. });
        let is_good = !entry.state.balancer().is_some_and(has_failed);
        let ensured = (is_good && mem::take(&mut entry.is_announced)).then_some(Tell::Ensured);
        let notes = entry.state.balancer().map(|balancer| &balancer.notes);
        let notes = notes.filter(|notes| !notes.is_empty()).cloned().map(Tell::Notes);
        let empty = entry.state.why_empty().map(|why| Tell::NoMembers(Some(why)));
        let all = [ensured, notes, empty].into_iter().flatten();
        all.map(|what| tell(service, what)).collect()
    }

    /// Records that the cloud works on the load balancer, which is then polled.
    fn in_progress(&mut self, asked: &Asked, waiting: Waiting, now: At) -> Vec<Effect> {
        let service = &asked.service;
        let owner = owner(service, &self.cluster);
        let entry = self.balancers.entry(service);
        let (step, replaced) = entry.in_progress(asked, waiting, owner, now);
        let is_named = entry.state.id().is_some();
        let gone = replaced.map(|(id, by)| self.gone(service, id, Some(by))).unwrap_or_default();
        let called = step.and_then(|step| match is_named {
            true => self.called(asked, now),
            // Its calls already have growing pauses.
            false => {
                let kind = <&str>::from(asked.call).into();
                Some(tell(service, Tell::Repeated(Repeated { kind, ..step })))
            }
        });
        gone.into_iter().chain(called).chain([Effect::Wake(Task::Poll)]).collect()
    }

    /// Handles a load balancer that is gone or has failed although the call was not meant to
    /// replace it.
    fn lost(&mut self, asked: &Asked, loss: Loss, now: At) -> Effect {
        let service = &asked.service;
        let line = format!("only a new load balancer helps: {}", loss.why);
        self.balancers.entry(service).lost(asked.call, loss.is_gone);
        self.losses.record_answer(now, &service.uid, loss);
        log(LogLevel::Warn, service, line)
    }

    fn apply_failure(
        &mut self,
        lane: Lane,
        asked: &Asked,
        error: CloudError,
        now: At,
    ) -> Vec<Effect> {
        let (service, call, traits) = (&asked.service, asked.call, self.traits());
        let entry = self.balancers.entry(service);
        let error = match call {
            CallKind::Ensure => {
                of_name(service, &traits, entry.state.id(), of_adoption(service, error))
            }
            _ => error,
        };
        let mut effects = Vec::new();
        let is_absent = call == CallKind::Ensure && entry.state.known == Known::Absent;
        if let Some(id) = shown_id(service).filter(|_| is_absent) {
            effects.extend(self.gone(service, id.to_owned(), None));
        }
        let (pace, entry) = (pace(&error), self.balancers.entry(service));
        let (wait, may_pass) =
            entry.record_failure(asked, (error.clone(), pace), &traits, SPREAD, now);
        if call == CallKind::Members && error.kind == ErrorKind::NotFound {
            // A list, or else a full call, shows if the load balancer is gone.
            match traits.lists {
                true => effects.push(Effect::Wake(Task::Audit)),
                false => entry.state.needs_look = true,
            }
        }
        let is_unsent = error.unsent;
        if !may_pass && !is_unsent {
            let members = Box::new(asked.members.clone());
            effects.push(tell(service, Tell::Failed { call, members, error, pace }));
        }
        let priority =
            if is_unsent && !has_address(service) { Priority::Urgent } else { Priority::Routine };
        effects.push(Effect::queue(lane, service, Turn::After(wait, priority)));
        effects
    }

    /// Records that the cloud has carried out a call. If it answered no call before, the Services
    /// of the slow lanes go back to the usual ones, and their next calls are due.
    fn carried_out(&mut self, service: &Service, call: CallKind, now: At) -> Vec<Effect> {
        if !self.hangs.record_success(call, now) {
            return Vec::new();
        }
        let all = self.balancers.all_mut().filter(|(name, _)| **name != service.key);
        let back = all
            .filter_map(|(name, entry)| entry.answers_again(call, now).then(|| Name::clone(name)));
        let back: Vec<Name> = back.collect();
        let line = format!("the cloud answers again: {} Services waited for that", back.len());
        let mut effects = vec![Effect::Log(LogLevel::Info, None, line)];
        let priority = if call == CallKind::Members { Priority::Routine } else { Priority::Urgent };
        for name in back {
            effects.push(Effect::Queue(Name::clone(&name), Lane::Slow, Turn::Gone));
            effects.push(Effect::Queue(name, Lane::Normal, Turn::Now(priority)));
        }
        effects
    }

    /// Returns when the next slow lane may begin, if no other one ends before; none: at once.
    pub(crate) fn next_slow_lane(&self) -> Option<At> {
        self.hangs.next(self.parameters.call_timeout)
    }

    /// Handles the cloud's answer about what it would change.
    fn previewed(&mut self, lane: Lane, name: &Name, uid: &str, answer: CallAnswer) -> Vec<Effect> {
        let CallAnswer::Preview(digest, answer) = answer else { return Vec::new() };
        let queue = |turn| Effect::Queue(Name::clone(name), lane, turn);
        let lines = match answer {
            Ok(lines) => lines,
            Err(error) if error.kind == ErrorKind::Unsupported => {
                vec!["unknown: the provider has no preview".to_owned()]
            }
            Err(error) => {
                let text = format!("cannot preview the load balancer: {error}");
                let log = Effect::Log(LogLevel::Warn, Some(Name::clone(name)), text);
                return vec![log, queue(Turn::Failed(error.class()))];
            }
        };
        if let Some(entry) = self.balancers.with_uid(name, uid) {
            entry.state.previewed = Some((digest, lines));
        }
        vec![queue(Turn::Well), Effect::Look(lane, Name::clone(name))]
    }
}

impl CallAnswer {
    /// Returns how the call ended, for metrics. A call that the provider did not send is not an
    /// error.
    fn ended(&self) -> Result<Ended, CloudError> {
        match self {
            Self::Ensure(answer) => ended(answer),
            Self::Members(answer) => ended(answer),
            Self::Delete(answer) => ended(answer),
            Self::Preview(..) => Ok(Ended::Done),
        }
    }
}

/// Returns how a call ended.
pub(super) fn ended<T>(answer: &Result<Progress<T>, CloudError>) -> Result<Ended, CloudError> {
    match answer {
        Ok(Progress::Done(_)) => Ok(Ended::Done),
        Ok(Progress::InProgress(_)) => Ok(Ended::InProgress),
        Ok(Progress::Elsewhere(_)) => Ok(Ended::Elsewhere),
        Ok(Progress::NotSeen(_)) => Ok(Ended::NotSeen),
        Ok(Progress::Lost(_)) => Ok(Ended::Lost),
        Err(error) if error.unsent => Ok(Ended::NotSent),
        Err(error) => Err(error.clone()),
    }
}

/// Returns a line of the log about a Service.
fn log(level: LogLevel, service: &Service, text: String) -> Effect {
    Effect::Log(level, Some(Name::clone(&service.key)), text)
}

/// Returns true if the call took all its time.
fn did_not_return(error: &CloudError) -> bool {
    error.kind == ErrorKind::Timeout && !error.unsent
}

/// Returns when service-ccm repeats a failed call. If another client's change is the cause
/// (`Busy`), the wait grows each time: the cloud does not know when that change ends.
fn pace(error: &CloudError) -> Pace {
    match error.class() {
        _ if error.unsent => Pace::Backoff(UNSENT),
        RetryClass::Retry => Pace::Backoff(RETRY),
        RetryClass::RetryAfter(after) if error.kind == ErrorKind::Busy && after <= RETRY.first => {
            Pace::Backoff(RETRY)
        }
        RetryClass::RetryAfter(after) => Pace::RetryAfter(after.clamp(SHORTEST, RETRY.longest)),
        RetryClass::Permanent => Pace::Every(LONG_RETRY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_repeated_as_its_error_says() {
        let error = |kind| CloudError::new(kind, "no");
        let asked =
            |seconds| error(ErrorKind::Throttled).with_retry_after(Duration::from_secs(seconds));
        assert_eq!(pace(&asked(42)), Pace::RetryAfter(Duration::from_secs(42)));
        assert_eq!(pace(&asked(4000)), Pace::RetryAfter(RETRY.longest), "no longer than others");
        assert_eq!(pace(&asked(0)), Pace::Backoff(RETRY), "it is not a delay");
        let soon = error(ErrorKind::Throttled).with_retry_after(Duration::from_millis(200));
        assert_eq!(pace(&soon), Pace::RetryAfter(SHORTEST), "not at once");
        for kind in [ErrorKind::Unavailable, ErrorKind::Busy] {
            assert_eq!(pace(&error(kind)), Pace::Backoff(RETRY), "{kind}");
        }
        let busy = |seconds| error(ErrorKind::Busy).with_retry_after(Duration::from_secs(seconds));
        assert_eq!(pace(&busy(2)), Pace::Backoff(RETRY), "it was never asked to wait for longer");
        assert_eq!(pace(&busy(42)), Pace::RetryAfter(Duration::from_secs(42)));
        assert_eq!(pace(&error(ErrorKind::QuotaExceeded)), Pace::Every(LONG_RETRY));
        let waits: Vec<u64> = (1..9).map(|times| RETRY.after(times).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
    }
}
