//! The slow lanes: when they begin, and how Services leave them.

use ccm_cloud::{Answers, CloudError, ErrorKind};
use ccm_controller::queue::Priority;
use ccm_objects::{Service, Shared as Name};
use futures::{StreamExt as _, stream};
use tokio::time::sleep_until;

use super::{Lane, Lanes, answers::SHORTEST, calls::Asked};
use crate::plan::{CallKind, hangs::Hangs};

impl Lanes {
    /// Waits until a slow lane may begin.
    pub(super) async fn turn(&self) {
        let timeline = self.handles.timeline;
        loop {
            let changed = self.slow_ended.notified();
            let limit = self.handles.settings.borrow().cloud_call_timeout;
            let due = self.hangs.lock().next(limit).filter(|due| timeline.now() < *due);
            let Some(due) = due else { return };
            tokio::select! {
                () = changed => {}
                () = sleep_until(timeline.instant(due)) => {}
            }
        }
    }

    /// Records that a slow lane begins, or has ended.
    pub(super) fn slow_lane(&self, change: impl FnOnce(&mut Hangs)) {
        change(&mut self.hangs.lock());
        self.slow_ended.notify_waiters();
    }

    /// The answer to a slow call about members, unless the cloud answers other calls again before:
    /// then the call is lost, and another one is made at once. A creation is never given up, because
    /// the cloud could carry it out beside the next one.
    pub(super) fn or_given_up<'a, Q, T: Send + 'a>(
        &'a self,
        lane: Lane,
        asked: &[Asked<Q>],
        answers: Answers<'a, T>,
    ) -> Answers<'a, T> {
        let hangs = |asked: &Asked<Q>| {
            let slow = self.handles.balancers.with(&asked.due.service, |entry| entry.slow());
            slow.is_some_and(|slow| !slow.alone && slow.call == CallKind::Members)
        };
        match asked {
            [one] if lane == Lane::Slow && hangs(one) => {}
            _ => return answers,
        }
        let first = async move {
            let mut answers = answers;
            tokio::select! {
                biased;
                answer = answers.next() => answer,
                () = self.answers_again.notified() => Some((0, Err(given_up()))),
            }
        };
        stream::once(first).filter_map(std::future::ready).boxed()
    }

    /// Records that a call about this Service did not return in time.
    pub(super) fn timed_out<Q>(&self, asked: &Asked<Q>) {
        let slow = self.hangs.lock().timed_out(asked.call, asked.began);
        self.handles.balancers.with(&asked.due.service, |entry| entry.timed_out(slow));
    }

    /// Records that the cloud has carried out a call. If it answered none before, the Services of the
    /// slow lanes go back to the usual ones, and their next calls are due.
    pub(super) fn carried_out(&self, service: &Service, call: CallKind) {
        let now = self.handles.timeline.now();
        if !self.hangs.lock().answered(call, now) {
            return;
        }
        let mut back = Vec::new();
        self.handles.balancers.each(|name, entry| {
            if *name != service.key && entry.answers_again(call, now) {
                back.push(Name::clone(name));
            }
        });
        tracing::info!(services = back.len(), "the cloud answers again");
        let priority = if call == CallKind::Members { Priority::Routine } else { Priority::Urgent };
        for name in back {
            self.handles.slow.remove(&name);
            self.handles.queue.add(name, priority);
        }
        if call == CallKind::Members {
            self.answers_again.notify_waiters();
        }
    }
}

fn given_up() -> CloudError {
    let what = "no answer, and the cloud answers other calls";
    CloudError::new(ErrorKind::Timeout, what).that_may_be_done().with_retry_after(SHORTEST)
}
