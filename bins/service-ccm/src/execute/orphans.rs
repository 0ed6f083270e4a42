//! Deletes load balancers without a Service, as [`plan::orphans`](crate::plan::orphans) decides,
//! and shows them on the page `/plan`.

use std::{collections::BTreeSet, time::Duration};

use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, LoadBalancers, Loss, Progress, Unwanted};
use ccm_controller::{
    passes::{Next, Pass},
    reader::Reader,
};
use ccm_objects::{ObjectRef, Service};
use ccm_runtime::{health::Condition, leadership::LeaseAnnotations, plans};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::WRITES;
use crate::{
    metrics::Ended,
    observe::{Handles, lease},
    plan::{
        CallKind,
        orphans::{Orphan, Verdict, is_gone},
    },
};

/// The kind of these objects on the page `/plan`.
const KIND: &str = "LoadBalancer";

/// The deletions.
pub(crate) struct Deletions {
    handles: Handles,
    reader: Reader<Service>,
    lease: LeaseAnnotations,
    health: Condition,
    /// The IDs on the page.
    shown: BTreeSet<String>,
}

/// An orphan to be deleted, and whether its owner has another one.
struct Due {
    orphan: Orphan,
    is_duplicate: bool,
}

impl Pass for Deletions {
    async fn pass(&mut self) -> Next {
        let (rules, now) = (self.handles.settings.borrow().orphans(), self.handles.timeline.now());
        let decided = self.handles.orphans.lock().decide(now, rules);
        self.show(&decided);
        let next = decided.iter().filter_map(|(_, verdict)| verdict.until()).min();
        let due: Vec<Due> = decided.into_iter().filter_map(due).collect();
        if !due.is_empty() && !self.handles.plans.is_observing() {
            // They are charged to the budget.
            lease::store(&self.handles, &self.lease).await;
            self.delete(due).await;
            return Next::At(Instant::now());
        }
        next.map_or(Next::Period, |next| Next::At(self.handles.timeline.instant(next)))
    }

    fn period(&self) -> Duration {
        self.handles.settings.borrow().load_balancer_audit_period
    }
}

impl Deletions {
    pub(crate) fn new(
        handles: &Handles,
        reader: Reader<Service>,
        lease: LeaseAnnotations,
        health: Condition,
    ) -> Self {
        Self { handles: handles.clone(), reader, lease, health, shown: BTreeSet::new() }
    }

    /// Publishes what is decided: page, gauge, check and log.
    fn show(&mut self, decided: &[(Orphan, Verdict)]) {
        for (orphan, verdict) in decided {
            self.handles.plans.set(&reference(orphan), vec![step(orphan, verdict)]);
        }
        let shown: BTreeSet<String> = decided.iter().map(|(one, _)| one.id.clone()).collect();
        for gone in self.shown.difference(&shown) {
            self.handles.plans.clear(KIND, gone);
        }
        self.shown = shown;
        let mut held = decided.iter().filter(|(_, verdict)| verdict.is_held()).peekable();
        let first = held.peek().and_then(|(_, verdict)| verdict.why_not());
        let held = held.count();
        self.handles.metrics.orphans_held(held);
        let all = decided.len();
        match first {
            Some(why) => {
                let line =
                    format!("{held} of {all} load balancers without a Service are held: {why}");
                self.handles.reports.orphans_held(&line, &why);
                self.health.fail(line);
            }
            None => self.health.pass(format!("{all} load balancers without a Service, 0 held")),
        }
    }

    /// Deletes those whose Service the API server does not have.
    async fn delete(&self, mut all: Vec<Due>) {
        let balancers = match self.handles.load_balancers() {
            Ok(balancers) => balancers,
            Err(error) => return all.iter().for_each(|due| self.failed(&due.orphan, &error)),
        };
        let most = balancers.traits().max_batch.max(1);
        while !all.is_empty() && !self.handles.deletions.closing().is_cancelled() {
            let part = all.drain(..most.min(all.len())).collect::<Vec<_>>();
            self.handles.orphans.lock().call(part.iter().map(|due| &due.orphan.owner));
            let confirmed: Vec<Due> = stream::iter(part)
                .map(|due| async move { self.confirm(&due.orphan).await.then_some(due) })
                .buffer_unordered(WRITES)
                .filter_map(std::future::ready)
                .collect()
                .await;
            self.call(&*balancers, &confirmed).await;
            self.handles.orphans.lock().called();
        }
    }

    /// Asks the API server whether a Service may still have this load balancer.
    async fn confirm(&self, orphan: &Orphan) -> bool {
        let found = self.reader.get(&orphan.owner.to_string()).await;
        let mut orphans = self.handles.orphans.lock();
        match found {
            Ok(found) if is_gone(&orphan.owner, found.as_ref()) => true,
            Ok(_) => {
                orphans.refuted(&orphan.id);
                self.handles.reports.orphan_refuted(orphan);
                false
            }
            Err(error) => {
                let why =
                    format!("the API server does not say whether its Service exists: {error}");
                self.handles.reports.orphan_failed(orphan, &why);
                orphans.unconfirmed(self.handles.timeline.now(), &orphan.id, why);
                false
            }
        }
    }

    async fn call(&self, balancers: &dyn LoadBalancers, all: &[Due]) {
        let questions: Vec<Unwanted> = all
            .iter()
            .map(|due| Unwanted {
                owner: due.orphan.owner.clone(),
                known: Some(due.orphan.id.clone()),
                duplicate: due.is_duplicate,
                // The Service's annotations are not known any more, so the provider keeps the address.
                settings: None,
                address: None,
                service: None,
            })
            .collect();
        if questions.is_empty() {
            return;
        }
        let mut unanswered: Vec<Option<&Due>> = all.iter().map(Some).collect();
        let mut answers = balancers.delete(&questions, self.handles.call(false));
        while let Some((place, answer)) = answers.next().await {
            if let Some(due) = unanswered.get_mut(place).and_then(Option::take) {
                self.answered(&due.orphan, answer);
            }
        }
        for due in unanswered.into_iter().flatten() {
            let error = CloudError::new(ErrorKind::Malformed, "the provider gave no answer");
            self.answered(&due.orphan, Err(error.that_may_be_done()));
        }
    }

    fn answered(&self, orphan: &Orphan, answer: Result<Progress<AbsenceProof>, CloudError>) {
        let handles = &self.handles;
        handles.metrics.ended(CallKind::Delete, answer.as_ref().map(Ended::from));
        match answer {
            Ok(Progress::Done(proof)) => {
                handles.orphans.lock().ended(&orphan.id);
                handles.metrics.orphan_deleted();
                handles.reports.orphan_deleted(orphan, &proof.evidence);
            }
            Ok(Progress::InProgress(waiting)) => {
                let until = handles.timeline.now() + waiting.check_after;
                handles.orphans.lock().works(&orphan.id, waiting.what, until);
            }
            Ok(
                Progress::Elsewhere(why)
                | Progress::NotSeen(why)
                | Progress::Lost(Loss { why, .. }),
            ) => {
                let error = CloudError::new(ErrorKind::Conflict, why);
                self.failed(orphan, &error);
            }
            Err(error) => self.failed(orphan, &error),
        }
    }

    fn failed(&self, orphan: &Orphan, error: &CloudError) {
        let why = format!("it cannot be deleted: {error}");
        self.handles.reports.orphan_failed(orphan, &why);
        self.handles.orphans.lock().failed(self.handles.timeline.now(), &orphan.id, why);
    }
}

fn due((orphan, verdict): (Orphan, Verdict)) -> Option<Due> {
    let Verdict::Due { is_duplicate } = verdict else { return None };
    Some(Due { orphan, is_duplicate })
}

fn reference(orphan: &Orphan) -> ObjectRef {
    ObjectRef { kind: KIND, name: orphan.id.clone(), ..ObjectRef::default() }
}

fn step(orphan: &Orphan, verdict: &Verdict) -> plans::Step {
    let Orphan { id, name, owner, .. } = orphan;
    plans::Step {
        step: "delete-orphan",
        changes: vec![format!("load balancer {id} ({name}), {}", orphan.age_and_cost())],
        reason: format!(
            "no Service of UID {} is of type LoadBalancer or has the finalizer; it was {owner}",
            owner.uid
        ),
        held: verdict.why_not(),
    }
}
