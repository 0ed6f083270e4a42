//! Calls to the cloud: what is asked, and what the answers mean.

use std::{ops::Range, sync::Arc};

use ccm_base::{RetryClass, jittered};
use ccm_cloud::{
    AbsenceProof, Answers, CloudError, Digest, ErrorKind, FrontEnd, LoadBalancer, LoadBalancers,
    MemberChange, Members, Owner, Phase, Progress, Unwanted, Waiting, Wanted,
};
use ccm_controller::queue::{LONG_RETRY, Pace, Priority};
use ccm_objects::{Service, Shared as Name};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Due, Lane, Lanes, WRITES};
use crate::{
    metrics::Ended,
    observe::{RETRY, balancers::Entry},
    plan::{
        CallKind, Failed, Known, Pending, Step,
        front_end::{desired, settings},
        named, of_adoption, of_name,
        reason::{PROVISIONING, Reason},
        status::shows,
        to_adopt,
    },
};

/// The random part of a wait after a failure: what failed together does not come back together.
const JITTER: Range<f64> = 0.8..1.0;

/// One Service in a call, and what is asked.
struct Asked<Q> {
    due: Due,
    call: CallKind,
    question: Q,
    digest: Option<Digest>,
    members: Option<Members>,
}

impl Lanes {
    /// Makes the calls about these Services, at most one of each kind.
    pub(super) async fn call(&self, lane: Lane, all: Vec<Due>) {
        if all.is_empty() {
            return;
        }
        let balancers = match self.handles.load_balancers() {
            Ok(balancers) => balancers,
            Err(error) => {
                for due in all {
                    self.queue(lane).retry_as(Name::clone(&due.service.key), error.class());
                    self.queue(lane).done(&due.service.key);
                }
                return;
            }
        };
        let (mut ensure, mut members, mut delete) = (Vec::new(), Vec::new(), Vec::new());
        let mut preview = Vec::new();
        for due in all {
            match due.step.clone() {
                Step::Ensure(front_end) => ensure.push(self.wanted(due, front_end)),
                Step::Preview(front_end) => preview.push(self.to_preview(due, front_end)),
                Step::SetMembers(id) => members.push(self.member_change(due, id)),
                Step::DeleteDuplicate(id) => {
                    delete.push(self.unwanted(due, Some(id), CallKind::DeleteDuplicate));
                }
                _ => {
                    let known = self.to_look_for(&due.service, CallKind::Delete);
                    delete.push(self.unwanted(due, known, CallKind::Delete));
                }
            }
        }
        tokio::join!(
            self.ensure(lane, &*balancers, ensure),
            self.set_members(lane, &*balancers, members),
            self.delete(lane, &*balancers, delete),
            self.preview(lane, &*balancers, preview),
        );
    }

    fn owner(&self, service: &Service) -> Owner {
        let (namespace, name) = service.names();
        Owner {
            cluster: self.handles.cluster.clone(),
            uid: service.uid.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn wanted(&self, due: Due, front_end: Arc<FrontEnd>) -> Asked<Wanted> {
        let (service, members) = (&due.service, due.members.members.clone());
        let question = self.question(&due, Arc::clone(&front_end));
        let digest = Some(front_end.digest);
        // From now on there may be a load balancer, whatever the answer is.
        self.handles.balancers.with(service, |entry| entry.state.proved_absent = false);
        if self.is_news(service, front_end.digest) {
            self.handles.reports.ensuring(service, &front_end.digest.to_string());
            if members.present.is_empty() {
                self.handles.reports.no_members(service);
            }
        }
        Asked { due, call: CallKind::Ensure, question, digest, members: Some(members) }
    }

    pub(super) fn question(&self, due: &Due, front_end: Arc<FrontEnd>) -> Wanted {
        let service = &due.service;
        Wanted {
            known: self.to_look_for(service, CallKind::Ensure),
            adopt: self.to_adopt(service),
            members: due.members.members.clone(),
            front_end,
        }
    }

    fn to_look_for(&self, service: &Service, call: CallKind) -> Option<String> {
        self.handles
            .balancers
            .with(service, |entry| entry.state.to_look_for(service, call).map(str::to_owned))
    }

    /// The load balancer that this Service is to adopt.
    fn to_adopt(&self, service: &Service) -> Option<String> {
        let requested = to_adopt(service).map(str::to_owned);
        requested.or_else(|| {
            let adopts = self.handles.settings.borrow().adopt_load_balancers;
            let found =
                || self.handles.balancers.with(service, |entry| entry.state.adoptable.clone());
            adopts.then(found).flatten().map(|(id, _)| id)
        })
    }

    /// Whether a call with this configuration is worth an event: most calls of a restart or an
    /// audit change nothing.
    fn is_news(&self, service: &Service, digest: Digest) -> bool {
        let configured = self.handles.balancers.with(service, |entry| entry.state.configured);
        let provisioned = [Reason::Provisioned, Reason::PartlyProvisioned];
        let condition = service.condition(PROVISIONING);
        let shows_provisioned = provisioned.iter().any(|reason| shows(condition, *reason));
        !shows_provisioned || configured.is_some_and(|configured| configured != digest)
    }

    fn member_change(&self, due: Due, id: String) -> Asked<MemberChange> {
        let members = due.members.members.clone();
        let wants_front_end = self.handles.load_balancers().map(|one| one.traits());
        let front_end = wants_front_end
            .ok()
            .filter(|traits| traits.wants_service)
            .and_then(|traits| desired(&due.service, &self.handles.cluster, &traits).front_end);
        let question = MemberChange {
            owner: self.owner(&due.service),
            id,
            members: members.clone(),
            front_end,
        };
        Asked { due, call: CallKind::Members, question, digest: None, members: Some(members) }
    }

    fn unwanted(&self, due: Due, known: Option<String>, call: CallKind) -> Asked<Unwanted> {
        let duplicate = call == CallKind::DeleteDuplicate;
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        // A Service with a mistake has no front end, but its annotations still count.
        let details = due.service.details.as_deref();
        let settings = details.map(|details| settings(details, &traits)).unwrap_or_default();
        let owner = self.owner(&due.service);
        let service = traits.wants_service.then(|| due.service.json.clone()).flatten();
        let question = Unwanted { owner, known, duplicate, settings, service };
        if !duplicate && question.known.is_some() {
            self.handles.reports.deleting(&due.service);
        }
        Asked { due, call, question, digest: None, members: None }
    }

    async fn ensure(&self, lane: Lane, balancers: &dyn LoadBalancers, asked: Vec<Asked<Wanted>>) {
        let is_urgent = asked.iter().any(|one| {
            one.due.service.details.as_ref().is_some_and(|details| details.ingress.is_empty())
        });
        let questions: Vec<Wanted> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.ensure(&questions, self.handles.call(is_urgent));
        let done = |asked: &Asked<Wanted>, entry: &mut Entry, balancer: LoadBalancer| {
            self.ensured(asked, entry, balancer);
        };
        self.answers(lane, asked, answers, done).await;
    }

    fn ensured(&self, asked: &Asked<Wanted>, entry: &mut Entry, mut balancer: LoadBalancer) {
        let nodes = self.handles.node_set.borrow().clone();
        match (balancer.members.take(), &asked.members) {
            (Some(members), _) => {
                entry.membership.shown(&members, &nodes);
                entry.read = Some(self.handles.timeline.now());
            }
            (None, Some(members)) => entry.membership.applied(members),
            (None, None) => {}
        }
        entry.state.configured = asked.digest;
        entry.state.look = false;
        entry.state.adoptable = None;
        entry.annotations = balancer.annotations.keys().cloned().collect();
        entry.state.known = Known::There(Box::new(balancer));
    }

    async fn set_members(
        &self,
        lane: Lane,
        balancers: &dyn LoadBalancers,
        asked: Vec<Asked<MemberChange>>,
    ) {
        if asked.is_empty() {
            return;
        }
        let started = Instant::now();
        let questions: Vec<MemberChange> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.set_members(&questions, self.handles.call(false));
        let done = |asked: &Asked<MemberChange>, entry: &mut Entry, version: Option<String>| {
            if let Some(members) = &asked.members {
                entry.membership.applied(members);
            }
            // Our own write is not to look like another one's.
            if let Known::There(balancer) = &mut entry.state.known {
                balancer.version = version;
            }
        };
        self.answers(lane, asked, answers, done).await;
        self.handles.metrics.members_changed(started.elapsed());
        self.handles.metrics.nodes_synced(self.handles.published.lock().elapsed());
    }

    async fn delete(&self, lane: Lane, balancers: &dyn LoadBalancers, asked: Vec<Asked<Unwanted>>) {
        let questions: Vec<Unwanted> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.delete(&questions, self.handles.call(false));
        let done = |asked: &Asked<Unwanted>, entry: &mut Entry, _: AbsenceProof| {
            if asked.question.duplicate {
                entry.state.duplicate = None;
            } else {
                if let Known::There(balancer) = &entry.state.known {
                    entry.annotations.extend(balancer.annotations.keys().cloned());
                }
                entry.state.known = Known::Absent;
                entry.state.configured = None;
                entry.state.proved_absent = true;
            }
        };
        self.answers(lane, asked, answers, done).await;
    }

    /// Applies answers as they arrive, and makes the writes that follow from them.
    async fn answers<Q, T>(
        &self,
        lane: Lane,
        asked: Vec<Asked<Q>>,
        answers: Answers<'_, Progress<T>>,
        done: impl Fn(&Asked<Q>, &mut Entry, T) + Sync,
    ) where
        Q: Send + Sync,
        T: Send,
    {
        if asked.is_empty() {
            return;
        }
        let (missing, done) = (no_answer().that_may_be_done(), &done);
        each_answer(asked, answers, missing, |asked, answer| async move {
            self.answered(lane, &asked, answer, done).await;
        })
        .await;
    }

    async fn answered<Q, T>(
        &self,
        lane: Lane,
        asked: &Asked<Q>,
        answer: Result<Progress<T>, CloudError>,
        done: &impl Fn(&Asked<Q>, &mut Entry, T),
    ) {
        let Asked { due: Due { service, .. }, call, .. } = asked;
        let (name, was_news) =
            (&service.key, asked.digest.is_some_and(|digest| self.is_news(service, digest)));
        let result = answer.as_ref().map(|progress| match progress {
            Progress::Done(_) => Ended::Done,
            Progress::InProgress(_) => Ended::InProgress,
            Progress::Elsewhere(_) => Ended::Elsewhere,
        });
        self.handles.metrics.ended(*call, result);
        let is_timeout = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout);
        self.handles.balancers.with(service, |entry| {
            entry.answered = self.handles.timeline.now();
            entry.is_queued = false;
        });
        match answer {
            Ok(Progress::Done(value)) => {
                self.handles.balancers.with(service, |entry| {
                    entry.state.pending = None;
                    entry.state.failed.retain(|failed| failed.call != *call);
                    done(asked, entry, value);
                });
                self.queue(lane).forget(name);
                self.report_done(asked, was_news);
            }
            Ok(Progress::InProgress(waiting)) => self.in_progress(asked, waiting),
            Ok(Progress::Elsewhere(why)) => {
                tracing::info!(service = &**name, "another controller is responsible: {why}");
                self.handles.balancers.with(service, |entry| {
                    entry.state.pending = None;
                    entry.state.failed.clear();
                    if *call == CallKind::DeleteDuplicate {
                        // Says nothing about the first one.
                        entry.state.duplicate = None;
                        return;
                    }
                    entry.state.known = Known::Elsewhere(why);
                    entry.state.look = false;
                    match call {
                        CallKind::Ensure => entry.state.configured = asked.digest,
                        CallKind::Delete => entry.state.proved_absent = true,
                        CallKind::Members | CallKind::DeleteDuplicate => {}
                    }
                });
            }
            Err(error) => self.failed(lane, asked, error),
        }
        if is_timeout {
            // What follows is the slower lanes' work: the status as well as the next call.
            self.handles.balancers.with(service, |entry| entry.is_slow = true);
        }
        // Writes follow at once; the next call to the cloud is another batch's.
        if self.steps(lane, name).await.is_some() {
            self.queue(lane).add(Name::clone(name), Priority::Urgent);
        }
        if lane == Lane::Slow && !is_timeout {
            self.handles.balancers.with(service, |entry| entry.is_slow = false);
        }
        self.queue(lane).done(name);
    }

    fn report_done<Q>(&self, asked: &Asked<Q>, was_news: bool) {
        let (service, reports) = (&asked.due.service, &self.handles.reports);
        match asked.call {
            CallKind::Ensure => {
                if was_news {
                    reports.ensured(service);
                }
                let notes =
                    self.handles.balancers.with(service, |entry| match &entry.state.known {
                        Known::There(balancer) => balancer.notes.clone(),
                        _ => Vec::new(),
                    });
                reports.notes(service, &notes);
            }
            CallKind::Members => {
                let members = asked.members.as_ref().map_or(0, |members| members.present.len());
                reports.members_changed(service, members);
            }
            CallKind::Delete => reports.deleted(service),
            CallKind::DeleteDuplicate => reports.duplicate_deleted(service),
        }
    }

    /// The cloud works on it: it is polled.
    fn in_progress<Q>(&self, asked: &Asked<Q>, waiting: Waiting) {
        let now = self.handles.timeline.now();
        self.handles.balancers.with(&asked.due.service, |entry| {
            let earlier = entry.state.pending.take().filter(|last| last.call == Some(asked.call));
            let Waiting { what, check_after, id, .. } = waiting.clone();
            entry.state.failed.retain(|failed| failed.call != asked.call);
            entry.state.pending = Some(Pending {
                call: Some(asked.call),
                digest: asked.digest,
                members: asked.members.clone(),
                what,
                check_at: now + check_after,
                since: earlier.map_or(now, |earlier| earlier.since),
            });
            if let Some(id) = id
                && !matches!(entry.state.known, Known::There(_))
            {
                let mut balancer = LoadBalancer::new(id, "", Some(self.owner(&asked.due.service)));
                balancer.phase = Phase::Pending(waiting);
                entry.state.known = Known::There(Box::new(balancer));
            }
        });
        self.handles.poll.notify_one();
    }

    fn failed<Q>(&self, lane: Lane, asked: &Asked<Q>, error: CloudError) {
        let (service, call) = (&asked.due.service, asked.call);
        let adopt = to_adopt(service).filter(|_| call == CallKind::Ensure);
        let error = match adopt {
            Some(id) => of_adoption(id, error),
            None => error,
        };
        let error = self.handles.balancers.with(service, |entry| match call {
            CallKind::Ensure => of_name(service, entry.state.id(), error),
            _ => error,
        });
        let now = self.handles.timeline.now();
        let pace = pace(&error);
        let wait = self.handles.balancers.with(service, |entry| {
            let times =
                entry.state.failure(call).map_or(0, |failed| failed.times).saturating_add(1);
            let wait = match pace {
                Pace::Backoff(backoff) => jittered(backoff.after(times), JITTER),
                Pace::Every(wait) | Pace::RetryAfter(wait) => wait,
            };
            entry.state.pending = None;
            entry.state.failed.retain(|failed| failed.call != call);
            entry.state.failed.push(Failed {
                call,
                digest: asked.digest,
                named: named(service).map(|id| id.map(Into::into)),
                error: error.clone(),
                times,
                retry_at: now + wait,
            });
            wait
        });
        // Another client's change is no failure.
        if error.kind != ErrorKind::Busy {
            self.handles.reports.failed(service, call, &asked.due.members, &error, pace);
        }
        self.queue(lane).add_after(Name::clone(&service.key), wait, Priority::Routine);
    }
}

/// The error of what a provider leaves without an answer.
pub(super) fn no_answer() -> CloudError {
    CloudError::new(ErrorKind::Malformed, "the provider gave no answer")
}

/// Applies each answer as it arrives to what it is about, and `missing` to what has none.
pub(super) async fn each_answer<A, T, F: Future<Output = ()>>(
    asked: Vec<A>,
    answers: Answers<'_, T>,
    missing: CloudError,
    apply: impl Fn(A, Result<T, CloudError>) -> F,
) {
    let open: Vec<Mutex<Option<A>>> = asked.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let (open, apply) = (&open, &apply);
    answers
        .for_each_concurrent(WRITES, |(place, answer)| async move {
            let Some(asked) = open.get(place).and_then(|one| one.lock().take()) else { return };
            apply(asked, answer).await;
        })
        .await;
    for one in open {
        let asked = one.lock().take();
        if let Some(asked) = asked {
            apply(asked, Err(missing.clone())).await;
        }
    }
}

/// When a failed call is made again.
fn pace(error: &CloudError) -> Pace {
    match error.class() {
        RetryClass::Retry => Pace::Backoff(RETRY),
        RetryClass::RetryAfter(after) => Pace::RetryAfter(after.min(RETRY.longest)),
        RetryClass::Permanent => Pace::Every(LONG_RETRY),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failed_call_is_repeated_as_its_error_says() {
        let error = |kind| CloudError::new(kind, "no");
        let asked =
            |seconds| error(ErrorKind::Throttled).with_retry_after(Duration::from_secs(seconds));
        assert_eq!(pace(&asked(42)), Pace::RetryAfter(Duration::from_secs(42)));
        assert_eq!(pace(&asked(4000)), Pace::RetryAfter(RETRY.longest), "no longer than others");
        assert_eq!(pace(&error(ErrorKind::Unavailable)), Pace::Backoff(RETRY));
        assert_eq!(pace(&error(ErrorKind::QuotaExceeded)), Pace::Every(LONG_RETRY));
        let waits: Vec<u64> = (1..9).map(|times| RETRY.after(times).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
    }
}
