//! Writes to Services: finalizer, status, conditions, annotations.

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::{machine::log_unexpected, queue::WorkQueue, writer};
use ccm_kube::write;
use ccm_objects::{Service, Shared as Name, service_keys};
use serde_json::{Value, json};

use super::lanes::Lanes;
use crate::{
    machine::{
        effect::{Ask, Effect, Lane, Write},
        event::{Event, Written},
        writes::kind,
    },
    plan::{
        Step,
        reason::{PROVISIONING, SERVING},
        status::{NewCondition, StatusPatch},
    },
};

/// The most steps of one Service in a row.
const STEPS: usize = 8;

impl Lanes {
    pub(super) fn queue(&self, lane: Lane) -> &WorkQueue<Name> {
        self.translator.performer.queue(lane)
    }

    /// Makes the writes that are due for a Service until a call to the cloud is due, or nothing is.
    pub(super) async fn steps(&self, lane: Lane, name: &Name, may_call: bool) -> Option<Ask> {
        let performer = &self.translator.performer;
        for _ in 0..STEPS {
            let mut goes_on = false;
            for request in performer.apply(self.translator.due(lane, name, may_call)) {
                match request {
                    Effect::Ask(ask) => return Some(*ask),
                    Effect::Write(write) => goes_on |= self.write(*write).await,
                    other => log_unexpected(&other),
                }
            }
            if !goes_on {
                return None;
            }
        }
        // Other clients change this Service as fast as this program does.
        self.queue(lane).retry(Name::clone(name));
        None
    }

    /// Makes a write. Returns true if the Service is due again at once.
    pub(super) async fn write(&self, write: Write) -> bool {
        let patch = status(&write.service, &write.change);
        let patch = match &write.step {
            Step::Protect => patch.with_finalizer(service_keys::CLEANUP, true),
            Step::Release => release(patch, &write.service),
            _ => patch,
        };
        let performer = &self.translator.performer;
        let answer = self.writer.patch_status(&write.service, &patch).await;
        if let Some(answer) = writer::answer(&answer) {
            performer.metrics.written(kind(&write.step), answer);
        }
        if let Err(why) = &answer
            && why.refusal().is_none()
        {
            tracing::debug!(service = &*write.service.key, "not written: {why}");
        }
        let answer = answer.map_err(|why| why.refusal().cloned());
        let Write { lane, service, step, .. } = write;
        let written = Written { lane, service: Arc::clone(&service), step, answer };
        let requests = performer.apply(Event::Written(written));
        requests.iter().any(|request| matches!(request, Effect::Look(..)))
    }
}

/// Removes the finalizer; and the conditions, unless the Service is being deleted.
fn release(patch: write::StatusPatch, service: &Service) -> write::StatusPatch {
    let patch = patch.with_finalizer(service_keys::CLEANUP, false);
    let is_ours = |kind: &&str| !service.deleting && service.condition(kind).is_some();
    let ours = [PROVISIONING, SERVING].into_iter().filter(is_ours);
    let gone: Vec<Value> = ours.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
    if gone.is_empty() { patch } else { patch.with("conditions", gone.into()) }
}

fn status(service: &Service, change: &StatusPatch) -> write::StatusPatch {
    let mut patch = write::StatusPatch::default();
    if let Some(ingress) = &change.ingress {
        // The API server replaces this list as a whole.
        let value = if ingress.is_empty() { Value::Null } else { json!(ingress) };
        patch = patch.with("loadBalancer", json!({"ingress": value}));
    }
    for condition in &change.conditions {
        patch = patch.with_condition(&condition_change(service, condition));
    }
    for (key, value) in &change.annotations {
        patch = patch.with_annotation(key, value.clone());
    }
    patch
}

/// Returns the change of a condition, which keeps its time until its status changes.
fn condition_change(service: &Service, (reason, message): &NewCondition) -> write::ConditionChange {
    let old = service.condition(reason.condition());
    let old = old.filter(|old| &*old.status == reason.status());
    let since = old.and_then(|old| old.last_transition_time);
    write::ConditionChange {
        kind: reason.condition(),
        status: reason.status(),
        reason: reason.as_str().to_owned(),
        message: message.clone(),
        last_transition_time: since.unwrap_or_else(clock::wall),
    }
}
