//! Calls to the cloud about load balancers: at most one of each kind for a batch of Services.

use std::sync::atomic::{AtomicBool, Ordering};

use ccm_cloud::{Answers, CloudError, ErrorKind, LoadBalancers, MemberChange, Progress};
use ccm_objects::Shared as Name;
use futures::StreamExt as _;
use tokio::time::Instant;

use super::{WRITES, lanes::Lanes};
use crate::machine::{
    effect::{Ask, Effect, Lane, Question},
    event::{Answered, CallAnswer, Event},
};

/// The Service that a question is about.
struct About {
    lane: Lane,
    name: Name,
    uid: Box<str>,
}

/// The Services that one call is about, and its questions.
type Batch<Q> = (Vec<About>, Vec<Q>);

impl Lanes {
    /// Makes these calls, at most one of each kind.
    pub(super) async fn call(&self, all: Vec<Ask>) {
        if all.is_empty() {
            return;
        }
        let is_urgent = all.iter().any(|ask| ask.is_urgent);
        let is_charged = all.iter().any(|ask| ask.is_charged);
        let balancers = self.translator.load_balancers();
        let (mut ensure, mut members) = (Batch::default(), Batch::default());
        let (mut delete, mut preview) = (Batch::default(), Batch::default());
        for Ask { lane, name, uid, question, .. } in all {
            let about = About { lane, name, uid };
            if let Err(error) = &balancers {
                let error = CloudError { unsent: true, ..error.clone() };
                self.handle_answer(&about, CallAnswer::failed(&question, error)).await;
                continue;
            }
            match question {
                Question::Ensure(wanted) => ensure.extend([(about, wanted)]),
                Question::Members(change) => members.extend([(about, change)]),
                Question::Delete(unwanted) => delete.extend([(about, unwanted)]),
                Question::Preview(wanted) => preview.extend([(about, wanted)]),
            }
        }
        let Ok(balancers) = balancers else { return };
        let call = self.translator.call(false);
        let ensured = async {
            if is_charged {
                self.translator.store_note().await;
            }
            let call = self.translator.call(is_urgent);
            let read = |_: &_, answer| CallAnswer::Ensure(Box::new(answer));
            self.ask(&ensure, |all| balancers.ensure(all, call), read).await;
        };
        let read = |_: &_, answer| CallAnswer::Delete(answer);
        let deleted = self.ask(&delete, |all| balancers.delete(all, call), read);
        let previewed = self.ask(
            &preview,
            |all| balancers.preview(all, call),
            |wanted, answer| CallAnswer::Preview(wanted.front_end.digest, answer),
        );
        tokio::join!(ensured, self.set_members(&*balancers, &members), deleted, previewed);
    }

    async fn set_members(&self, balancers: &dyn LoadBalancers, batch: &Batch<MemberChange>) {
        let (started, is_done) = (Instant::now(), AtomicBool::new(false));
        let call = self.translator.call(false);
        let read = |_: &_, answer| {
            if matches!(answer, Ok(Progress::Done(_))) {
                is_done.store(true, Ordering::Relaxed);
            }
            CallAnswer::Members(answer)
        };
        self.ask(batch, |all| balancers.set_members(all, call), read).await;
        let performer = &self.translator.performer;
        if !batch.0.is_empty() {
            performer.metrics.members_changed(started.elapsed());
        }
        if is_done.load(Ordering::Relaxed) {
            let took = performer.door.read(|machine, now| now.since(machine.published()));
            performer.metrics.nodes_synced(took);
        }
    }

    /// Makes one call. Passes on each answer as it arrives, and an error for each question without an answer,
    /// and makes the writes that follow.
    async fn ask<'a, Q, T>(
        &self,
        (about, questions): &'a Batch<Q>,
        call: impl FnOnce(&'a [Q]) -> Answers<'a, T>,
        read: impl Fn(&Q, Result<T, CloudError>) -> CallAnswer,
    ) {
        if about.is_empty() {
            return;
        }
        let open: Vec<AtomicBool> = about.iter().map(|_| AtomicBool::new(true)).collect();
        let (open, read) = (&open, &read);
        let pass_on = |place: usize, answer| async move {
            let one = about.get(place).zip(questions.get(place)).zip(open.get(place));
            let Some(((about, question), is_open)) = one else { return };
            if is_open.swap(false, Ordering::Relaxed) {
                self.handle_answer(about, read(question, answer)).await;
            }
        };
        call(questions).for_each_concurrent(WRITES, |(place, answer)| pass_on(place, answer)).await;
        for place in 0..about.len() {
            pass_on(place, Err(no_answer().that_may_be_done())).await;
        }
    }

    /// Writes follow at once; the next call to the cloud is another batch's.
    async fn handle_answer(&self, About { lane, name, uid }: &About, answer: CallAnswer) {
        let (lane, name, uid) = (*lane, Name::clone(name), uid.clone());
        let answered = Answered { lane, name: Name::clone(&name), uid, answer };
        let requests = self.translator.performer.apply(Event::Answered(answered));
        if requests.iter().any(|request| matches!(request, Effect::Look(..))) {
            self.steps(lane, &name, false).await;
        }
        self.queue(lane).done(&name);
    }
}

/// Returns the error of what a provider leaves without an answer.
pub(super) fn no_answer() -> CloudError {
    CloudError::new(ErrorKind::Malformed, "the provider gave no answer")
}
