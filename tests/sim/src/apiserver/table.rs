//! Tables: the columns that `kubectl get` prints.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    object::Object,
    request::RequestInfo,
    resources::{self, Resource},
};

mod event;
mod node;
mod service;

/// The part of each object that a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// Returns the value of the parameter `includeObject`.
    pub(super) fn of(info: &RequestInfo) -> Self {
        match info.query.get("includeObject") {
            "None" => Self::Nothing,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// Options of the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) now: Timestamp,
    pub(super) include: Include,
}

/// Name, and whether it is shown only with `-o wide`.
type Column = (&'static str, bool);

const NAME_AGE: &[Column] = &[("Name", false), ("Age", false)];

fn columns(resource: &Resource) -> &'static [Column] {
    match resource.slot {
        resources::NODES => node::COLUMNS,
        resources::EVENTS => event::COLUMNS,
        resources::SERVICES => service::COLUMNS,
        resources::LEASES => &[("Name", false), ("Holder", false), ("Age", false)],
        resources::NAMESPACES => &[("Name", false), ("Status", false), ("Age", false)],
        resources::CONFIG_MAPS => &[("Name", false), ("Data", false), ("Age", false)],
        resources::SECRETS => &[("Name", false), ("Type", false), ("Data", false), ("Age", false)],
        _ => NAME_AGE,
    }
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Value {
    let name = text(&object["metadata"]["name"]);
    let age = age_of(&object["metadata"]["creationTimestamp"], now);
    let entries = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    match resource.slot {
        resources::NODES => node::cells(object, age),
        resources::EVENTS => event::cells(object, now),
        resources::SERVICES => service::cells(object, age),
        resources::LEASES => json!([name, text(&object["spec"]["holderIdentity"]), age]),
        resources::NAMESPACES => json!([name, text(&object["status"]["phase"]), age]),
        resources::CONFIG_MAPS => json!([name, entries("data") + entries("binaryData"), age]),
        resources::SECRETS => json!([name, text(&object["type"]), entries("data"), age]),
        _ => json!([name, age]),
    }
}

fn definitions(resource: &Resource) -> Value {
    columns(resource)
        .iter()
        .map(|(name, wide)| {
            let format = if *name == "Name" { "name" } else { "" };
            json!({ "name": name, "type": "string", "format": format, "description": "", "priority": i32::from(*wide) })
        })
        .collect()
}

fn row(resource: &Resource, object: &Object, options: &Options) -> Value {
    let value = object.value();
    let mut row = json!({ "cells": cells(resource, &value, options.now) });
    match options.include {
        Include::Nothing => row["object"] = Value::Null,
        Include::Metadata => row["object"] = partial(value),
        Include::Object => row["object"] = object.typed(resource),
    }
    row
}

fn table(metadata: &Value, definitions: Value, rows: Vec<Value>) -> Value {
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows })
}

/// Returns a table of one row.
pub(super) fn of_one(resource: &Resource, object: &Object, options: &Options) -> Value {
    let metadata = json!({ "resourceVersion": object.revision.to_string() });
    table(&metadata, definitions(resource), vec![row(resource, object, options)])
}

/// Returns a table of a list.
pub(super) fn of_list(
    resource: &Resource,
    objects: &[Arc<Object>],
    metadata: &Value,
    options: &Options,
) -> Value {
    let rows = objects.iter().map(|object| row(resource, object, options)).collect();
    table(metadata, definitions(resource), rows)
}

/// Returns an object with only its metadata.
pub(super) fn metadata_only(_: &Resource, object: &Object) -> Value {
    partial(object.value())
}

fn partial(mut value: Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"].take() })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn or<'a>(text: &'a str, empty: &'a str) -> &'a str {
    if text.is_empty() { empty } else { text }
}

/// Returns the age of a timestamp, in `kubectl`'s format.
fn age_of(timestamp: &Value, now: Timestamp) -> String {
    match text(timestamp).parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Formats a duration in at most two units, coarser for longer times.
fn human(seconds: i64) -> String {
    let two = |whole: i64, unit: char, rest: i64, fine: char| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{fine}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..120 => format!("{}s", seconds.max(0)),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}
