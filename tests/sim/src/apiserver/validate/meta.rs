//! Metadata of any object.

use serde_json::Value;

use super::{
    super::{
        resources::{self, Resource},
        status::Cause,
    },
    names,
};

const ANNOTATIONS_MAX: usize = 256 * 1024;

pub(super) fn check(resource: &Resource, value: &Value, causes: &mut Vec<Cause>) {
    let meta = &value["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let problems = match resource.slot {
            resources::NAMESPACES => names::dns_label(name),
            resources::SERVICES if name.contains('.') => vec!["must not contain dots".to_owned()],
            resources::SERVICES => names::dns_label(name),
            resources::EVENTS => names::path_segment(name),
            _ => names::dns_subdomain(name),
        };
        extend(causes, "metadata.name", &meta["name"], problems);
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        extend(causes, "metadata.labels", &Value::from(key.as_str()), names::qualified(key));
        extend(
            causes,
            "metadata.labels",
            value,
            names::label_value(value.as_str().unwrap_or_default()),
        );
    }
    let mut size = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let lower = names::qualified(&key.to_lowercase());
        extend(causes, "metadata.annotations", &Value::from(key.as_str()), lower);
    }
    if size > ANNOTATIONS_MAX {
        let message = format!("Too long: may not be more than {ANNOTATIONS_MAX} bytes");
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".to_owned(),
            message,
        });
    }
    check_owners(&meta["ownerReferences"], causes);
    for (index, finalizer) in meta["finalizers"].as_array().into_iter().flatten().enumerate() {
        check_finalizer(&format!("metadata.finalizers[{index}]"), finalizer, causes);
    }
}

fn extend(causes: &mut Vec<Cause>, field: &str, value: &Value, problems: Vec<String>) {
    causes.extend(problems.iter().map(|problem| Cause::invalid(field, value, problem)));
}

fn check_finalizer(field: &str, finalizer: &Value, causes: &mut Vec<Cause>) {
    let name = finalizer.as_str().unwrap_or_default();
    extend(causes, field, finalizer, names::qualified(name));
    if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        causes.push(Cause::invalid(field, finalizer, detail));
    }
}

fn check_owners(owners: &Value, causes: &mut Vec<Cause>) {
    for owner in owners.as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let detail = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    &Value::from(""),
                    detail,
                ));
            }
        }
    }
}

/// Checks immutable fields, and finalizers that an object in deletion may not get.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    if old["uid"] != new["uid"] {
        causes.push(Cause::invalid("metadata.uid", &new["uid"], "field is immutable"));
    }
    if old["deletionTimestamp"].is_null() {
        return;
    }
    let had =
        |finalizer: &Value| old["finalizers"].as_array().is_some_and(|had| had.contains(finalizer));
    let fresh: Vec<_> =
        new["finalizers"].as_array().into_iter().flatten().filter(|it| !had(it)).collect();
    if !fresh.is_empty() {
        let fresh: Vec<_> = fresh.iter().map(ToString::to_string).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            fresh.join(", ")
        );
        causes.push(Cause::forbidden("metadata.finalizers", &detail));
    }
}
