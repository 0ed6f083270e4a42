//! The rules about writes to nodes.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_cloud::Instance;
use ccm_controller::brake::Limit;
use ccm_objects::{
    Node,
    node_keys::{INSTANCE_TYPE, REGION, ZONE},
};

use super::{
    cloud::{agrees, is_of_name, is_same_machine},
    kubelets::wanted,
    world::Basis,
};
use crate::plan::{
    IdentityPolicy, LABEL_POLICY, LabelPolicy, NodeChange, Step, UNINITIALIZED, addresses,
};

/// The window, less the time that a write may take.
const WINDOW: Duration = Duration::from_mins(55);
/// The most writes of the same content to a node within a minute: three at once, then after 10, 20 and 40 s.
const SAME: usize = 6;
/// The most corrections within ten seconds: the rate is one per second, and a turn is valid for ten.
const CORRECTIONS: usize = 22;
/// The pause after a write that the answer did not show, less the time that a write may take.
const REFUSED: Duration = Duration::from_secs(55);

#[derive(Default)]
pub(super) struct Rules {
    /// The Ready nodes that were changed without approval.
    changes: Vec<(At, String)>,
    /// The most nodes that the brake has guarded.
    most: usize,
    /// The writes, by node and content.
    writes: BTreeMap<String, Vec<At>>,
    /// The last values that were written and not stored, by node and field, and when.
    dropped: BTreeMap<String, (String, At)>,
    corrections: Vec<At>,
    /// How often each node has lost its taint, by UID.
    pub(super) untaints: BTreeMap<String, usize>,
    pub(super) is_quiet: bool,
}

fn other_taints(node: &Node) -> Vec<&ccm_objects::Taint> {
    node.taints.iter().filter(|taint| *taint.key != *UNINITIALIZED).collect()
}

fn topology_keys() -> impl Iterator<Item = &'static str> {
    [ZONE, REGION, INSTANCE_TYPE].into_iter().flat_map(|(beta, ga)| [beta, ga])
}

/// Returns the label policy of the node.
pub(super) fn label_policy(node: &Node, settings: LabelPolicy) -> LabelPolicy {
    match node.annotation(LABEL_POLICY) {
        Some("once") => LabelPolicy::Once,
        Some("off") => LabelPolicy::Off,
        Some("follow") => LabelPolicy::Follow,
        _ => settings,
    }
}

impl Rules {
    /// Begins a new leader, who knows nothing of the last one but its budget.
    pub(super) fn leads_anew(&mut self) {
        let (changes, most) = (std::mem::take(&mut self.changes), self.most);
        *self = Self { changes, most, ..Self::default() };
    }

    pub(super) fn note_population(&mut self, population: usize) {
        self.most = self.most.max(population);
    }

    /// Records that the API server has made this write to a node.
    pub(super) fn written(&mut self, old: &Node, new: &Node, step: &Step, basis: &Basis, now: At) {
        assert!(!self.is_quiet, "Quiet: nothing has changed, and {old:?} is written: {step:?}");
        if old.is_uninitialised() && !new.is_uninitialised() {
            initialised(old, new, basis);
            *self.untaints.entry(old.uid.to_string()).or_default() += 1;
        }
        assert_eq!(other_taints(old), other_taints(new), "Taints: {step:?}");
        if old.is_ready() && !old.is_uninitialised() {
            let stays = addresses::primary(&new.addresses).is_some()
                || addresses::primary(&old.addresses).is_none();
            assert!(stays, "LastAddress: {old:?}: {step:?}");
        }
        match step {
            Step::SetAddresses { addresses, .. } => are_addresses(old, addresses),
            Step::ChangeNode(change) => are_labels(old, change, basis),
        }
        is_its_own(step, basis);
        if !old.is_uninitialised() {
            self.corrections.push(now);
            self.corrections.retain(|at| now.since(*at) < Duration::from_secs(10));
            let count = self.corrections.len();
            assert!(count <= CORRECTIONS, "Rate: {count} corrections");
        }
        self.repeats(old, new, step, basis, now);
    }

    /// Checks that nothing is written again and again.
    fn repeats(&mut self, old: &Node, new: &Node, step: &Step, basis: &Basis, now: At) {
        let own = |key: &str| format!("{} {key}", old.uid);
        let mut fields: Vec<(String, String, bool)> = Vec::new();
        match step {
            Step::SetAddresses { addresses, .. } => {
                let is_shown = new.addresses == *addresses;
                fields.push((own("addresses"), format!("{addresses:?}"), is_shown));
            }
            Step::ChangeNode(change) => {
                let untaints = change.taints.is_some();
                let taint = (own("taint"), String::new(), !new.is_uninitialised());
                fields.extend(Some(taint).filter(|_| untaints));
                // The labels of this policy are not written again.
                let is_once = label_policy(old, basis.policy.labels) == LabelPolicy::Once;
                for (key, value) in change.labels.iter().filter(|_| !is_once) {
                    let shown = new.labels.get(key.as_str()).map(|value| &**value);
                    fields.push((own(key), format!("{value:?}"), shown == value.as_deref()));
                }
            }
        }
        for (field, value, is_shown) in fields {
            let same = self.writes.entry(format!("{field} {value}")).or_default();
            same.push(now);
            same.retain(|at| now.since(*at) < Duration::from_mins(1));
            assert!(same.len() <= SAME, "Repeats: {field} is written {} times", same.len());
            let before = self.dropped.remove(&field).filter(|(before, _)| *before == value);
            let is_soon = before.is_some_and(|(_, at)| now.since(at) < REFUSED);
            assert!(!is_soon, "Refused: {field} was not stored, and is written again");
            if !is_shown {
                self.dropped.insert(field, (value, now));
            }
        }
    }

    /// Checks that no more Ready nodes change than the budget allows.
    pub(super) fn check_budget(
        &mut self,
        old: &Node,
        new: &Node,
        is_approved: bool,
        limit: Option<Limit>,
        now: At,
    ) {
        if !old.is_ready() || old.is_uninitialised() {
            return;
        }
        let is_changed = addresses::primary(&old.addresses)
            .is_some_and(|own| addresses::primary(&new.addresses) != Some(own))
            || [ZONE, REGION, INSTANCE_TYPE].iter().any(|(_, key)| {
                let value = old.labels.get(*key);
                value.is_some() && value != new.labels.get(*key)
            });
        if is_changed && !is_approved {
            self.changes.push((now, old.uid.to_string()));
        }
        let Some(limit) = limit else { return };
        self.changes.retain(|(at, _)| now.since(*at) < WINDOW);
        let mut uids: Vec<_> = self.changes.iter().map(|(_, uid)| uid).collect();
        uids.sort();
        uids.dedup();
        let limit = limit.for_population(self.most);
        assert!(uids.len() <= limit, "Budget: more than {limit}: {:?}", self.changes);
    }
}

/// Records that the node has lost its taint.
fn initialised(old: &Node, new: &Node, basis: &Basis) {
    let has_address = addresses::have_ip(&new.addresses) || basis.policy.without_address;
    assert!(has_address, "Initialised: without address: {old:?}");
    assert!(new.provider_id.is_some(), "Initialised: without ID: {old:?}");
    let asked = wanted(old);
    let has = |ip: &String| new.addresses.iter().any(|one| *one.address == **ip);
    assert!(asked.iter().all(has), "NodeIp: initialised without {asked:?}: {new:?}");
    let Some(instance) = &basis.instance else { panic!("Initialised: without instance: {old:?}") };
    let first = &*basis.node;
    if basis.policy.identity == IdentityPolicy::Strict && first.provider_id.is_some() {
        let is_its = agrees(first, instance) || !is_comparable(first, instance);
        assert!(is_its, "Identity: {instance:?} is not the instance of {first:?}");
    }
}

/// Returns true if the cloud and the kubelet give something that may agree.
pub(super) fn is_comparable(node: &Node, instance: &Instance) -> bool {
    let has_host = instance.addresses.iter().any(|one| one.address.starts_with("node-"));
    let have_ips = addresses::have_ip(&node.addresses) || !wanted(node).is_empty();
    !instance.name.is_empty() || has_host || have_ips && !instance.addresses.is_empty()
}

/// Checks that IPs are IPs, the node keeps its host name, and has the address that its kubelet asks
/// for.
fn are_addresses(old: &Node, new: &[ccm_objects::Address]) {
    let is_ip = |one: &&ccm_objects::Address| one.kind.ends_with("IP");
    let wrong = new.iter().filter(is_ip).find(|one| one.ip().is_none());
    assert!(wrong.is_none(), "Ip: {wrong:?} for {old:?}");
    let has_name = |all: &[ccm_objects::Address]| all.iter().any(|one| *one.kind == *"Hostname");
    assert!(has_name(new) || !has_name(&old.addresses), "Hostname: of {old:?} is lost: {new:?}");
    let asked = wanted(old);
    let has = |ip: &String| new.iter().any(|one| *one.address == **ip);
    assert!(asked.iter().all(has), "NodeIp: {asked:?} is not in {new:?}");
}

/// Checks that labels follow the policy, have legal values, and are not labels of Kubernetes.
fn are_labels(old: &Node, change: &NodeChange, basis: &Basis) {
    let policy = label_policy(old, basis.policy.labels);
    let may_change = match policy {
        LabelPolicy::Follow => true,
        LabelPolicy::Once => old.is_uninitialised(),
        LabelPolicy::Off => false,
    };
    assert!(may_change || change.labels.is_empty(), "LabelPolicy: {policy:?}: {change:?}");
    for (key, value) in &change.labels {
        let is_legal = value.as_ref().is_none_or(|value| !value.contains(' '));
        let is_reserved = key.contains("kubernetes.io/") && topology_keys().all(|it| it != key);
        assert!(is_legal && !is_reserved, "Labels: {key}={value:?} of {old:?}");
    }
}

/// Checks that a write is about the node's own instance.
fn is_its_own(step: &Step, basis: &Basis) {
    let old = &*basis.node;
    let Some(instance) = &basis.instance else { panic!("Own: without instance: {step:?}") };
    if let Step::ChangeNode(NodeChange { provider_id: Some(id), .. }) = step {
        assert_eq!(*id, *instance.provider_id.as_str(), "Own: {step:?}");
    }
    if old.provider_id.is_some() {
        return;
    }
    let shares = |one: &ccm_cloud::NodeAddress| {
        old.addresses.iter().any(|own| own.ip().is_some() && *own.address == *one.address)
            || wanted(old).contains(&one.address)
    };
    let is_confirmed = is_same_machine(old, instance) || instance.addresses.iter().any(shares);
    assert!(old.is_uninitialised() || is_confirmed, "Confirmed: {old:?} is not {instance:?}");
    let is_better = |one: &&std::sync::Arc<Node>| is_of_name(one, instance);
    let rival = basis.rivals.iter().find(is_better).filter(|_| !is_of_name(old, instance));
    let is_strict = basis.policy.identity == IdentityPolicy::Strict;
    assert!(rival.is_none() || !is_strict, "Rival: {instance:?} is of {rival:?}, not of {old:?}");
}
