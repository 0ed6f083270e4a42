//! Validation: the real server's 422 errors, as far as controllers can cause them.

use serde_json::Value;

use super::{
    resources::{self, Resource},
    status::Cause,
};

mod event;
mod meta;
pub(super) mod names;
mod node;
mod service;

/// Returns the causes for rejecting this new object.
pub(super) fn created(resource: &Resource, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    meta::check(resource, value, &mut causes);
    content(resource, value, &mut causes);
    causes
}

/// Returns the causes for rejecting `new` as an update of `old`.
pub(super) fn updated(resource: &Resource, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    meta::check(resource, new, &mut causes);
    meta::check_update(old, new, &mut causes);
    content(resource, new, &mut causes);
    match resource.slot {
        resources::NODES => node::check_update(old, new, &mut causes),
        resources::SERVICES => service::check_update(old, new, &mut causes),
        resources::CONFIG_MAPS | resources::SECRETS => check_immutable(old, new, &mut causes),
        _ => {}
    }
    causes
}

fn content(resource: &Resource, value: &Value, causes: &mut Vec<Cause>) {
    match resource.slot {
        resources::NODES => node::check(value, causes),
        resources::LEASES => check_lease(&value["spec"], causes),
        resources::SERVICES => service::check(value, causes),
        resources::EVENTS => event::check(resource, value, causes),
        resources::CONFIG_MAPS | resources::SECRETS => check_keys(value, causes),
        _ => {}
    }
}

fn check_lease(spec: &Value, causes: &mut Vec<Cause>) {
    let duration = &spec["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            duration,
            "must be greater than 0",
        ));
    }
    let transitions = &spec["leaseTransitions"];
    if transitions.as_i64().is_some_and(|count| count < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            transitions,
            "must be greater than or equal to 0",
        ));
    }
}

fn check_keys(value: &Value, causes: &mut Vec<Cause>) {
    for map in ["data", "binaryData"] {
        for key in value[map].as_object().into_iter().flatten().map(|(key, _)| key) {
            let legal =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if key.len() > 253 || key == "." || key.starts_with("..") || !key.bytes().all(legal) {
                let detail =
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                causes.push(Cause::invalid(
                    format!("{map}[{key}]"),
                    &Value::from(key.as_str()),
                    detail,
                ));
            }
        }
    }
}

fn check_immutable(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["immutable"] != Value::Bool(true) {
        return;
    }
    for field in ["immutable", "data", "binaryData"] {
        if old[field] != new[field] {
            causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
}

#[cfg(test)]
mod tests;
