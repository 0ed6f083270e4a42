//! The wire format of a node.
//!
//! Each field is first cut out as text and then parsed, so that a field of the wrong type
//! does not affect others: it counts as absent. Unused data (`managedFields`, images,
//! foreign annotations) is skipped and never allocated.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use ccm_objects::node_keys;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, Resource};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};

use super::intern::intern;
use ccm_objects::{Address, Condition, Node, OWN_ANNOTATIONS, Shared, Taint};

/// The conditions that are kept.
const CONDITIONS: [&str; 2] = ["Ready", "NetworkUnavailable"];

/// One object of a list or a watch.
#[derive(Clone, Debug)]
pub struct Received {
    // kube's watcher reads name and resource version.
    meta: ObjectMeta,
    node: Result<Box<Node>, String>,
}

impl Received {
    /// The node, or why the object is unreadable.
    pub fn into_node(self) -> Result<Node, String> {
        self.node.map(|node| *node)
    }

    fn parse(text: &str) -> Self {
        let wire: Wire = serde_json::from_str(text).unwrap_or_default();
        let (name, version) = (&wire.metadata.name, &wire.metadata.resource_version);
        let meta = ObjectMeta {
            name: present(name).map(str::to_owned),
            resource_version: present(version).map(str::to_owned),
            ..ObjectMeta::default()
        };
        let node = match present(name) {
            Some(_) => Ok(Box::new(wire.node())),
            None => Err("it has no readable name".to_owned()),
        };
        Self { meta, node }
    }
}

/// The name by which serde_json detects a request for a value's raw text.
const TEXT: &str = "$serde_json::private::RawValue";

impl<'de> Deserialize<'de> for Received {
    /// Fails only on invalid JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TEXT, WholeObject)
    }
}

struct WholeObject;

impl<'de> Visitor<'de> for WholeObject {
    type Value = Received;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// The raw text from the response.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Received, A::Error> {
        let text = Box::<RawValue>::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Received::parse(text.get()))
    }

    /// A value that is already parsed. This happens to a watch event whose `object` comes before
    /// its `type`: kube-apiserver writes the type first, but a proxy that sorts fields may not.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, parsed: D) -> Result<Received, D::Error> {
        Ok(Received::parse(&Value::deserialize(parsed)?.to_string()))
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "lenient")]
    metadata: Metadata,
    #[serde(deserialize_with = "lenient")]
    spec: Spec,
    #[serde(deserialize_with = "lenient")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(deserialize_with = "lenient")]
    uid: String,
    #[serde(deserialize_with = "lenient")]
    resource_version: String,
    #[serde(deserialize_with = "lenient")]
    creation_timestamp: Option<jiff::Timestamp>,
    // Only its presence matters.
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(deserialize_with = "texts")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "texts")]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "providerID", deserialize_with = "lenient")]
    provider_id: String,
    #[serde(rename = "podCIDRs", deserialize_with = "entries")]
    pod_cidrs: Vec<String>,
    #[serde(deserialize_with = "entries")]
    taints: Vec<WireTaint>,
    #[serde(deserialize_with = "lenient")]
    unschedulable: bool,
}

/// Every field is lenient: a taint that is dropped here would be removed from the node by
/// the next write of the list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireTaint {
    #[serde(deserialize_with = "lenient")]
    key: String,
    #[serde(deserialize_with = "lenient")]
    value: Option<String>,
    #[serde(deserialize_with = "lenient")]
    effect: String,
    #[serde(deserialize_with = "lenient")]
    time_added: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "entries")]
    addresses: Vec<WireAddress>,
    #[serde(deserialize_with = "entries")]
    conditions: Vec<WireCondition>,
    #[serde(deserialize_with = "lenient")]
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAddress {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    status: String,
    #[serde(deserialize_with = "lenient")]
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID", deserialize_with = "lenient")]
    system_uuid: String,
}

/// A field; null and values of the wrong type count as absent.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    let text: &RawValue = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str::<Option<T>>(text.get()).ok().flatten().unwrap_or_default())
}

/// A list, without unreadable entries.
fn entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list: Vec<&RawValue> = lenient(deserializer)?;
    Ok(list.into_iter().filter_map(|entry| serde_json::from_str(entry.get()).ok()).collect())
}

/// A map of texts, without entries of another type.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map: BTreeMap<String, &RawValue> = lenient(deserializer)?;
    let text =
        |(key, value): (String, &RawValue)| Some((key, serde_json::from_str(value.get()).ok()?));
    Ok(map.into_iter().filter_map(text).collect())
}

impl Wire {
    fn node(self) -> Node {
        let Self { metadata, spec, status } = self;
        let mut node = Node {
            name: intern(&metadata.name),
            uid: metadata.uid.into(),
            resource_version: metadata.resource_version.into(),
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata
                .labels
                .iter()
                .map(|(key, value)| (intern(key), intern(value)))
                .collect(),
            annotations: metadata.annotations.into_iter().filter_map(annotation).collect(),
            provider_id: present(&spec.provider_id).map(Into::into),
            taints: spec.taints.iter().map(WireTaint::taint).collect(),
            pod_cidrs: spec.pod_cidrs.into_iter().map(Into::into).collect(),
            unschedulable: spec.unschedulable,
            addresses: status.addresses.iter().map(WireAddress::address).collect(),
            conditions: status.conditions.iter().filter_map(WireCondition::kept).collect(),
            system_uuid: present(&status.node_info.system_uuid).map(Into::into),
        };
        node.taints.shrink_to_fit();
        node.pod_cidrs.shrink_to_fit();
        node.addresses.shrink_to_fit();
        node.conditions.shrink_to_fit();
        node
    }
}

impl WireTaint {
    fn taint(&self) -> Taint {
        Taint {
            key: intern(&self.key),
            value: self.value.as_deref().map(intern),
            effect: intern(&self.effect),
            time_added: self.time_added.as_deref().map(Into::into),
        }
    }
}

impl WireAddress {
    fn address(&self) -> Address {
        Address { kind: intern(&self.kind), address: self.address.as_str().into() }
    }
}

impl WireCondition {
    fn kept(&self) -> Option<Condition> {
        CONDITIONS.contains(&self.kind.as_str()).then(|| Condition {
            kind: intern(&self.kind),
            status: intern(&self.status),
            reason: self.reason.as_deref().map(intern),
        })
    }
}

/// An annotation, if Quartet reads it.
fn annotation((key, value): (String, String)) -> Option<(Shared, Box<str>)> {
    let ours = key == node_keys::PROVIDED_NODE_IP || key.starts_with(OWN_ANNOTATIONS);
    ours.then(|| (intern(&key), value.into()))
}

/// Absent and empty are the same in Kubernetes.
fn present(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
