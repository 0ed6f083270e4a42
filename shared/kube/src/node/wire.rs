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
        let object: Fields<'_> = serde_json::from_str(text).unwrap_or_default();
        let metadata = object.object("metadata");
        let name = metadata.text("name");
        let node = match &name {
            Some(name) => Ok(Box::new(node(name, &metadata, &object))),
            None => Err("it has no valid name".to_owned()),
        };
        let resource_version = metadata.text("resourceVersion");
        Self { meta: ObjectMeta { name, resource_version, ..ObjectMeta::default() }, node }
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

/// The fields of an object, each cut out as text.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// A field; null and values of the wrong type count as absent.
    fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        value(self.0.get(key)?)
    }

    /// A text. Absent and empty are the same in Kubernetes.
    fn text(&self, key: &str) -> Option<String> {
        self.get(key).filter(|text: &String| !text.is_empty())
    }

    fn shared(&self, key: &str) -> Shared {
        intern(&self.text(key).unwrap_or_default())
    }

    /// A text that may be empty.
    fn optional(&self, key: &str) -> Option<Shared> {
        self.get(key).map(|text: String| intern(&text))
    }

    fn object(&self, key: &str) -> Self {
        self.get(key).unwrap_or_default()
    }

    /// A list, without unreadable entries and without spare capacity.
    fn list<T: Deserialize<'a>, R>(&self, key: &str, read: impl Fn(T) -> Option<R>) -> Vec<R> {
        let list: Vec<&RawValue> = self.get(key).unwrap_or_default();
        let list: Box<[R]> = list.into_iter().filter_map(|entry| read(value(entry)?)).collect();
        list.into_vec()
    }

    /// A map of texts, without entries of another type.
    fn texts(&self, key: &str) -> impl Iterator<Item = (String, String)> {
        self.object(key).0.into_iter().filter_map(|(key, text)| Some((key, value(text)?)))
    }
}

fn value<'a, T: Deserialize<'a>>(text: &'a RawValue) -> Option<T> {
    serde_json::from_str::<Option<T>>(text.get()).ok()?
}

fn node(name: &str, metadata: &Fields<'_>, object: &Fields<'_>) -> Node {
    let (spec, status) = (object.object("spec"), object.object("status"));
    Node {
        name: intern(name),
        uid: metadata.text("uid").unwrap_or_default().into(),
        resource_version: metadata.text("resourceVersion").unwrap_or_default().into(),
        created: metadata.get("creationTimestamp"),
        // Only its presence matters.
        deleting: metadata.get::<IgnoredAny>("deletionTimestamp").is_some(),
        labels: metadata.texts("labels").map(|(key, text)| (intern(&key), intern(&text))).collect(),
        annotations: metadata.texts("annotations").filter_map(annotation).collect(),
        provider_id: spec.text("providerID").map(Into::into),
        taints: spec.list("taints", |fields| Some(taint(&fields))),
        pod_cidrs: spec.list("podCIDRs", |cidr: String| Some(cidr.into())),
        unschedulable: spec.get("unschedulable").unwrap_or_default(),
        addresses: status.list("addresses", |fields| Some(address(&fields))),
        conditions: status.list("conditions", |fields| condition(&fields)),
        system_uuid: status.object("nodeInfo").text("systemUUID").map(Into::into),
        kubelet_port: status.object("daemonEndpoints").object("kubeletEndpoint").get("Port"),
    }
}

/// Every field is lenient: a taint that is dropped here would be removed from the node by
/// the next write of the list.
fn taint(fields: &Fields<'_>) -> Taint {
    Taint {
        key: fields.shared("key"),
        value: fields.optional("value"),
        effect: fields.shared("effect"),
        time_added: fields.get::<String>("timeAdded").map(Into::into),
    }
}

fn address(fields: &Fields<'_>) -> Address {
    let address = fields.text("address").unwrap_or_default();
    Address { kind: fields.shared("type"), address: address.into() }
}

/// A condition, if it is kept.
fn condition(fields: &Fields<'_>) -> Option<Condition> {
    let kind = fields.text("type").filter(|kind| CONDITIONS.contains(&kind.as_str()))?;
    Some(Condition {
        kind: intern(&kind),
        status: fields.shared("status"),
        reason: fields.optional("reason"),
    })
}

/// An annotation, if Quartet reads it.
fn annotation((key, value): (String, String)) -> Option<(Shared, Box<str>)> {
    let ours = key == node_keys::PROVIDED_NODE_IP || key.starts_with(OWN_ANNOTATIONS);
    ours.then(|| (intern(&key), value.into()))
}
