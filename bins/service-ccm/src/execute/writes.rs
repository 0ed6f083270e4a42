//! Writes to Services: finalizer, status, conditions, annotations.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::{At, clock};
use ccm_controller::{
    queue::Priority,
    repeats::Repeated,
    writer::{self, Stopped},
};
use ccm_kube::{
    ApiError,
    write::{ConditionChange, StatusPatch},
};
use ccm_objects::{Service, ServiceIngress, Shared as Name, service_keys};
use serde_json::{Value, json};

use super::{Due, Lane, Lanes};
use crate::{
    machine::Entry,
    observe::Handles,
    plan::{
        RELEASE_APPROVED, Step,
        evidence::INSTANCE,
        reason::{PROVISIONING, Reason, SERVING},
        status::{DIGEST, ID, NewCondition, StatusChange},
    },
};

/// Delay after a conflict, so that the informer receives the other writer's change.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

impl Lanes {
    /// Writes one step. Returns whether the plan goes on.
    pub(super) async fn write(&self, lane: Lane, service: &Service, step: &Step) -> bool {
        let (kind, patch) = match step {
            Step::Protect => ("protect", protect(service, self.handles.classes().signature())),
            Step::Release => {
                let traits = self.handles.load_balancers().map(|one| one.traits());
                let (traits, rules) =
                    (traits.unwrap_or_default(), self.handles.settings.borrow().shown());
                let release = self.handles.balancers.with(service, |entry| {
                    let written = entry.annotations();
                    release(service, entry, |key| rules.is_removed(key, &traits, written))
                });
                ("release", release)
            }
            Step::Write(change) => ("status", status(service, change)),
            _ => return true,
        };
        let answer = self.writer.patch_status(service, &patch).await;
        if let Some(answer) = writer::answer(&answer) {
            self.handles.metrics.written(kind, answer);
        }
        match answer {
            Ok(answer) => {
                self.repeated(service, |entry, now| entry.step_written(step, &answer, now));
                self.written(service, step);
                true
            }
            Err(why) => {
                self.refused(lane, service, kind, why);
                false
            }
        }
    }

    /// Records that the provider has confirmed a call about this Service.
    pub(super) fn called(&self, Due { service, step, members, .. }: &Due) {
        self.repeated(service, |entry, now| {
            entry.step_called(step, service, members, now).into_iter().collect()
        });
    }

    /// Records confirmed writes, and reports those that do not last.
    fn repeated(&self, service: &Service, add: impl FnOnce(&mut Entry, At) -> Vec<Repeated>) {
        let Handles { balancers, timeline, repeats, reports, .. } = &self.handles;
        let all = balancers.with(service, |entry| add(entry, timeline.now()));
        for one in &all {
            reports.repeated(service, repeats, one);
        }
    }

    fn written(&self, service: &Service, step: &Step) {
        let now = self.handles.timeline.now();
        let has_address = match step {
            Step::Release => {
                self.handles.balancers.machine().forget(&service.key);
                return;
            }
            // Without finalizer and address it is new: it waits for no list of what is there.
            Step::Protect => {
                let is_new =
                    service.details.as_ref().is_some_and(|details| details.ingress.is_empty());
                self.handles.balancers.with(service, |entry| entry.protected(is_new));
                return;
            }
            Step::Write(change) => {
                if !change.conditions.is_empty() {
                    self.handles
                        .balancers
                        .with(service, |entry| entry.conditions_written(&change.conditions, now));
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

    /// Reports that the Service has got other addresses.
    fn address_changed(&self, service: &Service, change: &StatusChange) {
        let (Some(written), Some(details)) = (&change.ingress, &service.details) else { return };
        let (before, now) = (addresses(&details.ingress), addresses(written));
        // If the load balancer has kept its addresses, another client has overwritten the status.
        let is_restored =
            self.handles.balancers.with(service, |entry| entry.addresses_written(written));
        if is_restored || now.is_empty() || before.iter().all(|one| now.contains(one)) {
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

/// The addresses in the status of a Service, as text.
fn addresses(ingress: &[ServiceIngress]) -> Vec<&str> {
    ingress.iter().filter_map(|one| one.ip.as_deref().or(one.hostname.as_deref())).collect()
}

/// The finalizer and the condition, in one request.
fn protect(service: &Service, signature: BTreeMap<String, Option<String>>) -> StatusPatch {
    let creating = NewCondition {
        reason: Reason::Creating,
        message: "the load balancer is being created".to_owned(),
        moves: true,
    };
    let mut patch = StatusPatch::default().with_finalizer(service_keys::CLEANUP, true);
    for (key, value) in signature {
        // The annotation may come from a copied manifest.
        if service.annotation(&key) != value.as_deref() {
            patch = patch.with_annotation(&key, value);
        }
    }
    with_condition(patch, service, &creating)
}

/// Everything that this program wrote goes. Of a Service that is being deleted only the finalizer.
fn release(service: &Service, entry: &Entry, is_providers: impl Fn(&str) -> bool) -> StatusPatch {
    let mut patch = StatusPatch::default().with_finalizer(service_keys::CLEANUP, false);
    if service.deleting {
        return patch;
    }
    let is_own =
        |key: &str| [ID, DIGEST, INSTANCE, RELEASE_APPROVED].contains(&key) || is_providers(key);
    let annotations = service.details.iter().flat_map(|details| details.annotations.keys());
    for key in annotations.filter(|key| is_own(key)) {
        patch = patch.with_annotation(&**key, None);
    }
    let ours = [PROVISIONING, SERVING].into_iter().filter(|kind| service.condition(kind).is_some());
    let gone: Vec<Value> = ours.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
    if !gone.is_empty() {
        patch = patch.with("conditions", gone.into());
    }
    let mut ingress = service.details.iter().flat_map(|details| &details.ingress);
    // The controller of the Service's class may have written these addresses.
    if ingress.any(|one| !service.is_load_balancer || entry.shown_to_the_end().contains(one)) {
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
