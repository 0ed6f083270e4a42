//! One version of an object, serialised once and shared by all readers.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{eventview, resources::Resource};

/// One version of an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) revision: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// Values of the resource's field selectors, in the order of its table entry.
    pub(super) fields: Vec<String>,
    /// Without `kind` and `apiVersion`, as in list items.
    json: Bytes,
}

impl Object {
    /// Creates an object from a normalised value without `kind` and `apiVersion`; sets the resource
    /// version.
    pub(super) fn new(resource: &Resource, mut value: Value, revision: u64) -> Self {
        if revision > 0 {
            value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
        }
        let meta = &value["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        let labels = meta["labels"].as_object().into_iter().flatten();
        Self {
            key: resource.key(&namespace, &name),
            labels: labels
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            fields: resource.fields.iter().map(|path| field_text(&value, path)).collect(),
            json: Bytes::from(value.to_string()),
            namespace,
            name,
            uid,
            revision,
        }
    }

    /// Returns the object as a value, without `kind` and `apiVersion`.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_else(|_| Value::Object(Map::new()))
    }

    /// Returns the object as `resource`, with `kind` and `apiVersion`.
    pub(super) fn typed(&self, resource: &Resource) -> Value {
        let mut value =
            if resource.is_events_view() { eventview::shown(self.value()) } else { self.value() };
        value["kind"] = Value::from(resource.kind);
        value["apiVersion"] = Value::from(resource.api_version());
        value
    }

    /// Returns the bytes of a list item.
    pub(super) fn item(&self, resource: &Resource) -> Bytes {
        if resource.is_events_view() {
            return Bytes::from(eventview::shown(self.value()).to_string());
        }
        self.json.clone()
    }

    /// Returns the bytes of the whole object in two chunks, the second one shared.
    pub(super) fn whole(&self, resource: &Resource) -> [Bytes; 2] {
        let item = self.item(resource);
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            resource.kind,
            resource.api_version()
        );
        [Bytes::from(head), item.slice(1..)]
    }

    /// Returns an object with the same content and a later version: watchers get it when an object
    /// is deleted.
    pub(super) fn at(&self, resource: &Resource, revision: u64) -> Self {
        Self::new(resource, self.value(), revision)
    }
}

/// Returns the text of a selectable field. Events use `source` for `source.component`.
fn field_text(value: &Value, path: &str) -> String {
    let path = if path == "source" { "source.component" } else { path };
    let found = path.split('.').fold(value, |value, part| &value[part]);
    match found {
        Value::String(text) => text.clone(),
        // False booleans are not stored but can be selected.
        Value::Null if path == "spec.unschedulable" => "false".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
