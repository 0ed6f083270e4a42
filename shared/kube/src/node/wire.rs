//! How a node arrives.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, Resource};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, value::RawValue};

use super::{Address, Condition, Node, OWN_ANNOTATIONS, PROVIDED_NODE_IP, Taint, intern::intern};

/// The conditions that are kept.
const CONDITIONS: [&str; 2] = ["Ready", "NetworkUnavailable"];

/// One object of a list or a watch.
#[derive(Clone, Debug)]
pub struct Received {
    // kube's watcher wants to see name and resource version.
    meta: ObjectMeta,
    node: Result<Box<Node>, String>,
}

impl Received {
    /// The node, or what is wrong with the object, naming it where it has a name.
    pub fn into_node(self) -> Result<Node, String> {
        self.node.map(|node| *node)
    }
}

impl<'de> Deserialize<'de> for Received {
    /// Fails only on text that is no JSON: the object is cut out first and read then.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: &RawValue = Deserialize::deserialize(deserializer)?;
        Ok(Self::parse(text.get()))
    }
}

impl Received {
    fn parse(text: &str) -> Self {
        let mut wire = match serde_json::from_str(text) {
            Ok(wire) => wire,
            Err(_) => Wire::lenient(serde_json::from_str(text).unwrap_or_default()),
        };
        let name = wire.metadata.name.take().filter(|name| !name.is_empty());
        let meta = ObjectMeta {
            name: name.clone(),
            resource_version: wire.metadata.resource_version.clone(),
            ..ObjectMeta::default()
        };
        let node = match name {
            Some(name) => Ok(Box::new(wire.node(&name))),
            None => Err("an object without a readable name".to_owned()),
        };
        Self { meta, node }
    }
}

impl Resource for Received {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The fields that are read. Null counts as absent, as everywhere in Kubernetes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<jiff::Timestamp>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    addresses: Option<Vec<Address>>,
    conditions: Option<Vec<WireCondition>>,
    node_info: Option<NodeInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Option<String>,
}

/// Takes one field of an object and reads it; what cannot be read counts as absent.
fn field<T: DeserializeOwned>(object: &mut Value, name: &str) -> Option<T> {
    serde_json::from_value(object.get_mut(name)?.take()).ok()
}

/// The same for a list, where only the entries that cannot be read are left out.
fn entries<T: DeserializeOwned>(object: &mut Value, name: &str) -> Option<Vec<T>> {
    let Value::Array(list) = object.get_mut(name)?.take() else { return None };
    Some(list.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}

impl Wire {
    /// Reads field by field what did not read as a whole.
    fn lenient(mut object: Value) -> Self {
        let part = |object: &mut Value, name: &str| object.get_mut(name).map(Value::take).unwrap_or_default();
        let (mut metadata, mut spec, mut status) =
            (part(&mut object, "metadata"), part(&mut object, "spec"), part(&mut object, "status"));
        Self {
            metadata: Metadata {
                name: field(&mut metadata, "name"),
                uid: field(&mut metadata, "uid"),
                resource_version: field(&mut metadata, "resourceVersion"),
                creation_timestamp: field(&mut metadata, "creationTimestamp"),
                deletion_timestamp: field(&mut metadata, "deletionTimestamp"),
                labels: texts(&mut metadata, "labels"),
                annotations: texts(&mut metadata, "annotations"),
            },
            spec: Spec {
                provider_id: field(&mut spec, "providerID"),
                pod_cidrs: entries(&mut spec, "podCIDRs"),
                taints: entries(&mut spec, "taints"),
                unschedulable: field(&mut spec, "unschedulable"),
            },
            status: Status {
                addresses: entries(&mut status, "addresses"),
                conditions: entries(&mut status, "conditions"),
                node_info: field(&mut status, "nodeInfo"),
            },
        }
    }

    fn node(self, name: &str) -> Node {
        let Self { metadata, spec, status } = self;
        let pairs = |map: Option<BTreeMap<String, String>>| map.unwrap_or_default().into_iter();
        let ours = |key: &str| key == PROVIDED_NODE_IP || key.starts_with(OWN_ANNOTATIONS);
        let kept = |condition: &WireCondition| CONDITIONS.contains(&condition.kind.as_str());
        Node {
            name: name.into(),
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp.is_some(),
            labels: pairs(metadata.labels).map(|(key, value)| (intern(&key), intern(&value))).collect(),
            annotations: pairs(metadata.annotations)
                .filter(|(key, _)| ours(key))
                .map(|(key, value)| (intern(&key), value.into()))
                .collect(),
            provider_id: spec.provider_id.filter(|id| !id.is_empty()).map(Into::into),
            taints: spec.taints.unwrap_or_default(),
            pod_cidrs: spec.pod_cidrs.unwrap_or_default().into_iter().map(Into::into).collect(),
            unschedulable: spec.unschedulable.unwrap_or_default(),
            addresses: status.addresses.unwrap_or_default(),
            conditions: status
                .conditions
                .unwrap_or_default()
                .into_iter()
                .filter(kept)
                .map(|condition| Condition {
                    kind: intern(&condition.kind),
                    status: intern(&condition.status),
                    reason: condition.reason.as_deref().map(intern),
                })
                .collect(),
            system_uuid: status.node_info.and_then(|info| info.system_uuid).filter(|uuid| !uuid.is_empty()).map(Into::into),
        }
    }
}

/// A map of texts; entries of another type are left out.
fn texts(object: &mut Value, name: &str) -> Option<BTreeMap<String, String>> {
    let Value::Object(map) = object.get_mut(name)?.take() else { return None };
    Some(map.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect())
}
