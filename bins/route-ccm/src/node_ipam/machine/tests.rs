mod histories;

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_controller::machine::Machine as _;
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::*;
use crate::{
    networks::{AllocatorType, ClusterRange},
    node_ipam::ipam::HeldBlocks,
};

const GRACE: Duration = Duration::from_secs(30);

pub(super) fn at(seconds: u64) -> At {
    At(Duration::from_secs(seconds))
}

pub(super) fn node(name: &str, cidrs: &[&str]) -> Arc<Node> {
    Arc::new(Node {
        name: name.into(),
        uid: name.into(),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        ..Node::default()
    })
}

/// Returns the machine of a leader in a cluster with one block.
pub(super) fn begun(nodes: Vec<Arc<Node>>) -> Machine {
    let network = "10.0.0.0/24".parse().expect("a network");
    let config = Config {
        allocator: AllocatorType::RangeAllocator,
        ranges: vec![ClusterRange { network, mask: 24 }],
        services: Vec::new(),
        since: None,
    };
    let sizes = config.sizes(None, at(0));
    let hold = HoldUntil { grace: GRACE, routes: false };
    let mut machine = Machine::new(Fixed { config, hold, is_observing: false });
    machine.apply(Event::TermBegins, at(0));
    machine.apply(Event::Begin(Begin { nodes, held: Vec::new(), sizes }), at(0));
    machine
}

pub(super) fn turn(machine: &mut Machine, node: &Arc<Node>, now: At) -> Vec<Effect> {
    let (name, node) = (Name::clone(&node.name), Some(Arc::clone(node)));
    machine.apply(Event::Turn { name, node }, now)
}

fn is_queued(effects: &[Effect], node: &str) -> bool {
    let is_it =
        |one: &Effect| matches!(one, Effect::Queue(name, Priority::Urgent) if **name == *node);
    effects.iter().any(is_it)
}

#[test]
fn a_block_that_becomes_free_brings_the_node_back() {
    let (there, new) = (node("a", &["10.0.0.0/24"]), node("b", &[]));
    let mut machine = begun(vec![Arc::clone(&there), Arc::clone(&new)]);
    let refused = turn(&mut machine, &new, at(1));
    assert!(refused.iter().any(|one| matches!(one, Effect::HasNone { .. })), "{refused:?}");
    assert!(machine.lack("b").is_some_and(|why| why.contains("no free IPv4 block")));
    assert!(!is_queued(&machine.apply(Event::Gone(there), at(1)), "b"));
    assert!(!is_queued(&machine.apply(Event::Time, at(30)), "b"));
    assert!(is_queued(&machine.apply(Event::Time, at(31)), "b"));
    let given = turn(&mut machine, &new, at(31));
    assert!(given.iter().any(|one| matches!(one, Effect::Write { .. })), "{given:?}");
}

#[test]
fn an_answer_meets_only_the_node_that_is_still_there() {
    let new = node("b", &[]);
    let mut machine = begun(vec![Arc::clone(&new)]);
    machine.apply(Event::Gone(Arc::clone(&new)), at(1));
    let late = turn(&mut machine, &new, at(1));
    assert!(matches!(&late[..], [Effect::Forget(_)]), "{late:?}");
    assert_eq!(machine.usage()[0].used, 0);
}

/// The store has shown a later version when the answer came, and the machine learns about the end
/// first.
#[test]
fn an_answer_does_not_bring_back_a_node_that_is_gone() {
    let version = |version: &str, cidrs: &[&str]| {
        let resource_version = version.into();
        Arc::new(Node { resource_version, ..Node::clone(&node("b", cidrs)) })
    };
    let new = version("1", &[]);
    let mut machine = begun(vec![Arc::clone(&new)]);
    turn(&mut machine, &new, at(1));
    machine.apply(Event::Gone(version("3", &[])), at(2));
    let (asked, cidrs) = (new, vec!["10.0.0.0/24".parse().expect("a network")]);
    let (node, answer) = (Some(version("3", &[])), Ok(version("2", &["10.0.0.0/24"])));
    let effects =
        machine.apply(Event::Written(Box::new(Written { asked, cidrs, node, answer })), at(3));
    assert!(!is_queued(&effects, "b"), "{effects:?}");
    assert!(machine.core.as_ref().is_some_and(|core| core.here.is_empty()));
}

#[test]
fn a_free_block_wakes_another_node_if_the_one_that_it_has_woken_goes() {
    let (there, new, next) = (node("a", &["10.0.0.0/24"]), node("b", &[]), node("c", &[]));
    let mut machine = begun(vec![Arc::clone(&there), Arc::clone(&new), Arc::clone(&next)]);
    turn(&mut machine, &new, at(1));
    turn(&mut machine, &next, at(1));
    machine.apply(Event::Gone(there), at(1));
    let woken = machine.apply(Event::Time, at(31));
    assert!(is_queued(&woken, "b") && !is_queued(&woken, "c"), "{woken:?}");
    let woken = machine.apply(Event::Gone(new), at(32));
    assert!(is_queued(&woken, "c"), "{woken:?}");
}

#[test]
fn a_node_with_a_block_waits_until_it_is_written() {
    let (there, new) = (node("a", &["10.0.0.0/24"]), node("b", &[]));
    let mut machine = begun(vec![Arc::clone(&there), Arc::clone(&new)]);
    turn(&mut machine, &new, at(1));
    machine.apply(Event::Gone(there), at(1));
    machine.apply(Event::Time, at(31));
    turn(&mut machine, &new, at(31));
    let lack = machine.lack("b");
    assert_eq!(lack.as_deref(), Some("podCIDRs 10.0.0.0/24 are not written yet"));
    let (asked, cidrs) = (Arc::clone(&new), vec!["10.0.0.0/24".parse().expect("a network")]);
    let answer = Ok(node("b", &["10.0.0.0/24"]));
    let written = Written { asked, cidrs, node: Some(new), answer };
    machine.apply(Event::Written(Box::new(written)), at(32));
    assert_eq!((machine.lack("b"), machine.counts()), (None, (0, 0)));
}

#[test]
fn a_node_that_the_last_leader_took_for_gone_gets_its_block() {
    let new = node("b", &[]);
    let mut machine = begun(Vec::new());
    let cidrs = vec!["10.0.0.0/24".parse().expect("a network")];
    let held = vec![HeldBlocks { uid: new.uid.clone(), cidrs, since: at(0) }];
    let sizes = machine.fixed.config.sizes(None, at(0));
    machine.apply(Event::Begin(Begin { nodes: vec![Arc::clone(&new)], held, sizes }), at(1));
    let given = turn(&mut machine, &new, at(1));
    assert!(given.iter().any(|one| matches!(one, Effect::Write { .. })), "{given:?}");
}

/// A machine that was written as text and read continues like the original.
#[test]
fn the_memory_is_a_plain_value() {
    let nodes = vec![node("a", &["10.0.0.0/24"]), node("b", &[]), node("c", &["10.0.0.0/25"])];
    let mut machine = begun(nodes.clone());
    turn(&mut machine, &nodes[1], at(1));
    machine.apply(Event::Gone(Arc::clone(&nodes[0])), at(2));
    let text = serde_json::to_string(&machine).expect("it can be written");
    let mut read: Machine = serde_json::from_str(&text).expect("it can be read");
    for event in [Event::Gone(Arc::clone(&nodes[2])), Event::Time] {
        let text = serde_json::to_string(&event).expect("an event can be written");
        let event: Event = serde_json::from_str(&text).expect("an event can be read");
        let effects = |machine: &mut Machine| {
            let effects = machine.apply(event.clone(), at(90));
            serde_json::to_string(&effects).expect("effects can be written")
        };
        assert_eq!(effects(&mut machine), effects(&mut read));
    }
    assert_eq!(
        serde_json::to_string(&machine).expect("it can be written"),
        serde_json::to_string(&read).expect("it can be written")
    );
}
