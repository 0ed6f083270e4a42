//! Rendered objects, as JSON.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Objects of a rendering, in its order.
#[derive(Clone, Debug)]
pub struct Objects(pub Vec<Value>);

impl Objects {
    /// Reads YAML documents. A List counts as its items.
    pub fn parse(text: &str) -> Result<Self> {
        let mut objects = Vec::new();
        for document in serde_yaml_ng::Deserializer::from_str(text) {
            let object = Value::deserialize(document)?;
            match (at(&object, "/kind"), object.get("items").and_then(Value::as_array)) {
                ("List", Some(items)) => objects.extend(items.iter().cloned()),
                _ if object.is_null() => {}
                _ => objects.push(object),
            }
        }
        Ok(Self(objects))
    }

    /// Returns the objects of this kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let kind = kind.to_owned();
        self.0.iter().filter(move |object| at(object, "/kind") == kind)
    }

    /// Returns the object of this kind and name.
    pub fn named(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of(kind).find(|object| name_of(object) == name)
    }

    /// Returns the resource version of each object, or for a FlowSchema the generation, because the
    /// API server writes its status.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let version = |object| match at(object, "/kind") {
            "FlowSchema" => object.pointer("/metadata/generation").map(Value::to_string),
            _ => Some(at(object, "/metadata/resourceVersion").to_owned()),
        };
        let versions = self.0.iter().map(|object| (identity(object), version(object)));
        versions.map(|(name, version)| (name, version.unwrap_or_default())).collect()
    }
}

/// Returns the text at a JSON pointer; empty if the object does not have it.
pub fn at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the items of the list at a JSON pointer. Returns nothing if the list does not exist.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the object's name.
pub fn name_of(object: &Value) -> &str {
    at(object, "/metadata/name")
}

/// Returns Kind, namespace and name.
pub fn identity(object: &Value) -> String {
    format!("{} {}/{}", at(object, "/kind"), at(object, "/metadata/namespace"), name_of(object))
}

/// Returns all containers of a pod template, sidecars included.
pub fn containers(deployment: &Value) -> impl Iterator<Item = &Value> {
    let spec = "/spec/template/spec";
    let beside = list(deployment, &format!("{spec}/initContainers"));
    list(deployment, &format!("{spec}/containers")).iter().chain(beside)
}

/// Returns the container that runs the controller.
pub fn controller(deployment: &Value) -> Result<&Value> {
    containers(deployment)
        .find(|container| at(container, "/name") == "controller")
        .with_context(|| format!("{} has no container `controller`", identity(deployment)))
}

/// Returns the arguments of a container.
pub fn arguments(container: &Value) -> Vec<&str> {
    list(container, "/args").iter().filter_map(Value::as_str).collect()
}

/// Returns the Secret with the configuration of the cloud that the pods of a Deployment mount, or
/// an empty name without one.
pub fn cloud_secret(deployment: &Value) -> &str {
    let volumes = list(deployment, "/spec/template/spec/volumes");
    let cloud = volumes.iter().find(|volume| at(volume, "/name") == "cloud-config");
    cloud.map_or("", |volume| at(volume, "/secret/secretName"))
}

/// Returns the Secret that only this Deployment mounts, by `components/own-credentials`.
pub fn own_secret(deployment: &Value) -> String {
    format!("{}-cloud-config", name_of(deployment))
}

/// Returns true if all labels of a selector are among `labels`. An empty selector counts as a
/// mistake and selects nothing.
pub fn selects(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let (Some(wanted), Some(labels)) = (selector.and_then(Value::as_object), labels) else {
        return false;
    };
    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Returns the pod of a Deployment, in another namespace.
pub fn pod_of(deployment: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name_of(deployment), "namespace": namespace,
            "labels": deployment.pointer("/spec/template/metadata/labels"),
        },
        "spec": deployment.pointer("/spec/template/spec"),
    })
}
