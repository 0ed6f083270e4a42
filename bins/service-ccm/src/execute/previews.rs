//! Asks the cloud what it would change: for the page `/plan` of an observer, and for load balancers
//! that wait to be adopted. Changes nothing.

use std::sync::Arc;

use ccm_cloud::{CloudError, ErrorKind, FrontEnd, LoadBalancers, Wanted};
use ccm_controller::queue::Priority;
use ccm_objects::Shared as Name;

use super::{
    Due, Lane, Lanes,
    answers::{each_answer, no_answer},
};

/// One Service whose changes are previewed.
pub(super) struct Previewed {
    due: Due,
    question: Wanted,
}

impl Lanes {
    pub(super) fn to_preview(&self, due: Due, front_end: Arc<FrontEnd>) -> Previewed {
        let adoptable = self
            .handles
            .balancers
            .with(&due.service, |entry| entry.state().adoptable.as_ref().map(|(id, _)| id.clone()));
        let mut question = self.question(&due, front_end);
        question.adopt = question.adopt.or(adoptable);
        Previewed { due, question }
    }

    pub(super) async fn preview(
        &self,
        lane: Lane,
        balancers: &dyn LoadBalancers,
        asked: Vec<Previewed>,
    ) {
        if asked.is_empty() {
            return;
        }
        let questions: Vec<Wanted> = asked.iter().map(|one| one.question.clone()).collect();
        let answers = balancers.preview(&questions, self.handles.call(false));
        each_answer(asked, answers, no_answer(), |asked, answer| async move {
            self.previewed(lane, &asked, answer).await;
        })
        .await;
    }

    async fn previewed(
        &self,
        lane: Lane,
        asked: &Previewed,
        answer: Result<Vec<String>, CloudError>,
    ) {
        let (service, digest) = (&asked.due.service, asked.question.front_end.digest);
        let (queue, name) = (self.queue(lane), &service.key);
        let lines = match answer {
            Ok(lines) => lines,
            Err(error) if error.kind == ErrorKind::Unsupported => {
                vec!["unknown: the provider has no preview".to_owned()]
            }
            Err(error) => {
                tracing::warn!(service = &**name, "cannot preview the load balancer: {error}");
                queue.retry_as(Name::clone(name), error.class());
                return queue.done(name);
            }
        };
        self.handles.balancers.with(service, |entry| entry.previewed(digest, lines));
        queue.forget(name);
        if self.steps(lane, name).await.is_some() {
            queue.add(Name::clone(name), Priority::Urgent);
        }
        queue.done(name);
    }
}
