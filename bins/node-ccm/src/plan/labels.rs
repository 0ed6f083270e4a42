//! The labels of a node.
//!
//! Two kinds, with different owners:
//!
//! * **Instance type, zone and region** are owned by the cloud: if it returns a value, both the GA
//!   and the beta label are set to it, and manual changes are reverted. If it returns no value, the
//!   node's labels stay, and the beta label is copied to the GA one, as cloud-controller-manager
//!   does.
//! * **Additional labels** are set if the node does not have the key. node-ccm records the
//!   keys that it has set in an annotation on the node; it updates and removes only those. Keys of
//!   a provider's own domain, such as `openstack.quartet.dev`, are owned by the cloud, because
//!   kubelets can set them on their nodes.

use std::collections::{BTreeMap, BTreeSet};

use ccm_cloud::Instance;
use ccm_objects::{Node, label_rules};
use serde::{Deserialize, Serialize};

use super::{Field, Note, Policy, field::PROTECTED_LABELS, is_protected};

/// The annotation that records the additional labels that node-ccm has set: their keys, sorted,
/// separated by commas. node-ccm updates and removes only these labels.
pub const OWNED_LABELS: &str = "quartet.dev/owned-labels";

/// The annotation with the [`LabelPolicy`] of one node.
pub const LABEL_POLICY: &str = "quartet.dev/node-label-policy";

/// When the labels of a node follow its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelPolicy {
    /// Always.
    #[default]
    Follow,
    /// When it is initialised, and never again.
    Once,
    /// Never.
    Off,
}

impl LabelPolicy {
    /// The values in settings and annotations.
    pub const WORDS: &[(&str, Self)] =
        &[("follow", Self::Follow), ("once", Self::Once), ("off", Self::Off)];

    /// Returns the node's own policy, if it has one. The error is the invalid text.
    fn for_node(self, node: &Node) -> Result<Self, &str> {
        let Some(own) = node.annotation(LABEL_POLICY) else { return Ok(self) };
        Self::WORDS.iter().find(|(word, _)| *word == own).map(|(_, policy)| *policy).ok_or(own)
    }
}

/// Returns the additional labels that node-ccm has set on the node, as recorded.
pub fn owned(node: &Node) -> BTreeSet<String> {
    let keys = node.annotation(OWNED_LABELS).unwrap_or_default().split(',').map(str::trim);
    keys.filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Returns the value of [`OWNED_LABELS`].
pub fn format_owned(keys: &BTreeSet<String>) -> String {
    keys.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The changes of the node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelChanges {
    /// Label values to set, `None` for those to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// The additional labels that node-ccm owns from now on, if they differ from the recorded ones.
    pub owned: Option<BTreeSet<String>>,
    /// Facts to report to the user.
    pub notes: Vec<Note>,
}

/// Compares the node's labels with the instance's.
pub fn changes(node: &Node, instance: &Instance, policy: Policy) -> LabelChanges {
    let mut changes = LabelChanges::default();
    let labels = policy.labels.for_node(node).unwrap_or_else(|text| {
        changes.notes.push(Note::InvalidLabelPolicy(text.to_owned()));
        policy.labels
    });
    if labels == LabelPolicy::Off || (labels == LabelPolicy::Once && !node.is_uninitialised()) {
        return changes;
    }
    for (keys, _, value) in PROTECTED_LABELS {
        changes.owned_by_cloud(node, keys, value(instance).unwrap_or_default());
    }
    changes.additional(node, &instance.labels, policy.labels_only_add);
    changes
}

impl LabelChanges {
    fn owned_by_cloud(&mut self, node: &Node, (beta, ga): (&str, &str), value: &str) {
        if let Err(problem) = label_rules::check_value(value) {
            self.notes.push(Note::invalid_label(ga, value, problem));
        } else if !value.is_empty() {
            let before = node.labels.get(ga).or_else(|| node.labels.get(beta));
            if let Some(from) = before.filter(|from| ***from != *value && is_protected(node)) {
                let (field, from) = (Field::named(ga), from.to_string());
                self.notes.push(Note::Changes { field, from, to: Some(value.to_owned()) });
            }
            self.set(node, beta, value);
            self.set(node, ga, value);
            return;
        }
        if let Some(mirrored) = node.labels.get(beta) {
            self.set(node, ga, mirrored);
        }
    }

    fn additional(&mut self, node: &Node, wanted: &BTreeMap<String, String>, only_add: bool) {
        let recorded = owned(node);
        let mut owned = BTreeSet::new();
        for (key, value) in wanted {
            if label_rules::is_reserved(key) {
                self.notes.push(Note::ReservedLabel { key: key.clone() });
                continue;
            }
            let is_owned = recorded.contains(key);
            if let Err(problem) = label_rules::check(key, value) {
                self.notes.push(Note::invalid_label(key, value, problem));
                if is_owned {
                    owned.insert(key.clone());
                }
                continue;
            }
            match node.labels.get(key.as_str()) {
                Some(present)
                    if **present != **value && !is_owned && !label_rules::is_of_provider(key) =>
                {
                    self.notes.push(Note::LabelKept {
                        key: key.clone(),
                        node: present.to_string(),
                        cloud: value.clone(),
                    });
                    continue;
                }
                Some(present) if **present == **value && !is_owned => continue,
                _ => self.set(node, key, value),
            }
            owned.insert(key.clone());
        }
        // A reserved key is in the record only if a person added it; node-ccm does not remove
        // it.
        let dropped = recorded
            .iter()
            .filter(|key| !wanted.contains_key(*key) && !label_rules::is_reserved(key));
        for key in dropped.filter(|key| node.labels.contains_key(key.as_str())) {
            if only_add {
                owned.insert(key.clone());
            } else {
                self.labels.insert(key.clone(), None);
            }
        }
        let is_forged = |key: &str| label_rules::is_of_provider(key) && !wanted.contains_key(key);
        for key in node.labels.keys().filter(|key| !only_add && is_forged(key)) {
            self.labels.insert(key.to_string(), None);
        }
        self.owned = (owned != recorded).then_some(owned);
    }

    fn set(&mut self, node: &Node, key: &str, value: &str) {
        if node.labels.get(key).is_none_or(|present| **present != *value) {
            self.labels.insert(key.to_owned(), Some(value.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
