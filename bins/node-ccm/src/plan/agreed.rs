//! The cloud's answer when a node last agreed with it. If the answer is still the same, another
//! client has changed the node.

use ccm_cloud::Instance;
use ccm_controller::repeats::Content;
use ccm_objects::Node;
use serde::{Deserialize, Serialize};

use super::{addresses, field::PROTECTED_LABELS};

/// Digests of the cloud's answer when the node last agreed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    addresses: Option<Content>,
    topology: Option<Content>,
}

impl Agreed {
    /// Records the current state of a node, and the cloud's answer about it.
    pub fn note(&mut self, node: &Node, instance: &Instance) {
        let said = Self::said(node, instance);
        let desired = addresses::desired(node, instance);
        if desired.is_ok_and(|list| list.as_ref() == Some(&node.addresses)) {
            self.addresses = said.addresses;
        }
        let is_shown = |((_, ga), value): ((&str, &str), &str)| {
            node.labels.get(ga).is_some_and(|own| **own == *value)
        };
        if topology(instance).all(is_shown) {
            self.topology = said.topology;
        }
    }

    /// Returns true if the cloud says the same of the addresses.
    pub(super) fn is_same_of_addresses(self, node: &Node, instance: &Instance) -> bool {
        self.addresses.is_some() && self.addresses == Self::said(node, instance).addresses
    }

    /// Returns true if the cloud says the same of type, zone and region.
    pub(super) fn is_same_of_topology(self, node: &Node, instance: &Instance) -> bool {
        self.topology.is_some() && self.topology == Self::said(node, instance).topology
    }

    /// Returns the cloud's answer for this object. Another object of the same name is new.
    fn said(node: &Node, instance: &Instance) -> Self {
        let topology: Vec<_> = topology(instance).collect();
        Self {
            addresses: Some(Content::digest(&(&node.uid, &instance.addresses))),
            topology: Some(Content::digest(&(&node.uid, topology))),
        }
    }
}

/// Returns the labels of the instance that the brake protects, with their values.
fn topology(instance: &Instance) -> impl Iterator<Item = ((&'static str, &'static str), &str)> {
    let labels = PROTECTED_LABELS.into_iter();
    let named = labels.filter_map(|(keys, _, value)| Some((keys, value(instance)?)));
    named.filter(|(_, value)| !value.is_empty())
}
