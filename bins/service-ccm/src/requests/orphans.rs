//! Deletes load balancers without a Service, after the API server has confirmed each.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{CloudError, LoadBalancers, Unwanted};
use ccm_controller::{
    passes::{NextPass, Pass},
    reader::Reader,
};
use ccm_objects::Service;
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{WRITES, calls::no_answer};
use crate::{
    machine::{
        effect::{Effect, OrphanDue},
        event::Event,
    },
    translate::Translator,
};

/// The deletions.
pub(crate) struct Deletions {
    pub(crate) translator: Arc<Translator>,
    pub(crate) reader: Reader<Service>,
}

impl Pass for Deletions {
    async fn pass(&mut self) -> NextPass {
        let performer = &self.translator.performer;
        let rules = self.translator.settings.borrow().orphans();
        for request in performer.apply(Event::OrphansDue(rules)) {
            if let Effect::DeleteOrphans(due) = request {
                // The deletions are charged to the budget.
                self.translator.store_note().await;
                self.delete(due).await;
                return NextPass::At(Instant::now());
            }
        }
        let next = performer.door.read(|machine, _| machine.next_orphan());
        next.map_or(NextPass::Period, |next| NextPass::At(performer.door.timeline().instant(next)))
    }

    fn period(&self) -> Duration {
        self.translator.settings.borrow().load_balancer_audit_period
    }
}

impl Deletions {
    /// Deletes those whose Service the API server does not have.
    async fn delete(&self, mut all: Vec<OrphanDue>) {
        let performer = &self.translator.performer;
        let balancers = match self.translator.load_balancers() {
            Ok(balancers) => balancers,
            Err(error) => {
                let error = CloudError { unsent: true, ..error };
                return all.into_iter().for_each(|due| {
                    let (due, answer) = (Box::new(due), Err(error.clone()));
                    performer.apply(Event::OrphanAnswered { due, answer });
                });
            }
        };
        let most = balancers.traits().max_batch.max(1);
        while !all.is_empty() && !performer.wakes.orphans.closing().is_cancelled() {
            let part = all.drain(..most.min(all.len())).collect::<Vec<_>>();
            let owners = part.iter().map(|due| due.orphan.owner.clone()).collect();
            performer.apply(Event::OrphansCalled(owners));
            let confirmed: Vec<OrphanDue> = stream::iter(part)
                .map(|due| self.confirm(due))
                .buffer_unordered(WRITES)
                .filter_map(std::future::ready)
                .collect()
                .await;
            self.call(&*balancers, confirmed).await;
            performer.apply(Event::OrphansCalled(Vec::new()));
        }
    }

    /// Asks the API server whether a Service may still have this load balancer. Returns it if it is deleted.
    async fn confirm(&self, due: OrphanDue) -> Option<OrphanDue> {
        let found = self.reader.get(&due.orphan.owner.to_string()).await;
        let (due, found) = (Box::new(due), found.map(|found| found.map(Box::new)));
        let requests = self.translator.performer.apply(Event::OrphanLookedUp { due, found });
        requests.into_iter().find_map(|request| match request {
            Effect::DeleteOrphan(due) => Some(*due),
            _ => None,
        })
    }

    async fn call(&self, balancers: &dyn LoadBalancers, all: Vec<OrphanDue>) {
        let questions: Vec<Unwanted> = all.iter().map(OrphanDue::question).collect();
        if questions.is_empty() {
            return;
        }
        let answered = |due: OrphanDue, answer| {
            let event = Event::OrphanAnswered { due: Box::new(due), answer };
            drop(self.translator.performer.apply(event));
        };
        let mut unanswered: Vec<Option<OrphanDue>> = all.into_iter().map(Some).collect();
        let mut answers = balancers.delete(&questions, self.translator.call(false));
        while let Some((place, answer)) = answers.next().await {
            if let Some(due) = unanswered.get_mut(place).and_then(Option::take) {
                answered(due, answer);
            }
        }
        for due in unanswered.into_iter().flatten() {
            answered(due, Err(no_answer().that_may_be_done()));
        }
    }
}
