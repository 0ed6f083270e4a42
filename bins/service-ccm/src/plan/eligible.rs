//! Which nodes are behind load balancers.
//!
//! As upstream since KEP-3458: whether a node is Ready plays no role, because the load
//! balancer's health check sees sooner and better which node can take connections.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{AddressKind, Digest, LoadBalancerTraits, Member, NodeAddress, ProviderId};
use ccm_objects::{Node, WhoseNode, service_keys, whose_node};
use sha2::{Digest as _, Sha256};

/// Why a node is not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excluded {
    /// A user or an autoscaler has said that it goes: it is marked for scale-down.
    ScaleDown,
    /// It has the label that excludes nodes.
    Label,
    /// It is being deleted.
    Deleting,
    /// Its provider ID is another provider's.
    Foreign,
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
            Self::Uninitialised => "not initialised".to_owned(),
            Self::NoProviderId => "without a provider ID".to_owned(),
            Self::NoAddress => "without an address".to_owned(),
        }
    }
}

/// The nodes of a cluster as members of load balancers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSet {
    /// The eligible nodes, sorted by name. All load balancers share this list.
    pub members: Arc<[Member]>,
    /// The others, and why.
    pub excluded: BTreeMap<Arc<str>, Excluded>,
    /// The nodes that were marked for scale-down when they were last seen, and when that was: a
    /// node that goes keeps its mark.
    pub marked: BTreeMap<Arc<str>, At>,
}

/// The version of the rules by which members are written down for their digest.
const DIGEST_VERSION: u32 = 1;

/// How long the mark of a node that is gone is remembered.
const MARK: Duration = Duration::from_hours(24);

impl NodeSet {
    /// The eligible node of this name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        find(&self.members, name)
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

    /// How many nodes can be members, and why others cannot.
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

/// The digest of these members: another process with the same nodes has the same one.
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

/// The member of this node, in a list that is sorted by node.
pub fn find<'a>(members: &'a [Member], node: &str) -> Option<&'a Member> {
    let place = members.binary_search_by(|member| member.node.as_str().cmp(node)).ok()?;
    members.get(place)
}

/// What decides about nodes besides the nodes themselves.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// `--scale-down-taints`: the keys of taints that mark a node for scale-down.
    pub scale_down_taints: &'a [String],
    /// The schemes of the provider's own IDs.
    pub schemes: &'a [String],
    /// `--load-balancer-foreign-nodes`: whether nodes of other providers are members.
    pub foreign_nodes: bool,
    /// The traits of the provider.
    pub traits: &'a LoadBalancerTraits,
}

/// Sorts nodes into members and others. `before` is the last result.
pub fn node_set<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    mut rules: Rules<'_>,
    before: &NodeSet,
    now: At,
) -> NodeSet {
    let nodes: Vec<&Node> = nodes.collect();
    // Where no node has a scheme of the provider, it has others than those it names: IDs say nothing.
    rules.foreign_nodes |= !nodes.iter().any(|node| whose(node, rules) == WhoseNode::Ours);
    let mut set = NodeSet::default();
    let mut members = Vec::with_capacity(before.members.len());
    let mut marked = before.marked.clone();
    for node in nodes {
        marked.remove(&node.name);
        match member(node, rules) {
            Ok(member) => members.push(member),
            Err(why) => {
                set.excluded.insert(Arc::clone(&node.name), why);
                if why == Excluded::ScaleDown {
                    marked.insert(Arc::clone(&node.name), now);
                }
            }
        }
    }
    marked.retain(|_, seen| *seen + MARK > now);
    set.marked = marked;
    members.sort_unstable_by(|one, other| one.node.cmp(&other.node));
    set.members =
        if *members == *before.members { Arc::clone(&before.members) } else { members.into() };
    set
}

/// The node as a member, or why it is none. The first reason that a person gave goes before
/// others, because it says that the node leaves on purpose.
fn member(node: &Node, rules: Rules<'_>) -> Result<Member, Excluded> {
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
    let labels = if rules.traits.member_labels {
        node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    } else {
        BTreeMap::new()
    };
    Ok(Member { node: node.name.to_string(), provider_id, addresses, labels: Arc::new(labels) })
}

fn whose<'a>(node: &'a Node, rules: Rules<'_>) -> WhoseNode<'a> {
    whose_node(node.provider_id.as_deref(), rules.schemes)
}

/// The addresses to which a load balancer can send.
fn address(address: &ccm_objects::Address) -> Option<NodeAddress> {
    let kind = AddressKind::parse(&address.kind)?;
    let usable = matches!(kind, AddressKind::InternalIp | AddressKind::ExternalIp);
    usable.then(|| NodeAddress { kind, address: address.address.to_string() })
}

/// Whether a value of the label excludes: every value but Go's words for "false".
fn excludes(value: &str) -> bool {
    !["0", "f", "F", "false", "False", "FALSE"].contains(&value)
}

#[cfg(test)]
mod tests {
    use ccm_objects::{Address, Condition, Taint, node_keys};

    use super::*;

    fn node() -> Node {
        Node {
            name: "n".into(),
            provider_id: Some("sim://n".into()),
            addresses: [("InternalIP", "10.0.0.1"), ("Hostname", "n"), ("ExternalIP", "192.0.2.1")]
                .map(|(kind, address)| Address::new(kind, address))
                .into(),
            ..Node::default()
        }
    }

    fn traits() -> LoadBalancerTraits {
        LoadBalancerTraits { member_ids: true, ..LoadBalancerTraits::default() }
    }

    fn rules<'a>(taints: &'a [String], traits: &'a LoadBalancerTraits) -> Rules<'a> {
        Rules { scale_down_taints: taints, schemes: &[], foreign_nodes: false, traits }
    }

    #[test]
    fn nodes_of_other_providers_are_no_members_unless_a_setting_says_so() {
        let schemes = ["sim".to_owned()];
        let of_id = |name: &str, id: Option<&str>| Node {
            name: name.into(),
            provider_id: id.map(Into::into),
            ..node()
        };
        let traits = LoadBalancerTraits::default();
        let set = |foreign_nodes, nodes: &[Node]| {
            let rules = Rules { schemes: &schemes, foreign_nodes, ..rules(&[], &traits) };
            node_set(nodes.iter(), rules, &NodeSet::default(), At::default())
        };
        let names = |set: &NodeSet| -> Vec<String> {
            set.members.iter().map(|member| member.node.clone()).collect()
        };
        let nodes = [
            of_id("bare", None),
            of_id("edge", Some("kubeedge://e")),
            of_id("odd", Some("odd")),
            of_id("own", Some("sim://i-1")),
        ];
        let without = set(false, &nodes);
        assert_eq!(names(&without), ["bare", "odd", "own"]);
        assert_eq!(
            without.summary(),
            "3 of 4 nodes can be members of load balancers: 1 of another provider"
        );
        let with = set(true, &nodes);
        assert_eq!(names(&with), ["bare", "edge", "odd", "own"]);
        assert_eq!(with.summary(), "4 of 4 nodes can be members of load balancers");
        // Where no node is the provider's, none is known to be another's.
        assert_eq!(names(&set(false, &nodes[..3])), ["bare", "edge", "odd"]);
    }

    fn sorted(node: &Node) -> Result<Member, Excluded> {
        let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
        member(node, rules(&scale_down_taints, &traits()))
    }

    fn taint(key: &str) -> Taint {
        Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() }
    }

    #[test]
    fn a_member_has_what_the_provider_needs() {
        let member = sorted(&node()).expect("eligible");
        assert_eq!(member.provider_id.as_ref().map(ProviderId::as_str), Some("sim://n"));
        let addresses: Vec<_> = member.addresses.iter().map(|one| &*one.address).collect();
        assert_eq!(addresses, ["10.0.0.1", "192.0.2.1"], "no host names");
        assert!(member.labels.is_empty());
    }

    #[test]
    fn readiness_and_cordons_do_not_drain_a_load_balancer() {
        let condition =
            |status: &str| Condition { kind: "Ready".into(), status: status.into(), reason: None };
        for status in ["False", "Unknown"] {
            assert!(sorted(&Node { conditions: vec![condition(status)], ..node() }).is_ok());
        }
        assert!(sorted(&Node { unschedulable: true, ..node() }).is_ok());
        assert!(sorted(&Node { taints: vec![taint("example.com/other")], ..node() }).is_ok());
    }

    #[test]
    fn each_reason_to_be_no_member() {
        let label = |value: &str| Node {
            labels: [(service_keys::EXCLUDE_NODE.into(), value.into())].into(),
            ..node()
        };
        for value in ["", "true", "1", "t", "yes", "no", "false "] {
            assert_eq!(sorted(&label(value)), Err(Excluded::Label), "{value:?}");
        }
        for value in ["0", "f", "F", "FALSE", "false", "False"] {
            assert!(sorted(&label(value)).is_ok(), "{value:?}");
        }
        for (node, why) in [
            (
                Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..label("true") },
                Excluded::ScaleDown,
            ),
            (Node { deleting: true, ..label("true") }, Excluded::Label),
            (Node { deleting: true, ..node() }, Excluded::Deleting),
            (
                Node { taints: vec![taint(node_keys::UNINITIALIZED)], ..node() },
                Excluded::Uninitialised,
            ),
            (Node { provider_id: None, ..node() }, Excluded::NoProviderId),
            (Node { provider_id: Some("nonsense".into()), ..node() }, Excluded::NoProviderId),
            (
                Node { addresses: vec![Address::new("Hostname", "n")], ..node() },
                Excluded::NoAddress,
            ),
        ] {
            assert_eq!(sorted(&node), Err(why), "{node:?}");
        }
    }

    #[test]
    fn why_no_node_is_a_member() {
        let traits = traits();
        let rules = rules(&[], &traits);
        let why = |nodes: &[Node]| {
            node_set(nodes.iter(), rules, &NodeSet::default(), At::default()).why_none()
        };
        assert_eq!(why(&[node()]), None);
        assert_eq!(why(&[]).as_deref(), Some("the cluster has no node"));
        let labelled = |name: &str| Node {
            name: name.into(),
            labels: [(service_keys::EXCLUDE_NODE.into(), "".into())].into(),
            ..node()
        };
        let bare = Node { name: "c".into(), provider_id: None, ..node() };
        let two = why(&[labelled("a"), bare.clone()]).unwrap_or_default();
        assert_eq!(
            two,
            "none of 2 nodes can be a member: 1 with the label node.kubernetes.io/exclude-from-external-load-balancers, 1 without a provider ID"
        );
        // A different number of nodes is not reported, a different cause is.
        let three = why(&[labelled("a"), labelled("b"), bare]).unwrap_or_default();
        assert_ne!(two, three);
        assert_eq!(without_numbers(&two), without_numbers(&three));
        let one = why(&[labelled("a")]).unwrap_or_default();
        assert_ne!(without_numbers(&two), without_numbers(&one));
    }

    /// Whether the change of this node changes the members of load balancers.
    fn passes_on(before: &Node, after: &Node) -> bool {
        let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
        let traits = traits();
        let rules = rules(&scale_down_taints, &traits);
        let now = At::default();
        let set = |node: &Node, last: &NodeSet| node_set(std::iter::once(node), rules, last, now);
        let last = set(before, &NodeSet::default());
        let is_same = Arc::ptr_eq(&set(after, &last).members, &last.members);
        assert_eq!(is_same, set(after, &last).members == last.members, "an equal set is shared");
        !is_same
    }

    #[test]
    fn what_changes_of_a_node_is_passed_on() {
        let with_condition = |mut node: Node, kind: &str, status: &str| {
            node.conditions =
                vec![Condition { kind: kind.into(), status: status.into(), reason: None }];
            node
        };
        let ready = |node, status| with_condition(node, "Ready", status);
        let excluded = |mut node: Node| {
            node.labels = [(service_keys::EXCLUDE_NODE.into(), "".into())].into();
            node
        };
        let tainted = |node| Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..node };
        let with_id = |node, id: &str| Node { provider_id: Some(id.into()), ..node };
        let without_id = |node| Node { provider_id: None, ..node };
        let labelled = |node| Node { labels: [("a".into(), "b".into())].into(), ..node };
        for (before, after, expect) in [
            (node(), node(), false),
            (node(), excluded(node()), true),
            (excluded(node()), excluded(node()), false),
            (node(), tainted(node()), true),
            (node(), Node { taints: vec![taint("example.com/other")], ..node() }, false),
            (node(), labelled(node()), false),
            (ready(node(), "False"), ready(node(), "True"), false),
            (ready(node(), "False"), node(), false),
            (node(), with_condition(node(), "DiskPressure", "True"), false),
            (node(), Node { deleting: true, ..node() }, true),
            (node(), with_id(node(), "sim://other"), true),
            (without_id(node()), node(), true),
            (without_id(node()), excluded(without_id(node())), false),
            (without_id(node()), tainted(without_id(node())), false),
            (without_id(node()), ready(without_id(node()), "False"), false),
            (tainted(node()), excluded(tainted(node())), false),
            (tainted(node()), without_id(tainted(node())), false),
            (tainted(node()), with_id(tainted(node()), "sim://other"), false),
            (tainted(node()), ready(tainted(node()), "False"), false),
            (excluded(node()), tainted(excluded(node())), false),
            (excluded(node()), ready(excluded(node()), "False"), false),
            (excluded(node()), without_id(excluded(node())), false),
            (excluded(node()), with_id(excluded(node()), "sim://other"), false),
            (ready(node(), "False"), tainted(ready(node(), "False")), true),
            (ready(node(), "False"), excluded(ready(node(), "False")), true),
            (ready(node(), "False"), without_id(ready(node(), "False")), true),
            (ready(node(), "False"), with_id(ready(node(), "False"), "sim://other"), true),
        ] {
            assert_eq!(passes_on(&before, &after), expect, "{before:?} to {after:?}");
            assert_eq!(passes_on(&after, &before), expect, "{after:?} to {before:?}");
        }
    }

    #[test]
    fn members_are_sorted_whatever_the_order_of_the_nodes() {
        let traits = traits();
        let rules = rules(&[], &traits);
        let named = |name: &str| Node { name: name.into(), ..node() };
        let set = |nodes: [Node; 2]| {
            node_set(nodes.iter(), rules, &NodeSet::default(), At::default()).members
        };
        let members = set([named("b"), named("a")]);
        assert_eq!(members, set([named("a"), named("b")]));
        assert_eq!(members.iter().map(|one| &*one.node).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_node_that_goes_keeps_its_mark_for_a_day() {
        let traits = traits();
        let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
        let rules = rules(&scale_down_taints, &traits);
        let marked = Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..node() };
        let at = |hours| At::default() + Duration::from_hours(hours);
        let seen = node_set([&marked].into_iter(), rules, &NodeSet::default(), at(0));
        for (hours, is_marked) in [(1, true), (23, true), (25, false)] {
            let set = node_set([].into_iter(), rules, &seen, at(hours));
            assert_eq!(set.marked.contains_key("n"), is_marked, "{hours}");
        }
    }

    #[test]
    fn the_digest_covers_the_addresses() {
        let with = |address: &str| {
            let addresses = [Address::new("InternalIP", address)].into();
            let member = sorted(&Node { addresses, ..node() }).expect("eligible");
            digest(&[member])
        };
        assert_eq!(with("10.0.0.1"), with("10.0.0.1"));
        assert_ne!(with("10.0.0.1"), with("10.0.0.2"));
    }
}
