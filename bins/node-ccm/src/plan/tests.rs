//! The numbers refer to the scenarios in docs/internal/parity.md.

mod properties;
mod told;
mod word;

use std::{collections::BTreeMap, time::Duration};

use ccm_cloud::{AbsenceProof, AddressKind, CloudError, NodeAddress, ProofMethod, ProviderId};
use ccm_objects::{Condition, Labels, Taint};
use insta::assert_snapshot;

use super::*;

fn taint(key: &str, value: &str) -> Taint {
    Taint {
        key: key.into(),
        value: Some(value.into()),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }
}

fn ready(status: &str) -> Vec<Condition> {
    vec![Condition { kind: "Ready".into(), status: status.into(), ..Condition::default() }]
}

/// Adds this annotation to the node.
fn annotated(mut node: Node, key: &str, value: &str) -> Node {
    node.annotations.insert(key.into(), value.into());
    node
}

#[expect(clippy::unnecessary_wraps, reason = "the plan takes a result")]
fn found(instance: Instance) -> LookupResult {
    Ok(Lookup::Found(Box::new(instance)))
}

/// Returns a node that has just been registered.
fn tainted() -> Node {
    Node {
        name: "node0".into(),
        taints: vec![taint(UNINITIALIZED, "true")],
        addresses: vec![Address::new("Hostname", "node0-own")],
        conditions: ready("True"),
        ..Node::default()
    }
}

fn instance() -> Instance {
    let mut instance = Instance::new(ProviderId::parse("fake://12345").unwrap(), "node0");
    instance.addresses = vec![
        NodeAddress::new(AddressKind::InternalIp, "10.0.0.1"),
        NodeAddress::new(AddressKind::ExternalIp, "132.143.154.163"),
    ];
    instance
}

fn full_instance() -> Instance {
    let mut instance = instance();
    instance.instance_type = Some("t1.micro".to_owned());
    instance.zone = Some("us-west-1a".to_owned());
    instance.region = Some("us-west".to_owned());
    instance
}

fn plan_for(node: &Node, instance: Instance) -> Plan {
    plan(node, Claim::Unclaimed, &found(instance), Policy::default(), PlanInputs::default())
}

fn failed(kind: ErrorKind) -> LookupResult {
    let error = CloudError::new(kind, "the cloud's own words").with_request_id("req-7");
    Err(error.with_retry_after(Duration::from_secs(3)))
}

#[test]
fn a_new_node_is_initialised_addresses_first_and_taint_last() {
    assert_snapshot!(plan_for(&tainted(), full_instance()), @r"
    initialised
    1. addresses: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own (the node has Hostname node0-own)
    2. node: set the provider ID of the instance; update the labels from the instance; remove the uninitialized taint
       providerID: fake://12345
       label beta.kubernetes.io/instance-type=t1.micro
       label failure-domain.beta.kubernetes.io/region=us-west
       label failure-domain.beta.kubernetes.io/zone=us-west-1a
       label node.kubernetes.io/instance-type=t1.micro
       label topology.kubernetes.io/region=us-west
       label topology.kubernetes.io/zone=us-west-1a
       taint node.cloudprovider.kubernetes.io/uninitialized removed
    ");
}

/// Scenarios 6, 16, 20: foreign taints, and a provider ID that is already set.
#[test]
fn foreign_taints_and_a_present_provider_id_are_kept() {
    let mut node = tainted();
    node.provider_id = Some("fake://12345".into());
    node.taints.insert(0, taint("ImproveCoverageTaint", "true"));
    node.taints.push(taint(UNINITIALIZED, "other value"));
    node.taints.push(Taint {
        time_added: Some("2026-01-01T00:00:00Z".into()),
        effect: "Odd".into(),
        ..taint("x", "")
    });
    let got =
        plan(&node, Claim::Ours, &found(instance()), Policy::default(), PlanInputs::default());
    assert_snapshot!(got, @r"
    initialised
    1. addresses: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own (the node has Hostname node0-own)
    2. node: remove the uninitialized taint
       taint node.cloudprovider.kubernetes.io/uninitialized removed, kept: ImproveCoverageTaint, x
    ");
    let Some(Step::ChangeNode(NodeChange { taints: Some(taints), .. })) = got.steps.last() else {
        panic!("{got}")
    };
    assert_eq!(taints.as_slice(), [node.taints[0].clone(), node.taints[3].clone()]);
}

/// Scenarios 7 and 17.
#[test]
fn the_annotation_selects_from_the_clouds_addresses() {
    let node = annotated(tainted(), PROVIDED_NODE_IP, "10.0.0.1");
    let mut instance = instance();
    instance.addresses.insert(0, NodeAddress::new(AddressKind::InternalIp, "10.9.9.9"));
    assert_snapshot!(plan_for(&node, instance), @r"
    initialised
    1. addresses: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own (the node has Hostname node0-own)
    2. node: set the provider ID of the instance; remove the uninitialized taint
       providerID: fake://12345
       taint node.cloudprovider.kubernetes.io/uninitialized removed
    ");
}

/// Scenarios 8 and 9: nothing is written, and the node stays tainted.
#[test]
fn an_annotation_that_does_not_fit_blocks_the_initialisation() {
    for annotation in ["invalid-ip", "10.0.0.2", ""] {
        let node = annotated(tainted(), PROVIDED_NODE_IP, annotation);
        let got = plan_for(&node, full_instance());
        let Outcome::Waits(wait) = &got.outcome else { panic!("{annotation}: {got}") };
        assert_eq!(wait.reason, WaitReason::NodeIp, "{annotation}");
        assert!(got.steps.is_empty(), "{annotation}: {got}");
    }
}

/// The API server would take it, and what reads the node's addresses would fail.
#[test]
fn an_ip_that_is_none_is_left_out_and_reported() {
    let mut bad = instance();
    bad.addresses.insert(0, NodeAddress::new(AddressKind::InternalIp, "999.1.1.1"));
    bad.addresses.push(NodeAddress::new(AddressKind::ExternalIp, "gateway"));
    assert_snapshot!(plan_for(&tainted(), bad.clone()), @r#"
    initialised
    1. addresses: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own (the node has Hostname node0-own)
    2. node: set the provider ID of the instance; remove the uninitialized taint
       providerID: fake://12345
       taint node.cloudprovider.kubernetes.io/uninitialized removed
    note: Discarding InternalIP "999.1.1.1" from the cloud: it is not an IP address
    note: Discarding ExternalIP "gateway" from the cloud: it is not an IP address
    "#);
    bad.addresses.retain(|entry| entry.address.parse::<std::net::IpAddr>().is_err());
    // With no other address the node waits for one.
    assert_snapshot!(plan_for(&tainted(), bad), @r#"waits (no_address): neither the cloud nor the kubelet knows an IP address of the node; the cloud returns "999.1.1.1", "gateway""#);
}

/// Scenarios 11 and 34: missing addresses in the cloud do not block initialisation if the kubelet
/// has set some (`--node-ip`), or if the operator says so.
#[test]
fn without_addresses_of_the_cloud_the_node_keeps_its_own() {
    let mut instance = instance();
    instance.addresses.clear();
    let got = plan_for(&tainted(), instance.clone());
    assert_eq!(
        got.to_string(),
        "waits (no_address): neither the cloud nor the kubelet knows an IP address of the node"
    );
    let lenient = Policy { without_address: true, ..Policy::default() };
    assert_snapshot!(plan(&tainted(), Claim::Unclaimed, &found(instance.clone()), lenient, PlanInputs::default()), @r"
    initialised
    1. node: set the provider ID of the instance; remove the uninitialized taint
       providerID: fake://12345
       taint node.cloudprovider.kubernetes.io/uninitialized removed
    ");
    let mut node = tainted();
    node.addresses.push(Address::new("InternalIP", "10.0.0.1"));
    assert_eq!(plan_for(&node, instance).outcome, Outcome::Initialised);
}

/// M4: the ID would be for good.
#[test]
fn a_node_without_taint_and_id_is_not_taken_by_its_name_alone() {
    let node = Node { taints: Vec::new(), ..tainted() };
    let got = plan_for(&node, full_instance());
    assert_eq!(got.to_string(), "only its name says that fake://12345 is its instance: skipped");
    let by_address =
        Node { addresses: vec![Address::new("InternalIP", "010.0.0.1")], ..node.clone() };
    let by_uuid = Node { system_uuid: Some("12345".into()), ..node.clone() };
    let other = Node { system_uuid: Some("2345".into()), ..node };
    let taken = |node| plan_for(node, full_instance()).outcome == Outcome::InSync;
    assert_eq!([&by_address, &by_uuid, &other].map(taken), [true, true, false]);
}

/// Scenarios 10, 12 and 22, quirk 3: "no answer" and "no instance" are regular outcomes.
#[test]
fn a_node_whose_lookup_fails_keeps_its_taint_with_a_reason() {
    let gone = |request: Option<&str>| {
        let evidence = "no instance named \"node0\"".to_owned();
        Ok(Lookup::Gone(AbsenceProof {
            method: ProofMethod::ByName,
            evidence,
            request_id: request.map(str::to_owned),
            kept: None,
        }))
    };
    let mut initialised = tainted();
    initialised.taints.clear();
    for (node, answer, expect) in [
        (
            tainted(),
            gone(Some("req-1")),
            "waits (instance_not_found): no instance named \"node0\" (request req-1)",
        ),
        (tainted(), gone(None), "waits (instance_not_found): no instance named \"node0\""),
        (
            Node { provider_id: Some("fake://gone".into()), ..tainted() },
            gone(None),
            "waits (instance_not_found): no instance named \"node0\"",
        ),
        (initialised.clone(), gone(None), "instance gone: skipped"),
        (
            tainted(),
            failed(ErrorKind::Throttled),
            "waits (throttled): throttled: the cloud's own words (retry after 3 s) (request req-7)",
        ),
        (initialised, failed(ErrorKind::Malformed), "lookup failed (malformed): skipped"),
        (tainted(), Ok(Lookup::NotOurs("another region".to_owned())), "not ours: another region"),
    ] {
        assert_eq!(
            plan(&node, Claim::Unclaimed, &answer, Policy::default(), PlanInputs::default())
                .to_string(),
            expect
        );
    }
}

#[test]
fn a_foreign_node_is_skipped_whatever_the_lookup_returns() {
    let node = Node { provider_id: Some("elsewhere://i-1".into()), ..tainted() };
    let answer = found(full_instance());
    assert_eq!(
        plan(&node, Claim::Foreign, &answer, Policy::default(), PlanInputs::default()).to_string(),
        "foreign: skipped"
    );
}

/// Returns an initialised node that is up to date.
fn settled(instance: &Instance) -> Node {
    properties::after(&tainted(), &plan_for(&tainted(), instance.clone()))
}

/// Scenarios 4 and 14, quirk 11: not written while nothing differs, and updated from the
/// instance when something does.
#[test]
fn an_initialised_node_follows_its_instance() {
    let node = settled(&full_instance());
    assert_eq!(plan_for(&node, full_instance()).to_string(), "in sync");

    let mut resized = full_instance();
    resized.instance_type = Some("t1.huge".to_owned());
    resized.addresses[1].address = "132.143.154.164".to_owned();
    assert_snapshot!(plan_for(&node, resized), @r"
    in sync
    1. addresses: InternalIP 10.0.0.1, ExternalIP 132.143.154.164, Hostname node0-own (the node has InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own)
    2. node: update the labels from the instance
       label beta.kubernetes.io/instance-type=t1.huge
       label node.kubernetes.io/instance-type=t1.huge
    note: the instance type of this Ready node changes from t1.micro to t1.huge
    ");
}

/// Scenarios 26 to 30, quirks 1 and 2: lists are compared in order, exactly.
#[test]
fn address_lists_differ_when_any_entry_or_the_order_does() {
    let (a, b, e) =
        (("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("ExternalIP", "1.1.1.1"));
    let host = ("Hostname", "h");
    for (what, old, new, differs) in [
        ("26", vec![a, e], vec![a, e], false),
        ("27", vec![a, e], vec![a, ("ExternalIP", "2.2.2.2")], true),
        (
            "28: a type that the cloud does not name",
            vec![a, e, ("InternalDNS", "d")],
            vec![a, e],
            true,
        ),
        ("28: kubelet's host name is kept", vec![a, e, host], vec![a, e], false),
        ("29", vec![a], vec![a, e], true),
        ("30", vec![a, e], vec![("ExternalIP", a.1), ("InternalIP", e.1)], true),
        ("quirk 1: dual-stack", vec![a, b, e], vec![a, b, e], false),
        ("quirk 2: order", vec![a, b], vec![b, a], true),
        ("quirk 2: replaced by a copy", vec![a, b], vec![b], true),
        ("quirk 2: kind and address", vec![a, e], vec![a, ("InternalIP", "10.0.0.2")], true),
    ] {
        let mut node = settled(&instance());
        node.addresses = old.iter().map(|(kind, address)| Address::new(*kind, *address)).collect();
        let mut instance = instance();
        let parsed =
            |(kind, address): &(&str, &str)| NodeAddress::new(kind.parse().unwrap(), *address);
        instance.addresses = new.iter().map(parsed).collect();
        let got = plan_for(&node, instance);
        assert_eq!(!got.steps.is_empty(), differs, "{what}: {got}");
    }
}

#[test]
fn a_changed_first_internal_ip_of_a_ready_node_is_reported_or_held() {
    let node = settled(&instance());
    let mut moved = full_instance();
    moved.addresses[0].address = "10.0.0.2".to_owned();
    let found = found(moved);
    let holding = Policy { internal_ip_change: InternalIpChange::Hold, ..Policy::default() };
    let notes_and_steps = |node: &Node, policy| {
        let got = plan(node, Claim::Ours, &found, policy, PlanInputs::default());
        let addressed = got.steps.iter().any(|step| matches!(step, Step::SetAddresses { .. }));
        (
            got.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            addressed,
            got.steps.len(),
        )
    };
    assert_eq!(
        notes_and_steps(&node, Policy::default()),
        (
            "the first InternalIP of this Ready node changes from 10.0.0.1 to 10.0.0.2".to_owned(),
            true,
            2
        )
    );
    let held = "the cloud returns 10.0.0.2 as the first InternalIP; this node is Ready and keeps 10.0.0.1 \
                (--node-internal-ip-change=hold)";
    assert_eq!(
        notes_and_steps(&node, holding),
        (held.to_owned(), false, 1),
        "labels follow nevertheless"
    );
    let not_ready = Node { conditions: ready("False"), ..node.clone() };
    assert_eq!(notes_and_steps(&not_ready, holding), (String::new(), true, 2));
    let fresh = Node { taints: tainted().taints, ..node };
    assert_eq!(
        notes_and_steps(&fresh, holding),
        (String::new(), true, 2),
        "a new node has nothing to lose"
    );
}

/// H1: a Ready node keeps its last InternalIP, whatever the policy.
#[test]
fn the_last_internal_ip_of_a_ready_node_stays() {
    let node = settled(&instance());
    let mut lost = instance();
    lost.addresses.remove(0);
    assert_snapshot!(plan_for(&node, lost.clone()), @r"
    in sync
    note: the cloud returns no InternalIP; this node is Ready and keeps its addresses, with 10.0.0.1
    ");
    let not_ready = Node { conditions: ready("Unknown"), ..node };
    assert_eq!(plan_for(&not_ready, lost).steps.len(), 1);
}

/// H1: what the brake is asked about.
#[test]
fn changes_of_what_pods_depend_on_need_the_brake() {
    let mut dual = full_instance();
    dual.addresses.push(NodeAddress::new(AddressKind::InternalIp, "fd00::1"));
    let node = settled(&dual);
    let change = |change: &dyn Fn(&mut Instance)| {
        let mut changed = dual.clone();
        change(&mut changed);
        changed
    };
    for (needed, changed) in [
        (true, change(&|it| it.addresses[0].address = "10.0.0.2".to_owned())),
        (true, change(&|it| drop(it.addresses.pop()))),
        (true, change(&|it| it.zone = Some("b".to_owned()))),
        (true, change(&|it| it.region = Some("b".to_owned()))),
        (true, change(&|it| it.instance_type = Some("b".to_owned()))),
        (false, change(&|it| it.addresses[1].address = "132.143.154.164".to_owned())),
        (false, change(&|it| it.addresses[2].address = "fd00::2".to_owned())),
        (false, change(&|it| it.zone = None)),
        (false, change(&|it| drop(it.labels.insert("e.com/a".to_owned(), "b".to_owned())))),
    ] {
        let got = plan_for(&node, changed.clone());
        assert_eq!(got.needs_brake(), needed, "{got}");
        assert_eq!(got.steps.is_empty(), changed.zone.is_none(), "{got}");
        let not_ready = Node { conditions: ready("False"), ..node.clone() };
        assert!(!plan_for(&not_ready, changed.clone()).needs_brake(), "{got}");
        let tainted = Node { taints: tainted().taints, ..node.clone() };
        assert!(!plan_for(&tainted, changed).needs_brake(), "{got}");
    }
    // A field that it did not have before does not count as a change.
    let bare = Node { labels: Labels::default(), addresses: Vec::new(), ..node };
    assert!(!plan_for(&bare, dual).needs_brake());
}

#[test]
fn an_approval_goes_with_the_change_that_it_approves() {
    let approved = annotated(settled(&full_instance()), APPROVED, "yes");
    assert_eq!(plan_for(&approved, full_instance()).to_string(), "in sync", "it waits for one");
    let mut moved = full_instance();
    moved.addresses[0].address = "10.0.0.2".to_owned();
    assert_snapshot!(plan_for(&approved, moved.clone()), @r"
    in sync
    1. addresses: InternalIP 10.0.0.2, ExternalIP 132.143.154.163, Hostname node0-own (the node has InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0-own)
       approval quartet.dev/change-approved removed: it is used up
    note: the first InternalIP of this Ready node changes from 10.0.0.1 to 10.0.0.2
    ");
    // With the last change that it approves.
    moved.zone = Some("b".to_owned());
    let got = plan_for(&approved, moved);
    let removes = |step: &Step| step.to_string().contains(APPROVED);
    assert_eq!(got.steps.iter().map(removes).collect::<Vec<_>>(), [false, true], "{got}");
}

/// M13: by setting, and by an annotation of the node.
#[test]
fn the_label_policy_says_when_labels_follow() {
    use LabelPolicy::{Follow, Off, Once};
    for (policy, own, new, old) in [
        (Follow, None, 6, 2),
        (Once, None, 6, 0),
        (Off, None, 0, 0),
        (Follow, Some("once"), 6, 0),
        (Off, Some("follow"), 6, 2),
        (Once, Some("never"), 6, 0),
    ] {
        let policy = Policy { labels: policy, ..Policy::default() };
        let with = |node: Node| match own {
            Some(own) => annotated(node, LABEL_POLICY, own),
            None => node,
        };
        let labels = |node: &Node, instance| {
            let got = plan(node, Claim::Unclaimed, &found(instance), policy, PlanInputs::default());
            let note = Note::InvalidLabelPolicy("never".to_owned());
            assert_eq!(got.notes.contains(&note), own == Some("never"), "{got}");
            let labels = |step: &Step| match step {
                Step::ChangeNode(change) => change.labels.len(),
                Step::SetAddresses { .. } => 0,
            };
            got.steps.iter().map(labels).sum::<usize>()
        };
        assert_eq!(labels(&with(tainted()), full_instance()), new, "{policy:?} {own:?}");
        let moved = Instance { zone: Some("b".to_owned()), ..full_instance() };
        assert_eq!(labels(&with(settled(&full_instance())), moved), old, "{policy:?} {own:?}");
    }
}

#[test]
fn an_invalid_annotation_of_an_initialised_node_only_blocks_address_updates() {
    let node = annotated(settled(&instance()), PROVIDED_NODE_IP, "10.0.0.2");
    let got = plan_for(&node, full_instance());
    assert!(matches!(got.notes.as_slice(), [Note::NodeIpRefused(_)]), "{got}");
    assert!(
        matches!(got.steps.as_slice(), [Step::ChangeNode(change)] if change.labels.len() == 6),
        "{got}"
    );
}

#[test]
fn a_plan_can_be_serialised() {
    let got = serde_json::to_value(plan_for(&tainted(), full_instance())).unwrap();
    assert_eq!(got["steps"][1]["ChangeNode"]["provider_id"], "fake://12345");
    assert_eq!(got["outcome"], "Initialised");
}
