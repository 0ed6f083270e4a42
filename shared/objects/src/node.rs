//! A node as the controllers need it: a tenth of what the API server sends.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ObjectRef, node_keys};

/// Annotations with this prefix are Quartet's own.
pub const OWN_ANNOTATIONS: &str = "quartet.dev/";

/// Text that many nodes share, kept once.
pub type Shared = Arc<str>;

/// A node. Two nodes are equal when they agree in everything but the resource
/// version: a write that changed nothing we look at is no change.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `metadata.name`.
    pub name: Shared,
    /// `metadata.uid`: tells a node from an earlier one of the same name.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, for preconditions.
    pub resource_version: Box<str>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `metadata.labels`.
    pub labels: BTreeMap<Shared, Shared>,
    /// Those of `metadata.annotations` that Quartet reads: [`node_keys::PROVIDED_NODE_IP`] and
    /// those with [`OWN_ANNOTATIONS`].
    pub annotations: BTreeMap<Shared, Box<str>>,
    /// `spec.providerID`; never empty.
    pub provider_id: Option<Box<str>>,
    /// `spec.taints`, complete: the list is written back as a whole.
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<Box<str>>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.addresses`, in order.
    pub addresses: Vec<Address>,
    /// The conditions `Ready` and `NetworkUnavailable`.
    pub conditions: Vec<Condition>,
    /// `status.nodeInfo.systemUUID`.
    pub system_uuid: Option<Box<str>>,
}

/// A taint, with everything that the API server sent of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    pub key: Shared,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Shared>,
    /// Its effect; may be one that this version does not know.
    #[serde(default)]
    pub effect: Shared,
    /// When it was added, as the API server wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Shared>,
}

/// An address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `InternalIP`, `Hostname`, ...; may be one that this version does not know.
    #[serde(rename = "type")]
    pub kind: Shared,
    /// The address.
    pub address: Shared,
}

impl Address {
    /// An address of this kind.
    pub fn new(kind: impl Into<Shared>, address: impl Into<Shared>) -> Self {
        Self { kind: kind.into(), address: address.into() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.address)
    }
}

/// A condition of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `Ready` or `NetworkUnavailable`.
    pub kind: Shared,
    /// `True`, `False` or `Unknown`.
    pub status: Shared,
    /// Why, in one word.
    pub reason: Option<Shared>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.uid == other.uid
            && self.created == other.created
            && self.deleting == other.deleting
            && self.labels == other.labels
            && self.annotations == other.annotations
            && self.provider_id == other.provider_id
            && self.taints == other.taints
            && self.pod_cidrs == other.pod_cidrs
            && self.unschedulable == other.unschedulable
            && self.addresses == other.addresses
            && self.conditions == other.conditions
            && self.system_uuid == other.system_uuid
    }
}

impl Node {
    /// The taint of this key, if the node has one.
    pub fn taint(&self, key: &str) -> Option<&Taint> {
        self.taints.iter().find(|taint| &*taint.key == key)
    }

    /// The status of a condition: `True`, `False` or `Unknown`.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.conditions
            .iter()
            .find(|condition| &*condition.kind == kind)
            .map(|condition| &*condition.status)
    }

    /// The value of an annotation, if it is one of those that are kept.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|value| &**value)
    }

    /// Whether its kubelet reports that it works.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready") == Some("True")
    }

    /// Whether it waits for its initialisation: it has the taint that kubelet gave it.
    pub fn is_uninitialised(&self) -> bool {
        self.taint(node_keys::UNINITIALIZED).is_some()
    }

    /// How old it is at this moment, if that can be told. A clock that was set back must
    /// not count as an age below zero.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let created = self.created?;
        Some(Duration::try_from(now.duration_since(created)).unwrap_or_default())
    }

    /// The node as the subject of an event.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef {
            api_version: "v1",
            kind: "Node",
            namespace: None,
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            resource_version: self.resource_version.to_string(),
        }
    }
}
