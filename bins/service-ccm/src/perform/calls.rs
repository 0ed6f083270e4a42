//! Calls to the cloud about load balancers: at most one of each kind for a batch of Services.

use ccm_cloud::{
    AbsenceProof, Answers, CloudError, Digest, ErrorKind, LoadBalancer, LoadBalancers,
    MemberChange, MembersSet, Progress, Unwanted, Wanted,
};
use ccm_objects::Shared as Name;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{WRITES, lanes::Lanes};
use crate::machine::{
    answers::SHORTEST,
    effect::{Ask, Effect, Lane, Question},
    event::{Answer, Answered, Event},
};

/// The Service that an answer is about.
struct About {
    lane: Lane,
    name: Name,
    uid: Box<str>,
    is_urgent: bool,
    is_charged: bool,
    may_be_given_up: bool,
    is_duplicate: bool,
    digest: Option<Digest>,
}

/// The questions of one call.
struct Batch<Q> {
    about: Vec<About>,
    questions: Vec<Q>,
}

impl<Q> Default for Batch<Q> {
    fn default() -> Self {
        Self { about: Vec::new(), questions: Vec::new() }
    }
}

impl<Q> Batch<Q> {
    fn add(&mut self, about: About, question: Q) {
        self.about.push(about);
        self.questions.push(question);
    }
}

impl Lanes {
    /// Makes these calls, at most one of each kind.
    pub(super) async fn call(&self, all: Vec<Ask>) {
        if all.is_empty() {
            return;
        }
        let (mut ensure, mut members) = (Batch::default(), Batch::default());
        let (mut delete, mut preview) = (Batch::default(), Batch::default());
        for Ask { lane, name, uid, question, is_urgent, is_charged, may_be_given_up } in all {
            let is_duplicate = matches!(&question, Question::Delete(one) if one.duplicate);
            let digest = match &question {
                Question::Preview(wanted) => Some(wanted.front_end.digest),
                _ => None,
            };
            let about = About {
                lane,
                name,
                uid,
                is_urgent,
                is_charged,
                may_be_given_up,
                is_duplicate,
                digest,
            };
            match question {
                Question::Ensure(wanted) => ensure.add(about, wanted),
                Question::Members(change) => members.add(about, change),
                Question::Delete(unwanted) => delete.add(about, unwanted),
                Question::Preview(wanted) => preview.add(about, wanted),
            }
        }
        match self.translator.load_balancers() {
            Ok(balancers) => {
                tokio::join!(
                    self.ensure(&*balancers, ensure),
                    self.set_members(&*balancers, members),
                    self.delete(&*balancers, delete),
                    self.preview(&*balancers, preview),
                );
            }
            Err(error) => {
                let error = CloudError { unsent: true, ..error };
                self.answers(ensure.about, stream::empty().boxed(), error.clone(), ensured).await;
                self.answers(members.about, stream::empty().boxed(), error.clone(), members_set)
                    .await;
                self.answers(delete.about, stream::empty().boxed(), error.clone(), deleted).await;
                self.answers(preview.about, stream::empty().boxed(), error, previewed).await;
            }
        }
    }

    async fn ensure(&self, balancers: &dyn LoadBalancers, batch: Batch<Wanted>) {
        let Batch { about, questions } = batch;
        let is_urgent = about.iter().any(|one| one.is_urgent);
        if about.iter().any(|one| one.is_charged) {
            self.translator.store_note().await;
        }
        if about.is_empty() {
            return;
        }
        let answers = balancers.ensure(&questions, self.translator.call(is_urgent));
        self.answers(about, answers, no_answer().that_may_be_done(), ensured).await;
    }

    async fn set_members(&self, balancers: &dyn LoadBalancers, batch: Batch<MemberChange>) {
        let Batch { about, questions } = batch;
        if about.is_empty() {
            return;
        }
        let started = Instant::now();
        let answers = balancers.set_members(&questions, self.translator.call(false));
        let answers = self.or_given_up(&about, answers);
        let is_done =
            self.answers(about, answers, no_answer().that_may_be_done(), members_set).await;
        let performer = &self.translator.performer;
        performer.metrics.members_changed(started.elapsed());
        if is_done {
            let took = performer.door.read(|machine, now| now.since(machine.published()));
            performer.metrics.nodes_synced(took);
        }
    }

    async fn delete(&self, balancers: &dyn LoadBalancers, batch: Batch<Unwanted>) {
        let Batch { about, questions } = batch;
        if about.is_empty() {
            return;
        }
        let answers = balancers.delete(&questions, self.translator.call(false));
        self.answers(about, answers, no_answer().that_may_be_done(), deleted).await;
    }

    async fn preview(&self, balancers: &dyn LoadBalancers, batch: Batch<Wanted>) {
        let Batch { about, questions } = batch;
        if about.is_empty() {
            return;
        }
        let answers = balancers.preview(&questions, self.translator.call(false));
        self.answers(about, answers, no_answer(), previewed).await;
    }

    /// The answer to a slow call about members, unless the cloud answers other calls again before:
    /// then the call is lost, and another one is made at once. A creation is never given up, because
    /// the cloud could carry it out beside the next one.
    fn or_given_up<'a, T: Send + 'a>(
        &'a self,
        about: &[About],
        answers: Answers<'a, T>,
    ) -> Answers<'a, T> {
        match about {
            [one] if one.may_be_given_up => {}
            _ => return answers,
        }
        let first = async move {
            let mut answers = answers;
            let answers_again = self.translator.performer.wakes.slow_calls.notified();
            tokio::select! {
                biased;
                answer = answers.next() => answer,
                () = answers_again => Some((0, Err(given_up()))),
            }
        };
        stream::once(first).filter_map(std::future::ready).boxed()
    }

    /// Passes on each answer as it arrives, and `missing` for what has none, and makes the writes that follow.
    /// Returns true if one of them has carried something out.
    async fn answers<T: IsDone>(
        &self,
        about: Vec<About>,
        answers: Answers<'_, T>,
        missing: CloudError,
        read: fn(&About, Result<T, CloudError>) -> Answer,
    ) -> bool {
        let open: Vec<Mutex<Option<About>>> =
            about.into_iter().map(|one| Mutex::new(Some(one))).collect();
        let (open, is_done) = (&open, &Mutex::new(false));
        answers
            .for_each_concurrent(WRITES, |(place, answer)| async move {
                let Some(about) = open.get(place).and_then(|one| one.lock().take()) else { return };
                *is_done.lock() |= answer.as_ref().is_ok_and(IsDone::is_done);
                self.answered(&about, read(&about, answer)).await;
            })
            .await;
        for one in open {
            let about = one.lock().take();
            if let Some(about) = about {
                self.answered(&about, read(&about, Err(missing.clone()))).await;
            }
        }
        *is_done.lock()
    }

    /// Writes follow at once; the next call to the cloud is another batch's.
    async fn answered(&self, About { lane, name, uid, .. }: &About, answer: Answer) {
        let (lane, name, uid) = (*lane, Name::clone(name), uid.clone());
        let answered = Answered { lane, name: Name::clone(&name), uid, answer };
        let requests = self.translator.performer.apply(Event::Answered(answered));
        if requests.iter().any(|request| matches!(request, Effect::Look(..))) {
            self.steps(lane, &name, false).await;
        }
        self.queue(lane).done(&name);
    }
}

/// Tells if an answer has carried something out.
trait IsDone: Send {
    fn is_done(&self) -> bool;
}

impl<T: Send> IsDone for Progress<T> {
    fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

impl IsDone for Vec<String> {
    fn is_done(&self) -> bool {
        false
    }
}

fn ensured(_: &About, answer: Result<Progress<LoadBalancer>, CloudError>) -> Answer {
    Answer::Ensure(Box::new(answer))
}

fn members_set(_: &About, answer: Result<Progress<MembersSet>, CloudError>) -> Answer {
    Answer::Members(answer)
}

fn deleted(about: &About, answer: Result<Progress<AbsenceProof>, CloudError>) -> Answer {
    match about.is_duplicate {
        true => Answer::DeleteDuplicate(answer),
        false => Answer::Delete(answer),
    }
}

fn previewed(about: &About, answer: Result<Vec<String>, CloudError>) -> Answer {
    let unknown = Digest { version: 0, hash: 0 };
    Answer::Preview(about.digest.unwrap_or(unknown), answer)
}

/// The error of what a provider leaves without an answer.
pub(super) fn no_answer() -> CloudError {
    CloudError::new(ErrorKind::Malformed, "the provider gave no answer")
}

fn given_up() -> CloudError {
    let what = "no answer, and the cloud answers other calls";
    CloudError::new(ErrorKind::Timeout, what).that_may_be_done().with_retry_after(SHORTEST)
}
