//! The answers to calls: what follows from each one, and when a failed call is made again.

use std::{ops::Range, time::Duration};

use ccm_base::{Backoff, RetryClass, jittered};
use ccm_cloud::{Answers, CloudError, ErrorKind, Loss, Progress, Waiting};
use ccm_controller::queue::{LONG_RETRY, Pace, Priority};
use ccm_objects::Shared as Name;
use futures::StreamExt as _;
use parking_lot::Mutex;

use super::{Due, Lane, Lanes, WRITES, calls::Asked};
use crate::{
    machine::{Entry, RETRY, Started},
    metrics::Ended,
    plan::{CallKind, Known, of_adoption, of_name, shown_id, status::ID, to_adopt},
};

/// The random part of a wait after a failure: what failed together does not come back together.
const JITTER: Range<f64> = 0.8..1.0;
/// The minimum wait, even if the cloud asks for a shorter one.
pub(super) const SHORTEST: Duration = Duration::from_secs(1);
/// The wait for the next call of what was not sent: other items took the time of the last one.
const UNSENT: Backoff = Backoff { first: SHORTEST, longest: Duration::from_secs(10) };

impl Lanes {
    /// Applies answers as they arrive, and makes the writes that follow from them.
    pub(super) async fn answers<Q, T>(
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
        let name = &service.key;
        let makes_room = match &answer {
            Ok(Progress::Elsewhere(_)) => true,
            Ok(Progress::Done(_)) => *call == CallKind::Delete,
            _ => false,
        };
        self.handles.metrics.ended(*call, ended(&answer));
        let is_timeout = answer.as_ref().is_err_and(did_not_return);
        if answer.is_ok() {
            self.carried_out(service, *call);
        }
        let now = self.handles.timeline.now();
        self.handles.balancers.with(service, |entry| entry.answered(now));
        match answer {
            Ok(Progress::Done(value)) => {
                self.handles.balancers.with(service, |entry| {
                    entry.done(*call);
                    done(asked, entry, value);
                });
                self.queue(lane).forget(name);
                self.called(&asked.due);
                self.report_done(asked);
            }
            Ok(Progress::InProgress(waiting)) => self.in_progress(asked, waiting),
            Ok(Progress::Elsewhere(why)) => self.elsewhere(asked, why),
            Ok(Progress::NotSeen(why)) => self.not_seen(asked, why),
            Ok(Progress::Lost(loss)) if asked.due.may_replace => {
                let what = format!("the provider may replace it, and does not: {}", loss.why);
                self.failed(lane, asked, CloudError::new(ErrorKind::Malformed, what));
            }
            Ok(Progress::Lost(loss)) => self.lost(asked, loss),
            Err(error) if self.is_copy(asked, &error) => (),
            Err(error) => self.failed(lane, asked, error),
        }
        if is_timeout {
            // What follows is the slower lanes' work: the status as well as the next call.
            self.timed_out(asked);
        }
        // Writes follow at once; the next call to the cloud is another batch's.
        if self.steps(lane, name).await.is_some() {
            self.queue(lane).add(Name::clone(name), Priority::Urgent);
        }
        if makes_room {
            self.handles.let_next_in(service.names().0);
        }
        if lane == Lane::Slow && !is_timeout {
            self.handles.balancers.with(service, Entry::in_time);
        }
        self.queue(lane).done(name);
    }

    /// Another controller is responsible for it.
    fn elsewhere<Q>(&self, asked: &Asked<Q>, why: String) {
        let service = &asked.due.service;
        tracing::info!(service = &*service.key, "another controller is responsible: {why}");
        self.handles.balancers.with(service, |entry| entry.elsewhere(asked.about(), why));
    }

    /// The provider could not see the members: service-ccm makes a full call next.
    fn not_seen<Q>(&self, asked: &Asked<Q>, why: String) {
        let service = &asked.due.service;
        tracing::info!(service = &*service.key, "the load balancer is looked at in full: {why}");
        let now = self.handles.timeline.now();
        self.handles.balancers.with(service, |entry| entry.not_seen(why, now));
    }

    /// The load balancer is gone or has failed, and the call was not to replace it.
    fn lost<Q>(&self, asked: &Asked<Q>, loss: Loss) {
        let service = &asked.due.service;
        tracing::warn!(service = &*service.key, "only a new load balancer helps: {}", loss.why);
        self.handles.balancers.with(service, |entry| entry.lost(asked.call, loss.is_gone));
        self.handles.losses.lock().answered(self.handles.timeline.now(), &service.uid, loss);
    }

    fn report_done<Q>(&self, asked: &Asked<Q>) {
        let (service, reports) = (&asked.due.service, &self.handles.reports);
        match asked.call {
            CallKind::Ensure => self.handles.completed(service),
            CallKind::Members => {
                let members = asked.members.as_ref().map_or(0, |members| members.present.len());
                let (has_changed, why_empty) = self
                    .handles
                    .balancers
                    .with(service, |entry| (entry.take_changed(), entry.state().why_empty()));
                if members == 0 || why_empty.is_some() {
                    let why_none = asked.due.members.why_none.as_deref();
                    reports.no_members(service, why_empty.as_deref().or(why_none));
                } else if has_changed {
                    reports.members_changed(service);
                }
            }
            CallKind::Delete => reports.deleted(service),
            CallKind::DeleteDuplicate => reports.duplicate_deleted(service),
        }
    }

    /// The cloud works on it: it is polled.
    fn in_progress<Q>(&self, asked: &Asked<Q>, waiting: Waiting) {
        let now = self.handles.timeline.now();
        let (service, owner) = (&asked.due.service, self.owner(&asked.due.service));
        let Started { is_step_again, replaced } = self
            .handles
            .balancers
            .with(service, |entry| entry.in_progress(asked.about(), waiting, owner, now));
        if let Some((gone, by)) = replaced {
            self.handles.gone(service, &gone, Some(&by));
        }
        if is_step_again {
            self.called(&asked.due);
        }
        self.handles.poll.notify_one();
    }

    /// Records that the Service has the ID of another Service's load balancer, if the error of a call says
    /// that. The next call looks for no ID.
    fn is_copy<Q>(&self, asked: &Asked<Q>, error: &CloudError) -> bool {
        let service = &asked.due.service;
        let is_copied = |entry: &mut Entry| entry.is_copied(asked.about(), error);
        let is_news = self.handles.balancers.with(service, is_copied);
        if is_news {
            tracing::warn!(
                service = &*service.key,
                "annotation {ID} is not this Service's, which gets a load balancer of its own: {error}"
            );
        }
        is_news
    }

    fn failed<Q>(&self, lane: Lane, asked: &Asked<Q>, error: CloudError) {
        let (service, call) = (&asked.due.service, asked.call);
        let adopt = to_adopt(service).filter(|_| call == CallKind::Ensure);
        let error = match adopt {
            Some(id) => of_adoption(id, error),
            None => error,
        };
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        let error = self.handles.balancers.with(service, |entry| match call {
            CallKind::Ensure => of_name(service, &traits, entry.state().id(), error),
            _ => error,
        });
        let is_absent =
            |entry: &mut Entry| call == CallKind::Ensure && entry.state().known == Known::Absent;
        if let Some(gone) = shown_id(service)
            && self.handles.balancers.with(service, is_absent)
        {
            self.handles.gone(service, gone, None);
        }
        let now = self.handles.timeline.now();
        let pace = pace(&error);
        let failure = (error.clone(), pace);
        let (wait, may_pass) = self.handles.balancers.with(service, |entry| {
            entry.failed(asked.about(), failure, &traits, |wait| jittered(wait, JITTER), now)
        });
        if call == CallKind::Members && error.kind == ErrorKind::NotFound {
            // A list, or else a full call, shows if the load balancer is gone.
            match traits.lists {
                true => self.handles.audit.wake(),
                false => self.handles.balancers.with(service, Entry::look),
            }
        }
        if !may_pass && !error.unsent {
            self.handles.reports.failed(service, call, &asked.due.members, &error, pace);
        }
        let is_new = service.details.as_ref().is_some_and(|details| details.ingress.is_empty());
        let priority = if error.unsent && is_new { Priority::Urgent } else { Priority::Routine };
        self.queue(lane).add_after(Name::clone(&service.key), wait, priority);
    }
}

/// How a call ended, for metrics. A call that the provider did not send is not an error.
fn ended<T>(answer: &Result<Progress<T>, CloudError>) -> Result<Ended, &CloudError> {
    match answer {
        Ok(progress) => Ok(Ended::from(progress)),
        Err(error) if error.unsent => Ok(Ended::NotSent),
        Err(error) => Err(error),
    }
}

/// Returns true if the call took all its time. One that was given up did not.
fn did_not_return(error: &CloudError) -> bool {
    error.kind == ErrorKind::Timeout && !error.unsent && error.retry_after.is_none()
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

/// When service-ccm repeats a failed call. If another client's change is the cause (`Busy`), the wait
/// grows each time: the cloud does not know when that change ends.
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
        assert_eq!(pace(&asked(0)), Pace::RetryAfter(SHORTEST), "not at once");
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
