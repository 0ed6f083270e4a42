//! A kubelet may write false fields to its own Node.

use super::*;

const ID: &str = "fake://12345";
const GA_ZONE: &str = "topology.kubernetes.io/zone";

fn strict() -> Policy {
    Policy::default()
}

fn report() -> Policy {
    Policy { identity: IdentityPolicy::Report, ..Policy::default() }
}

/// Returns the node with the ID of the instance, from its kubelet.
fn claiming(name: &str) -> Node {
    let node = tainted();
    Node { name: name.into(), uid: name.into(), provider_id: Some(ID.into()), ..node }
}

fn settled(name: &str) -> Node {
    Node { taints: Vec::new(), ..claiming(name) }
}

fn follow_among(node: &Node, policy: Policy, rivals: &[Node]) -> Plan {
    let rivals: Vec<_> = rivals.iter().cloned().map(Arc::new).collect();
    let known = PlanInputs { rivals: &rivals, ..PlanInputs::default() };
    follow(node, &instance(), policy, known)
}

fn first_line(plan: &Plan) -> String {
    plan.to_string().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_new_node_with_an_id_that_nothing_confirms_waits() {
    let rogue = claiming("rogue");
    let plan = follow_among(&rogue, strict(), &[]);
    assert_snapshot!(plan, @"waits (identity): neither the name nor the system UUID nor an address of the node agrees with fake://12345 (node0, 10.0.0.1, 132.143.154.163): correct the kubelet's --provider-id, or set --node-identity=report");
    assert_eq!(first_line(&follow_among(&rogue, report(), &[])), "initialised");
    let notes = follow_among(&rogue, report(), &[]).notes;
    assert!(matches!(&*notes, [Note::Doubted(Doubt::NothingAgrees { .. })]), "{notes:?}");
    // Its kubelet has given no ID: it was found by the system UUID or the name.
    let found = Node { provider_id: None, ..rogue };
    assert_eq!(follow_among(&found, strict(), &[]).notes, []);
    assert_eq!(first_line(&follow_among(&found, strict(), &[])), "initialised");
}

#[test]
fn of_two_nodes_with_an_id_one_waits() {
    for (why, node, rival, is_held) in [
        ("the other one is initialised", claiming("a"), settled("b"), true),
        ("the name of the other one agrees", claiming("a"), claiming("node0"), true),
        ("its own name agrees", claiming("node0"), settled("b"), false),
        ("without an ID as well", Node { provider_id: None, ..claiming("a") }, settled("b"), true),
    ] {
        let plan = follow_among(&node, strict(), std::slice::from_ref(&rival));
        let expect = if is_held {
            "waits (identity): fake://12345 is the instance of"
        } else {
            "initialised"
        };
        assert!(first_line(&plan).starts_with(expect), "{why}: {plan}");
        assert_eq!(plan.steps.is_empty(), is_held, "{why}");
        let plan = follow_among(&node, report(), &[rival]);
        assert_eq!(plan.outcome, Outcome::Initialised, "{why}");
        assert_eq!(plan.notes.len(), usize::from(is_held), "{why}: {:?}", plan.notes);
    }
}

/// It is never tainted or emptied; only a node without an ID does not get one.
#[test]
fn an_initialised_node_is_followed_and_told() {
    let rivals = [settled("node0")];
    let plan = follow_among(&settled("a"), strict(), &rivals);
    assert_eq!(plan.outcome, Outcome::InSync);
    assert!(matches!(&*plan.notes, [Note::Doubted(Doubt::Anothers { .. }), ..]), "{plan}");
    assert!(!plan.steps.is_empty());
    let address = vec![Address::new("InternalIP", "10.0.0.1")];
    let without = Node { provider_id: None, addresses: address, ..settled("a") };
    let plan = follow_among(&without, strict(), &rivals);
    assert!(matches!(plan.outcome, Outcome::Doubted(_)), "{plan}");
    assert_eq!(plan.steps, []);
    assert!(!follow_among(&without, report(), &rivals).steps.is_empty());
}

#[test]
fn what_cannot_be_compared_is_only_said() {
    let mut nameless = instance();
    nameless.name.clear();
    // The kubelet gives no address.
    let plan = follow(&claiming("a"), &nameless, strict(), PlanInputs::default());
    assert_eq!(plan.outcome, Outcome::Initialised);
    assert_eq!(plan.notes, [Note::Doubted(Doubt::NotComparable(ID.to_owned()))]);
    assert!(!plan.notes[0].event().1, "no event: all nodes of this cloud are like that");
    let plan = follow(&settled("a"), &nameless, strict(), PlanInputs::default());
    assert!(!plan.notes.iter().any(|note| matches!(note, Note::Doubted(_))), "{plan}");
}

/// Returns a Ready node as its instance says.
fn in_sync() -> Node {
    let labels = [
        ("node.kubernetes.io/instance-type", "t1.micro"),
        ("topology.kubernetes.io/zone", "us-west-1a"),
        ("topology.kubernetes.io/region", "us-west"),
    ];
    Node {
        addresses: vec![
            Address::new("InternalIP", "10.0.0.1"),
            Address::new("ExternalIP", "132.143.154.163"),
        ],
        labels: labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        ..settled("node0")
    }
}

/// Returns the plan for a node that has agreed with the cloud once.
fn after_agreement(node: &Node, instance: &Instance, policy: Policy) -> Plan {
    let mut agreed = Agreed::default();
    agreed.note(&in_sync(), &full_instance());
    // Later answers with which the node does not agree change nothing.
    agreed.note(node, instance);
    follow(node, instance, policy, PlanInputs { agreed, ..PlanInputs::default() })
}

#[test]
fn what_another_client_has_written_is_set_back_without_the_brake() {
    let hold = Policy { internal_ip_change: InternalIpChange::Hold, ..Policy::default() };
    for policy in [Policy::default(), hold] {
        let mut node = in_sync();
        node.addresses[0] = Address::new("InternalIP", "10.9.9.9");
        node.labels.insert(GA_ZONE.into(), "elsewhere".into());
        let plan = after_agreement(&node, &full_instance(), policy);
        assert!(!plan.needs_brake(), "{plan}");
        let restored =
            Note::InternalIpRestored { from: "10.9.9.9".to_owned(), to: "10.0.0.1".to_owned() };
        assert_eq!(plan.notes, [restored]);
        assert_eq!(plan.steps.len(), 2, "{plan}");

        // Without memory it may be the cloud that has changed.
        let plan = follow(&node, &full_instance(), policy, PlanInputs::default());
        let is_held = policy == hold;
        assert_eq!(plan.changes().count(), if is_held { 1 } else { 2 }, "{plan}");
    }
}

#[test]
fn what_the_cloud_changes_meets_the_brake() {
    let mut moved = full_instance();
    moved.addresses[0].address = "10.0.0.2".to_owned();
    let plan = after_agreement(&in_sync(), &moved, Policy::default());
    assert!(plan.needs_brake(), "{plan}");
    let hold = Policy { internal_ip_change: InternalIpChange::Hold, ..Policy::default() };
    assert_eq!(after_agreement(&in_sync(), &moved, hold).steps.len(), 1, "labels only");
    // Also if another client has written an address in the meantime.
    let mut node = in_sync();
    node.addresses[0] = Address::new("InternalIP", "10.9.9.9");
    assert!(after_agreement(&node, &moved, Policy::default()).needs_brake());
    let zone = Instance { zone: Some("elsewhere".to_owned()), ..full_instance() };
    assert!(after_agreement(&in_sync(), &zone, Policy::default()).needs_brake());
    // Another object of this name has agreed with nothing.
    let new = Node { uid: "new".into(), addresses: node.addresses.clone(), ..in_sync() };
    assert!(after_agreement(&new, &full_instance(), Policy::default()).needs_brake());
}

/// A cloud that forgets the addresses does not agree with a node without addresses.
#[test]
fn the_last_internal_ip_stays_after_an_agreement_as_well() {
    let mut external = full_instance();
    external.addresses.remove(0);
    let node = Node { addresses: vec![Address::new("ExternalIP", "132.143.154.163")], ..in_sync() };
    let mut agreed = Agreed::default();
    agreed.note(&node, &external);
    let plan =
        follow(&in_sync(), &external, strict(), PlanInputs { agreed, ..PlanInputs::default() });
    assert!(matches!(&*plan.notes, [Note::InternalIpHeld { to: None, .. }]), "{plan}");
}

/// A policy that leaves labels alone does not count as agreement.
#[test]
fn labels_that_were_left_alone_meet_the_brake_later() {
    let mut node = in_sync();
    node.labels.insert(GA_ZONE.into(), "rack-7".into());
    let mut agreed = Agreed::default();
    agreed.note(&node, &full_instance());
    let plan =
        follow(&node, &full_instance(), strict(), PlanInputs { agreed, ..PlanInputs::default() });
    assert!(plan.needs_brake(), "{plan}");
}
