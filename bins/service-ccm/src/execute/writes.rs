//! Writes to Services: finalizer, status, conditions, annotations.

use std::time::Duration;

use ccm_base::clock;
use ccm_cloud::LoadBalancerTraits;
use ccm_controller::{
    queue::Priority,
    writer::{self, Stopped},
};
use ccm_kube::{
    ApiError,
    write::{ConditionChange, StatusPatch},
};
use ccm_objects::{Service, ServiceIngress, Shared as Name, service_keys};
use serde_json::{Value, json};

use super::{Lane, Lanes};
use crate::plan::{
    Known, Step,
    reason::{PROVISIONING, Reason, SERVING},
    status::{DIGEST, ID, NewCondition, StatusChange, Written},
};

/// Delay after a conflict, so that the informer receives the other writer's change.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

impl Lanes {
    /// Writes one step. Returns whether the plan goes on.
    pub(super) async fn write(&self, lane: Lane, service: &Service, step: &Step) -> bool {
        let (kind, patch) = match step {
            Step::Protect => ("protect", protect(service)),
            Step::Release => {
                let own = self.handles.balancers.with(service, |entry| entry.annotations.clone());
                let traits = self.handles.load_balancers().map(|one| one.traits());
                ("release", release(service, &own, &traits.unwrap_or_default()))
            }
            Step::Write(change) => ("status", status(service, change)),
            _ => return true,
        };
        let answer = self.writer.patch_status(service, &patch).await;
        if let Some(answer) = writer::answer(&answer) {
            self.handles.metrics.written(kind, answer);
        }
        match answer {
            Ok(_) => {
                self.written(service, step);
                true
            }
            Err(why) => {
                self.refused(lane, service, kind, why);
                false
            }
        }
    }

    fn written(&self, service: &Service, step: &Step) {
        let now = self.handles.timeline.now();
        let has_address = match step {
            Step::Release => {
                self.handles.balancers.forget(&service.key);
                return;
            }
            // Without finalizer and address it is new: it waits for no list of what is there.
            Step::Protect => {
                let is_new =
                    service.details.as_ref().is_some_and(|details| details.ingress.is_empty());
                self.handles.balancers.with(service, |entry| {
                    if is_new && entry.state.known == Known::Nothing {
                        entry.state.known = Known::Absent;
                    }
                });
                return;
            }
            Step::Write(change) => {
                if !change.conditions.is_empty() {
                    self.handles.balancers.with(service, |entry| {
                        let last = entry.state.condition_written;
                        entry.state.condition_written =
                            Some(Written::after(last, &change.conditions, now));
                    });
                }
                self.address_changed(service, change);
                change.ingress.as_ref().is_some_and(|ingress| !ingress.is_empty())
            }
            _ => false,
        };
        let details = service.details.as_deref();
        if has_address
            && let Some(details) = details.filter(|details| details.ingress.is_empty())
            && let Some(created) = details.created
            && let Ok(age) = Duration::try_from(clock::wall().duration_since(created))
        {
            self.handles.metrics.provisioned(age);
        }
    }

    /// Reports that addresses which the Service showed are not its load balancer's any more.
    fn address_changed(&self, service: &Service, change: &StatusChange) {
        let (Some(now), Some(details)) = (&change.ingress, &service.details) else { return };
        let (before, now) = (addresses(&details.ingress), addresses(now));
        if now.is_empty() || before.iter().all(|one| now.contains(one)) {
            return;
        }
        let text = format!("{} -> {}", before.join(", "), now.join(", "));
        self.handles.reports.address_changed(service, &text);
        self.handles.metrics.address_changed();
    }

    fn refused(&self, lane: Lane, service: &Service, kind: &str, why: Stopped) {
        let (queue, name) = (self.queue(lane), Name::clone(&service.key));
        match why {
            // The plan was made for an older version of the Service.
            Stopped::Refused(ApiError::Conflict) => {
                queue.add_after(name, AFTER_CONFLICT, Priority::Urgent);
            }
            why => {
                if let Some((error, pace)) = why.queue_again(queue, name) {
                    self.handles.reports.refused(service, kind, &error, pace);
                }
            }
        }
    }
}

/// Where clients reach a Service.
fn addresses(ingress: &[ServiceIngress]) -> Vec<&str> {
    ingress.iter().filter_map(|one| one.ip.as_deref().or(one.hostname.as_deref())).collect()
}

/// The finalizer and the condition, in one request.
fn protect(service: &Service) -> StatusPatch {
    let creating = NewCondition {
        reason: Reason::Creating,
        message: "the load balancer is being created".to_owned(),
        moves: true,
    };
    let patch = StatusPatch::default().with_finalizer(service_keys::CLEANUP, true);
    with_condition(patch, service, &creating)
}

/// Everything that this program wrote goes. Of a Service that is being deleted only the finalizer.
fn release(service: &Service, of_provider: &[String], traits: &LoadBalancerTraits) -> StatusPatch {
    let mut patch = StatusPatch::default().with_finalizer(service_keys::CLEANUP, false);
    if service.deleting {
        return patch;
    }
    let is_own = |key: &str| {
        [ID, DIGEST].contains(&key)
            || traits.writes(key)
            || of_provider.iter().any(|own| own == key)
    };
    let annotations = service.details.iter().flat_map(|details| details.annotations.keys());
    for key in annotations.filter(|key| is_own(key)) {
        patch = patch.with_annotation(&**key, None);
    }
    let ours = [PROVISIONING, SERVING].into_iter().filter(|kind| service.condition(kind).is_some());
    let gone: Vec<Value> = ours.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
    if !gone.is_empty() {
        patch = patch.with("conditions", gone.into());
    }
    let has_ingress = service.details.as_ref().is_some_and(|details| !details.ingress.is_empty());
    if has_ingress {
        patch = patch.with("loadBalancer", json!({"ingress": null}));
    }
    patch
}

fn status(service: &Service, change: &StatusChange) -> StatusPatch {
    let mut patch = StatusPatch::default();
    if let Some(ingress) = &change.ingress {
        // The API server replaces this list whole.
        let value = if ingress.is_empty() { Value::Null } else { json!(ingress) };
        patch = patch.with("loadBalancer", json!({"ingress": value}));
    }
    for condition in &change.conditions {
        patch = with_condition(patch, service, condition);
    }
    for (key, value) in &change.annotations {
        patch = patch.with_annotation(key, value.clone());
    }
    patch
}

fn with_condition(patch: StatusPatch, service: &Service, condition: &NewCondition) -> StatusPatch {
    let NewCondition { reason, message, moves } = condition;
    let old = service.condition(reason.condition()).and_then(|old| old.last_transition_time);
    patch.with_condition(&ConditionChange {
        kind: reason.condition(),
        status: reason.status(),
        reason: reason.as_str().to_owned(),
        message: message.clone(),
        last_transition_time: old.filter(|_| !moves).unwrap_or_else(clock::wall),
    })
}
