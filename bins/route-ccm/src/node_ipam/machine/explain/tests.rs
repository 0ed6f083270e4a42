//! Explanations of nodes in each state. The nodes and the block come from the machine's tests.

use std::sync::Arc;

use ccm_cloud::{CloudError, ErrorKind, Instance, Lookup, ProviderId};
use ccm_controller::machine::Machine as _;

use super::{
    super::{
        Begin, Event, Found, Written,
        tests::{at, begun, node, turn},
    },
    *,
};

fn says(explained: &Explanation, state: ObjectState, cause: &str, fix: &str) {
    assert_eq!(explained.state, state, "{explained:#?}");
    assert!(explained.cause.contains(cause), "{cause:?}: {explained:#?}");
    assert!(explained.fix.contains(fix), "{fix:?}: {explained:#?}");
}

/// Returns the explanation of a node, a minute after the begin. It changes nothing.
fn explain(machine: &Machine, node: &Arc<Node>) -> Explanation {
    let memory = || serde_json::to_value(machine).expect("it can be written");
    let before = memory();
    let explained = machine.explain(&node.name, Some(node), None, at(60));
    assert_eq!(memory(), before);
    explained
}

#[test]
fn a_node_with_pod_cidrs_is_compared_with_the_others() {
    let own = node("a", &["10.0.0.0/24"]);
    let machine = begun(vec![Arc::clone(&own)]);
    let fine = "podCIDRs 10.0.0.0/24, inside of --cluster-cidr 10.0.0.0/24";
    says(&explain(&machine, &own), ObjectState::Fine, fine, NOTHING);
    says(
        &explain(&machine, &node("new", &["10.0.0.0/24"])),
        ObjectState::Fine,
        "not compared",
        NOTHING,
    );
    for (other, state, cause, fix) in [
        (
            "10.9.0.0/24",
            ObjectState::Blocked,
            "is not in --cluster-cidr 10.0.0.0/24",
            "add its network",
        ),
        (
            "10.0.0.0/24",
            ObjectState::Blocked,
            "overlaps 10.0.0.0/24 of node a",
            "delete one of the",
        ),
        ("x", ObjectState::Blocked, "is not a network", "delete the node"),
    ] {
        let other = node("b", &[other]);
        let machine = begun(vec![Arc::clone(&own), Arc::clone(&other)]);
        says(&explain(&machine, &other), state, cause, fix);
    }
    let half = node("b", &["10.0.0.0/25"]);
    let machine = begun(vec![Arc::clone(&half)]);
    says(
        &explain(&machine, &half),
        ObjectState::Fine,
        "is not a block of /24 as --node-cidr-mask",
        NOTHING,
    );
}

#[test]
fn a_node_without_pod_cidrs_says_what_it_waits_for() {
    let (there, new) = (node("a", &["10.0.0.0/24"]), node("b", &[]));
    let mut machine = begun(vec![Arc::clone(&there), Arc::clone(&new)]);
    let full = "10.0.0.0/24 has no free IPv4 block of /24: all 1 are taken";
    let larger = "set --cluster-cidr to a larger network that contains it";
    // The same holds before its turn.
    says(&explain(&machine, &new), ObjectState::Blocked, full, larger);
    turn(&mut machine, &new, at(1));
    says(&explain(&machine, &new), ObjectState::Blocked, full, larger);
    machine.apply(Event::Gone(Arc::clone(&there)), at(50));
    let held = explain(&machine, &new);
    says(&held, ObjectState::Blocked, "also by 1 node that is gone", larger);
    assert!(held.next.starts_with("blocks of nodes that are gone become free at"), "{held:?}");
    let gone = machine.explain("a", None, None, at(60));
    says(
        &gone,
        ObjectState::Working,
        "its blocks 10.0.0.0/24 are not given to another node",
        "wait",
    );
    machine.apply(Event::Time, at(90));
    let turns = "the node waits for its turn, and would get podCIDRs 10.0.0.0/24 now";
    says(&explain(&machine, &new), ObjectState::Working, turns, "wait");
    turn(&mut machine, &new, at(91));
    says(
        &explain(&machine, &new),
        ObjectState::Working,
        "podCIDRs 10.0.0.0/24 are being written",
        "wait",
    );
    let unknown = machine.explain("x", None, None, at(60));
    says(
        &unknown,
        ObjectState::Unknown,
        "does not show a node \"x\", and no block is held for a node of this name that this leader has seen",
        "check the name",
    );
    let going = Arc::new(Node { deleting: true, ..Node::clone(&new) });
    says(
        &explain(&machine, &going),
        ObjectState::Fine,
        "is being deleted, and does not get podCIDRs",
        NOTHING,
    );
}

#[test]
fn a_refused_write_says_who_refuses_it_until_it_succeeds() {
    let new = node("b", &[]);
    let mut machine = begun(vec![Arc::clone(&new)]);
    turn(&mut machine, &new, at(1));
    let cidrs = vec!["10.0.0.0/24".parse().expect("a network")];
    let write = |machine: &mut Machine, answer| {
        let (asked, node, cidrs) = (Arc::clone(&new), Some(Arc::clone(&new)), cidrs.clone());
        machine.apply(Event::Written(Box::new(Written { asked, cidrs, node, answer })), at(2));
    };
    for (error, state, cause, fix) in [
        (
            ApiError::Forbidden("no".to_owned()),
            ObjectState::Blocked,
            "forbidden: no",
            "the right, or exempt it",
        ),
        (
            ApiError::Invalid("no".to_owned()),
            ObjectState::Blocked,
            "as invalid: no",
            "find what refuses it",
        ),
        (ApiError::Unauthorized, ObjectState::Blocked, "the credentials", "renew the credentials"),
        (ApiError::Timeout, ObjectState::Working, "no response in time", "wait"),
    ] {
        write(&mut machine, Err(Some(error)));
        let explained = explain(&machine, &new);
        says(&explained, state, "the write of podCIDRs 10.0.0.0/24 has failed", fix);
        says(&explained, state, cause, fix);
        assert!(explained.next.starts_with("the write is repeated "), "{explained:?}");
    }
    write(&mut machine, Ok(Arc::clone(&new)));
    let dropped = "the API server did not store podCIDRs 10.0.0.0/24";
    says(&explain(&machine, &new), ObjectState::Blocked, dropped, "mutatingwebhookconfigurations");
    let done = node("b", &["10.0.0.0/24"]);
    write(&mut machine, Ok(Arc::clone(&done)));
    says(&explain(&machine, &done), ObjectState::Fine, "podCIDRs 10.0.0.0/24", NOTHING);
    assert!(machine.core.as_ref().is_some_and(|core| core.failed.is_empty()));
}

#[test]
fn the_words_of_the_cloud_are_shown_while_they_are_the_last() {
    let new = node("b", &[]);
    let mut machine = begun(vec![Arc::clone(&new)]);
    machine.fixed.config.allocator = AllocatorType::CloudAllocator;
    says(&explain(&machine, &new), ObjectState::Working, "the cloud is being asked", "wait");
    let found = |answer| {
        let (asked, node) = (Arc::clone(&new), Some(Arc::clone(&new)));
        Event::Found(Box::new(Found { asked, node, answer, failures: 2 }))
    };
    let error = CloudError::new(ErrorKind::Forbidden, "not you").with_request_id("r-1");
    machine.apply(found(Err(error)), at(1));
    let words = "cannot look up its instance: forbidden: not you (request r-1)";
    says(
        &explain(&machine, &new),
        ObjectState::Blocked,
        words,
        "give the cloud user the permission",
    );
    let proof = ccm_cloud::AbsenceProof {
        method: ccm_cloud::ProofMethod::ById,
        evidence: String::new(),
        request_id: None,
        kept: None,
    };
    machine.apply(found(Ok(Lookup::Gone(proof))), at(2));
    says(
        &explain(&machine, &new),
        ObjectState::Blocked,
        "does not have an instance for it",
        "delete the Node",
    );
    machine.apply(Event::NotOurs(Arc::clone(&new)), at(3));
    says(&explain(&machine, &new), ObjectState::Foreign, "its instance is not its own", NOTHING);
    let anothers = machine.explain("b", Some(&new), Some("provider ID k3s://a"), at(60));
    says(&anothers, ObjectState::Foreign, "provider ID k3s://a", NOTHING);
}

/// Answers with an instance of these pod CIDRs.
fn found(machine: &mut Machine, node: &Arc<Node>, cidrs: &[&str], now: At) {
    let id = ProviderId::parse("sim://1").expect("an ID");
    let mut instance = Instance::new(id, "one");
    instance.pod_cidrs = cidrs.iter().map(|one| one.parse().expect("a network")).collect();
    let (asked, answer) = (Arc::clone(node), Ok(Lookup::Found(Box::new(instance))));
    let found = Found { asked, node: Some(Arc::clone(node)), answer, failures: 0 };
    machine.apply(Event::Found(Box::new(found)), now);
}

#[test]
fn what_keeps_a_node_from_what_the_cloud_has_assigned_is_named() {
    let (new, mut machine) = (node("b", &[]), begun(Vec::new()));
    machine.fixed.config.allocator = AllocatorType::CloudAllocator;
    machine.fixed.hold.routes = true;
    let sizes = machine.fixed.config.sizes(None, at(0));
    let begin = Begin { nodes: vec![Arc::clone(&new)], held: Vec::new(), sizes };
    machine.apply(Event::Begin(begin), at(0));
    let unlisted = "blocks are not given before the first list of routes";
    for second in [1, 2] {
        found(&mut machine, &new, &["10.0.0.0/24"], at(second));
        says(&explain(&machine, &new), ObjectState::Working, unlisted, "wait for the first list");
    }
    machine.apply(Event::RoutesAre { destinations: Vec::new(), read: at(2) }, at(3));
    says(&explain(&machine, &new), ObjectState::Working, "the cloud is being asked", "wait");
    found(&mut machine, &new, &[], at(4));
    let none = "the cloud does not name a pod CIDR of instance one";
    let assign = "assign it one, or set --cidr-allocator-type=RangeAllocator";
    says(&explain(&machine, &new), ObjectState::Blocked, none, assign);
    let other = Event::Changed { before: None, after: node("a", &["10.0.0.0/25"]) };
    machine.apply(other, at(4));
    found(&mut machine, &new, &["10.0.0.0/24"], at(5));
    let taken = explain(&machine, &new);
    says(&taken, ObjectState::Blocked, "overlaps 10.0.0.0/25 of node a", "delete one of the nodes");
    machine.apply(Event::Gone(node("a", &["10.0.0.0/25"])), at(6));
    found(&mut machine, &new, &["10.0.0.0/24"], at(7));
    let written = "podCIDRs 10.0.0.0/24 are being written";
    says(&explain(&machine, &new), ObjectState::Working, written, "wait");
}

#[test]
fn an_observer_points_to_what_is_decided() {
    for allocator in [AllocatorType::CloudAllocator, AllocatorType::RangeAllocator] {
        let (new, mut machine) = (node("b", &[]), begun(Vec::new()));
        machine.fixed.config.allocator = allocator;
        machine.fixed.is_observing = true;
        machine.apply(Event::Changed { before: None, after: Arc::clone(&new) }, at(0));
        match allocator {
            AllocatorType::CloudAllocator => found(&mut machine, &new, &["10.0.0.0/24"], at(1)),
            AllocatorType::RangeAllocator => drop(turn(&mut machine, &new, at(1))),
        }
        let promise = "--mode=observe does not write; the line decided says which step is due";
        says(&explain(&machine, &new), ObjectState::Working, promise, "with --mode=control");
    }
}

#[test]
fn a_replica_that_does_not_lead_says_so() {
    let (bare, has) = (node("a", &[]), node("b", &["10.0.0.0/24"]));
    let mut machine = begun(Vec::new());
    machine.core = None;
    says(
        &explain(&machine, &bare),
        ObjectState::Working,
        "reads all nodes before it assigns any",
        "wait",
    );
    machine.leads = false;
    says(
        &explain(&machine, &bare),
        ObjectState::Unknown,
        "does not lead",
        "ask the replica that leads",
    );
    says(&explain(&machine, &has), ObjectState::Fine, "this replica does not lead", NOTHING);
}
