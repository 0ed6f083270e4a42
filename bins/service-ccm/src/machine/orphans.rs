//! Load balancers without a Service: they are deleted as [`plan::orphans`](crate::plan::orphans) decides.

use std::{collections::BTreeSet, mem};

use ccm_base::At;
use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Loss, Progress};
use ccm_kube::ApiError;
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::plans;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    answers::ended,
    effect::{Count, Effect, HealthLine, LogLevel, OrphanDue, PlanPage, TellOrphan},
};
use crate::plan::{
    CallKind,
    orphans::{Orphan, OrphanRules, OrphanVerdict, is_gone},
};

/// The last decision.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct LastDecision {
    /// The IDs on the page.
    shown: BTreeSet<String>,
    /// When the next one may be due without another list.
    next: Option<At>,
}

impl Machine {
    /// Returns when the next load balancer without a Service may be due without another list.
    pub(crate) fn next_orphan(&self) -> Option<At> {
        self.last_decision.next
    }

    /// Decides which load balancers without a Service are deleted.
    pub(super) fn decide_orphans(&mut self, rules: OrphanRules, now: At) -> Vec<Effect> {
        let decided = self.orphans.decide(now, rules);
        self.last_decision.next = decided.iter().filter_map(|(_, verdict)| verdict.until()).min();
        let mut effects = self.show_orphans(&decided);
        let due: Vec<OrphanDue> = decided.into_iter().filter_map(due).collect();
        if !due.is_empty() && !self.is_observing {
            effects.push(Effect::DeleteOrphans(due));
        }
        effects
    }

    /// Publishes what is decided: page, gauge, check and log.
    fn show_orphans(&mut self, decided: &[(Orphan, OrphanVerdict)]) -> Vec<Effect> {
        let show = |(orphan, verdict): &(Orphan, OrphanVerdict)| {
            Effect::Show(PlanPage::Orphan(orphan.id.clone(), step(orphan, verdict)))
        };
        let mut effects: Vec<Effect> = decided.iter().map(show).collect();
        let shown: BTreeSet<String> = decided.iter().map(|(one, _)| one.id.clone()).collect();
        let before = mem::replace(&mut self.last_decision.shown, shown);
        let gone = before.difference(&self.last_decision.shown);
        effects.extend(gone.map(|id| Effect::Show(PlanPage::NoOrphan(id.clone()))));
        let mut held = decided.iter().filter(|(_, verdict)| verdict.is_held()).peekable();
        let first = held.peek().and_then(|(_, verdict)| verdict.why_not());
        let (held, all) = (held.count(), decided.len());
        effects.push(Effect::Count(Count::OrphansHeld(held)));
        let line = match first {
            Some(why) => {
                let line =
                    format!("{held} of {all} load balancers without a Service are held: {why}");
                let tell = TellOrphan::Held { line: line.clone(), why };
                effects.push(Effect::TellOrphan(tell));
                Err(line)
            }
            None => Ok(format!("{all} load balancers without a Service, 0 held")),
        };
        effects.push(Effect::Health(HealthLine::Orphans, line));
        effects
    }

    /// Handles the API server's answer whether a Service may still have this load balancer.
    pub(super) fn orphan_looked_up(
        &mut self,
        due: OrphanDue,
        found: Result<Option<Box<Service>>, ApiError>,
        now: At,
    ) -> Vec<Effect> {
        let orphan = &due.orphan;
        match found {
            Ok(found) if is_gone(&orphan.owner, found.as_deref()) => {
                vec![Effect::DeleteOrphan(Box::new(due))]
            }
            Ok(_) => {
                self.orphans.refuted(&orphan.id);
                let text = format!(
                    "load balancer {} stays: the API server has a Service that asks for it, but the watch does not show it",
                    orphan.id
                );
                forget_and_log(LogLevel::Warn, orphan, text).into()
            }
            Err(error) => {
                let why =
                    format!("the API server does not say whether its Service exists: {error}");
                self.orphans.unconfirmed(now, &orphan.id, why.clone());
                vec![Effect::TellOrphan(failure_report(&due.orphan, why))]
            }
        }
    }

    /// Handles the cloud's answer to a deletion.
    pub(super) fn orphan_answered(
        &mut self,
        due: OrphanDue,
        answer: Result<Progress<AbsenceProof>, CloudError>,
        now: At,
    ) -> Vec<Effect> {
        let orphan = due.orphan;
        let mut effects = vec![Effect::Count(Count::Ended(CallKind::Delete, ended(&answer)))];
        let error = match answer {
            Ok(Progress::Done(AbsenceProof { evidence, kept, .. })) => {
                let kept = kept.map(|kept| format!("; the provider has kept {kept}"));
                let evidence = evidence + &kept.unwrap_or_default();
                self.orphans.ended(&orphan.id);
                let Orphan { id, name, owner, .. } = &orphan;
                let text = format!(
                    "deleted load balancer {id} ({name}), {}, whose Service with UID {} does not exist or does not ask for it; proof: {evidence}",
                    orphan.age_and_cost(),
                    owner.uid
                );
                effects.push(Effect::Count(Count::OrphanDeleted));
                effects.extend(forget_and_log(LogLevel::Info, &orphan, text));
                return effects;
            }
            Ok(Progress::InProgress(waiting)) => {
                self.orphans.works(&orphan.id, waiting.what, now + waiting.check_after);
                return effects;
            }
            Ok(
                Progress::Elsewhere(why)
                | Progress::NotSeen(why)
                | Progress::Lost(Loss { why, .. }),
            ) => CloudError::new(ErrorKind::Conflict, why),
            Err(error) => error,
        };
        let why = format!("it cannot be deleted: {error}");
        self.orphans.record_failure(now, &orphan.id, why.clone());
        effects.push(Effect::TellOrphan(failure_report(&orphan, why)));
        effects
    }
}

/// Returns the report that an attempt to delete this load balancer has failed.
fn failure_report(orphan: &Orphan, why: String) -> TellOrphan {
    TellOrphan::Failed { id: orphan.id.clone(), owner: orphan.owner.to_string().into(), why }
}

/// Logs a line about a load balancer, and forgets the reports about it.
fn forget_and_log(level: LogLevel, orphan: &Orphan, text: String) -> [Effect; 2] {
    let owner = Name::from(orphan.owner.to_string());
    [Effect::ForgetReports(Name::from(&*orphan.id)), Effect::Log(level, Some(owner), text)]
}

fn due((orphan, verdict): (Orphan, OrphanVerdict)) -> Option<OrphanDue> {
    let OrphanVerdict::Due { is_duplicate } = verdict else { return None };
    Some(OrphanDue { orphan, is_duplicate })
}

fn step(orphan: &Orphan, verdict: &OrphanVerdict) -> plans::Step {
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
