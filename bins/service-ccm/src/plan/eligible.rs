//! Selects the nodes behind load balancers.
//!
//! As in upstream since KEP-3458, the readiness of a node does not matter: the load balancer's
//! health check sees sooner and better which node can accept connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_base::At;
use ccm_cloud::{AddressKind, Digest, LoadBalancerTraits, Member, NodeAddress, ProviderId};
use ccm_objects::{Labels, Node, WhoseNode, service_keys, whose_node};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    labels::LabelKeys,
    marks::{Marks, mark},
};

/// The reason why a node is not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Excluded {
    /// A user or an autoscaler has marked it for scale-down.
    ScaleDown,
    /// It has the label that excludes nodes.
    Label,
    /// It is being deleted.
    Deleting,
    /// Its provider ID is another provider's.
    Foreign,
    /// `--node-selector` does not select it.
    NotSelected,
    /// It still has the taint of a node that is not initialised.
    Uninitialised,
    /// It has no provider ID, and the provider needs the IDs of members.
    NoProviderId,
    /// It has no address, and the provider needs the addresses of members.
    NoAddress,
}

impl Excluded {
    /// Describes the reason; a number of nodes precedes the text.
    fn in_words(self) -> String {
        match self {
            Self::ScaleDown => "marked for scale-down".to_owned(),
            Self::Label => format!("with the label {}", service_keys::EXCLUDE_NODE),
            Self::Deleting => "being deleted".to_owned(),
            Self::Foreign => "of another provider".to_owned(),
            Self::NotSelected => "not selected by --node-selector".to_owned(),
            Self::Uninitialised => "not initialised".to_owned(),
            Self::NoProviderId => "without a provider ID".to_owned(),
            Self::NoAddress => "without an address".to_owned(),
        }
    }
}

/// The nodes of a cluster as members of load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSet {
    /// The eligible nodes, sorted by name. All load balancers share this list.
    pub members: Arc<[Member]>,
    /// The others, and why.
    pub excluded: BTreeMap<Arc<str>, Excluded>,
    /// The marks of nodes when they were last seen: a deleted node keeps its mark.
    pub marks: Marks,
}

/// The version of the rules by which members are written down for their digest.
const DIGEST_VERSION: u32 = 1;

impl NodeSet {
    /// Returns the eligible node of this name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        find(&self.members, name)
    }

    /// Returns the same nodes with further labels: the labels that count now and did not count
    /// before. Other changes of the nodes are ignored.
    #[must_use]
    pub fn with_labels<'a>(
        &self,
        labels_of: impl Fn(&str) -> Option<&'a Labels>,
        (before, now): (&LabelKeys, &LabelKeys),
    ) -> Self {
        let with_more = |member: &Member| {
            let mut labels = (*member.labels).clone();
            let all = labels_of(&member.node).map(|all| now.filter(all)).unwrap_or_default();
            labels.extend(all.into_iter().filter(|(key, _)| !before.has(key)));
            Member { labels: Arc::new(labels), ..member.clone() }
        };
        Self { members: self.members.iter().map(with_more).collect(), ..self.clone() }
    }

    /// Returns why no node is a member, as text; `None` if a node is a member.
    pub fn why_none(&self) -> Option<String> {
        if !self.members.is_empty() {
            return None;
        }
        Some(match self.excluded.len() {
            0 => "the cluster has no node".to_owned(),
            nodes => format!("none of {nodes} nodes can be a member: {}", self.causes()),
        })
    }

    /// Returns how many nodes can be members, and why others cannot.
    pub fn summary(&self) -> String {
        let (members, others) = (self.members.len(), self.excluded.len());
        let causes = if others == 0 { String::new() } else { format!(": {}", self.causes()) };
        format!("{members} of {} nodes can be members of load balancers{causes}", members + others)
    }

    fn causes(&self) -> String {
        let mut counts: BTreeMap<Excluded, usize> = BTreeMap::new();
        for why in self.excluded.values() {
            *counts.entry(*why).or_default() += 1;
        }
        let causes = counts.into_iter().map(|(why, count)| format!("{count} {}", why.in_words()));
        causes.collect::<Vec<_>>().join(", ")
    }
}

/// Removes the numbers from a text of [`NodeSet::why_none`]: other numbers alone are not reported.
pub fn without_numbers(text: &str) -> String {
    let is_count = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split(' ').filter(|word| !is_count(word)).collect::<Vec<_>>().join(" ")
}

/// Returns the digest of these members: another process with the same nodes has the same one.
pub fn digest(members: &[Member]) -> Digest {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    };
    for Member { node, provider_id, addresses, labels } in members {
        add(node);
        add(&provider_id.as_ref().map(ToString::to_string).unwrap_or_default());
        add(&addresses.len().to_string());
        for one in addresses {
            add(&one.address);
        }
        add(&labels.len().to_string());
        for (key, value) in &**labels {
            add(key);
            add(value);
        }
    }
    let hash = hash.finalize().first_chunk().copied().unwrap_or_default();
    Digest { version: DIGEST_VERSION, hash: u128::from_be_bytes(hash) }
}

/// Returns the member of this node, in a list that is sorted by node.
pub fn find<'a>(members: &'a [Member], node: &str) -> Option<&'a Member> {
    let place = members.binary_search_by(|member| member.node.as_str().cmp(node)).ok()?;
    members.get(place)
}

/// The rules about nodes, besides the nodes themselves.
#[derive(Clone, Copy, Debug)]
pub struct NodeRules<'a> {
    /// `--scale-down-taints`: the keys of taints that mark a node for scale-down.
    pub scale_down_taints: &'a [String],
    /// The schemes of the provider's own IDs.
    pub schemes: &'a [String],
    /// `--load-balancer-foreign-nodes`: whether nodes of other providers are members.
    pub foreign_nodes: bool,
    /// The nodes that `--node-selector` does not select.
    pub left_out: &'a BTreeSet<Arc<str>>,
    /// The traits of the provider.
    pub traits: &'a LoadBalancerTraits,
    /// The labels by which load balancers select their members.
    pub labels: &'a LabelKeys,
}

/// Sorts nodes into members and others. `before` is the last result.
pub fn node_set<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    mut rules: NodeRules<'_>,
    before: &NodeSet,
    now: At,
) -> NodeSet {
    let nodes: Vec<&Node> = nodes.collect();
    // If no node has a scheme of the provider, the provider uses other schemes than it names, so
    // the IDs say nothing.
    rules.foreign_nodes |= !nodes.iter().any(|node| whose(node, rules) == WhoseNode::Ours);
    let mut set = NodeSet::default();
    let mut members = Vec::with_capacity(before.members.len());
    let mut marks = before.marks.clone();
    for node in nodes {
        marks.see(&node.name, mark(node, rules.scale_down_taints, now), now);
        match member(node, rules) {
            Ok(member) => members.push(member),
            Err(why) => drop(set.excluded.insert(Arc::clone(&node.name), why)),
        }
    }
    marks.expire(now);
    set.marks = marks;
    members.sort_unstable_by(|one, other| one.node.cmp(&other.node));
    set.members =
        if *members == *before.members { Arc::clone(&before.members) } else { members.into() };
    set
}

/// Returns the node as a member, or why it is not one. A reason that a person gave comes first,
/// because it says that the node leaves on purpose.
fn member(node: &Node, rules: NodeRules<'_>) -> Result<Member, Excluded> {
    if node.has_taint_of(rules.scale_down_taints) {
        return Err(Excluded::ScaleDown);
    }
    if node.labels.get(service_keys::EXCLUDE_NODE).is_some_and(|value| excludes(value)) {
        return Err(Excluded::Label);
    }
    if node.deleting {
        return Err(Excluded::Deleting);
    }
    if !rules.foreign_nodes && matches!(whose(node, rules), WhoseNode::Anothers(_)) {
        return Err(Excluded::Foreign);
    }
    if rules.left_out.contains(&node.name) {
        return Err(Excluded::NotSelected);
    }
    let provider_id = node.provider_id.as_deref().and_then(|text| ProviderId::parse(text).ok());
    let addresses: Vec<NodeAddress> = node.addresses.iter().filter_map(address).collect();
    let lacks_id = rules.traits.member_ids && provider_id.is_none();
    if node.is_uninitialised() {
        return Err(Excluded::Uninitialised);
    }
    if lacks_id {
        return Err(Excluded::NoProviderId);
    }
    if rules.traits.member_addresses && addresses.is_empty() {
        return Err(Excluded::NoAddress);
    }
    let labels = Arc::new(rules.labels.filter(&node.labels));
    Ok(Member { node: node.name.to_string(), provider_id, addresses, labels })
}

fn whose<'a>(node: &'a Node, rules: NodeRules<'_>) -> WhoseNode<'a> {
    whose_node(node.provider_id.as_deref(), rules.schemes)
}

/// Returns the addresses to which a load balancer can send.
fn address(address: &ccm_objects::Address) -> Option<NodeAddress> {
    let kind = address.kind.parse().ok()?;
    let usable = matches!(kind, AddressKind::InternalIp | AddressKind::ExternalIp);
    usable.then(|| NodeAddress { kind, address: address.address.to_string() })
}

/// Returns true if a value of the label excludes the node: every value but Go's words for "false".
fn excludes(value: &str) -> bool {
    !["0", "f", "F", "false", "False", "FALSE"].contains(&value)
}

#[cfg(test)]
mod tests;
