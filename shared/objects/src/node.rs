//! A node, reduced to what the controllers need: a tenth of what the API server sends.

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Labels, ObjectRef, Shared, node_keys, parse_ip};

/// Annotations with this prefix are Quartet's own.
pub const OWN_ANNOTATIONS: &str = "quartet.dev/";

/// A node. Equality ignores the resource version: a write that changed nothing relevant
/// here is not a change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    /// `metadata.name`.
    pub name: Shared,
    /// `metadata.uid`: distinguishes a node from an earlier one of the same name.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, for preconditions.
    pub resource_version: Box<str>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The annotations that Quartet reads: [`node_keys::PROVIDED_NODE_IP`] and those with the
    /// prefix [`OWN_ANNOTATIONS`].
    pub annotations: BTreeMap<Shared, Box<str>>,
    /// `spec.providerID`; never empty.
    pub provider_id: Option<Shared>,
    /// `spec.taints`, complete: writes replace the whole list.
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
    pub system_uuid: Option<Shared>,
    /// `status.daemonEndpoints.kubeletEndpoint.Port`.
    pub kubelet_port: Option<u16>,
}

/// A taint, with every field that the API server sent.
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
    /// The fields that this version does not know: a write of the list keeps them.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl Taint {
    /// Returns true if it is this taint: key and effect identify one.
    pub fn is(&self, key: &str, effect: &str) -> bool {
        *self.key == *key && *self.effect == *effect
    }

    /// Returns the whole new list of taints, with this one at its end or without it.
    pub fn set(taints: &[Self], key: &str, effect: &str, is_set: bool) -> Vec<Self> {
        let new = Self { key: key.into(), effect: effect.into(), ..Self::default() };
        let others = taints.iter().filter(|taint| !taint.is(key, effect)).cloned();
        others.chain(is_set.then_some(new)).collect()
    }
}

/// An address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `InternalIP`, `Hostname`, ... It may be a type that this version does not know.
    #[serde(rename = "type")]
    pub kind: Shared,
    /// The address.
    pub address: Shared,
}

impl Address {
    /// Creates an address of this kind.
    pub fn new(kind: impl Into<Shared>, address: impl Into<Shared>) -> Self {
        Self { kind: kind.into(), address: address.into() }
    }

    /// Returns the IP address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip(&self.address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.address)
    }
}

/// A condition of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `Ready` or `NetworkUnavailable`.
    pub kind: Shared,
    /// `True`, `False` or `Unknown`.
    pub status: Shared,
    /// The reason, as one CamelCase word.
    pub reason: Option<Shared>,
    /// The message of `NetworkUnavailable` while it is `True`.
    pub message: Option<Shared>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        // The compiler asks for each new field here, so that its changes reach the programs.
        let Self {
            resource_version: _,
            name,
            uid,
            created,
            deleting,
            labels,
            annotations,
            provider_id,
            taints,
            pod_cidrs,
            unschedulable,
            addresses,
            conditions,
            system_uuid,
            kubelet_port,
        } = other;
        self.name == *name
            && self.uid == *uid
            && self.created == *created
            && self.deleting == *deleting
            && self.labels == *labels
            && self.annotations == *annotations
            && self.provider_id == *provider_id
            && self.taints == *taints
            && self.pod_cidrs == *pod_cidrs
            && self.unschedulable == *unschedulable
            && self.addresses == *addresses
            && self.conditions == *conditions
            && self.system_uuid == *system_uuid
            && self.kubelet_port == *kubelet_port
    }
}

impl Node {
    /// Returns true if this is a later version of the same node. Versions that are not numbers cannot be compared.
    pub fn is_later_than(&self, known: &Self) -> bool {
        let version = |node: &Self| node.resource_version.parse::<u64>().ok();
        let versions = version(self).zip(version(known));
        self.uid == known.uid && versions.is_some_and(|(this, known)| this > known)
    }

    /// Returns the taint with this key, if the node has one.
    pub fn taint(&self, key: &str) -> Option<&Taint> {
        self.taints.iter().find(|taint| &*taint.key == key)
    }

    /// Returns true if it has a taint with one of these keys, such as the keys of
    /// `--scale-down-taints`.
    pub fn has_taint_of(&self, keys: &[String]) -> bool {
        self.taints.iter().any(|taint| keys.iter().any(|key| **key == *taint.key))
    }

    /// Returns the status of a condition: `True`, `False` or `Unknown`.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.conditions
            .iter()
            .find(|condition| &*condition.kind == kind)
            .map(|condition| &*condition.status)
    }

    /// Returns a condition with this status.
    pub fn condition_of(&self, kind: &str, status: &str) -> Option<&Condition> {
        let is = |one: &&Condition| *one.kind == *kind && *one.status == *status;
        self.conditions.iter().find(is)
    }

    /// Returns the value of an annotation, if it is one that Quartet reads.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|value| &**value)
    }

    /// Returns true if the kubelet reports the node as ready.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready") == Some("True")
    }

    /// Returns true if knowledge about one node's instance is valid for the other as well: both are
    /// the same object with the same instance.
    pub fn has_identity_of(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.provider_id == other.provider_id
            && self.system_uuid == other.system_uuid
    }

    /// Takes over the parts that an earlier version of it has as well. So the new version needs
    /// little memory, and does not replace the old one piece by piece, which would leave memory
    /// full of holes after a change of each node.
    pub fn share(&mut self, earlier: &Self) {
        fn take<T: PartialEq + Clone>(new: &mut T, earlier: &T) {
            if new == earlier {
                new.clone_from(earlier);
            }
        }
        take(&mut self.labels, &earlier.labels);
        take(&mut self.provider_id, &earlier.provider_id);
        take(&mut self.addresses, &earlier.addresses);
        take(&mut self.system_uuid, &earlier.system_uuid);
    }

    /// Returns true if it waits for initialisation: it still has the kubelet's taint.
    pub fn is_uninitialised(&self) -> bool {
        self.taint(node_keys::UNINITIALIZED).is_some()
    }

    /// Returns its age at `now`, if its creation time is known. Never negative, even if the clock
    /// was set back.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let created = self.created?;
        Some(Duration::try_from(now.duration_since(created)).unwrap_or_default())
    }

    /// Returns the node as the subject of an event.
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
