//! What the plan is told about a node: plain values, no more than it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use ccm_cloud::NodeAddress;
use ccm_objects::node_keys::UNINITIALIZED;
use serde::Serialize;

/// The annotation that records which additional labels node-ccm has set: their keys,
/// sorted, separated by commas. Only these follow the cloud; all others belong to
/// whoever set them.
pub const OWNED_LABELS: &str = "quartet.dev/owned-labels";

/// One entry of `spec.taints`. The list is written back whole, so everything in it is
/// kept, known to us or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value, which may be missing.
    pub value: Option<String>,
    /// The effect as it stands there.
    pub effect: String,
    /// When it was added, as it stands there.
    pub time_added: Option<String>,
}

/// One entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    /// `InternalIP`, `Hostname` and so on, as it stands there.
    pub kind: String,
    /// The address or name.
    pub address: String,
}

impl Address {
    /// An address of this kind.
    pub fn new(kind: impl Into<String>, address: impl Into<String>) -> Self {
        Self { kind: kind.into(), address: address.into() }
    }
}

impl From<&NodeAddress> for Address {
    fn from(address: &NodeAddress) -> Self {
        Self::new(address.kind.as_str(), &address.address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.address)
    }
}

/// A node as the plan sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `spec.providerID`, `None` if empty.
    pub provider_id: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The keys in [`OWNED_LABELS`].
    pub owned_labels: BTreeSet<String>,
    /// The value of [`ccm_objects::node_keys::PROVIDED_NODE_IP`], if the annotation exists; it may be empty.
    pub provided_node_ip: Option<String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.addresses`.
    pub addresses: Vec<Address>,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
}

impl NodeFacts {
    /// Whether the node waits for its initialisation.
    pub fn is_uninitialised(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALIZED)
    }
}

/// Reads the value of [`OWNED_LABELS`].
pub fn parse_owned_labels(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Writes the value of [`OWNED_LABELS`].
pub fn format_owned_labels(keys: &BTreeSet<String>) -> String {
    keys.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}
