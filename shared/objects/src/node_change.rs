use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Node, Taint};

/// A change of a node's metadata and spec, which one request can make. Unset fields stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChange {
    /// Sets `spec.providerID`.
    pub provider_id: Option<String>,
    /// Sets labels, or removes them (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Sets annotations, or removes them (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// Replaces `spec.taints`.
    pub taints: Option<Vec<Taint>>,
    /// The reasons, one line for each change above.
    pub why: Vec<String>,
}

impl NodeChange {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.provider_id.is_none()
            && self.labels.is_empty()
            && self.annotations.is_empty()
            && self.taints.is_none()
    }

    /// Removes the annotation and the label with this key, if the node has them.
    pub fn end_mark(&mut self, node: &Node, key: &str) {
        if node.annotations.contains_key(key) {
            self.annotations.insert(key.to_owned(), None);
        }
        if node.labels.contains_key(key) {
            self.labels.insert(key.to_owned(), None);
        }
    }

    /// Returns all changes except the taints, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> =
            self.provider_id.iter().map(|id| format!("providerID: {id}")).collect();
        for (what, changes) in [("label", &self.labels), ("annotation", &self.annotations)] {
            lines.extend(changes.iter().map(|(key, value)| match value {
                Some(value) => format!("{what} {key}={value}"),
                None => format!("{what} {key} removed"),
            }));
        }
        lines
    }
}
