mod histories;

use std::{sync::Arc, time::Duration};

use ccm_cloud::{AddressKind, Claim, Instance, Lookup, NodeAddress, ProviderId};
use ccm_controller::brake::{Budget, Limit};
use ccm_kube::ApiError;
use ccm_objects::{Address, Taint};

use super::*;
use crate::plan::{Policy, UNINITIALIZED, WaitReason};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn at(seconds: u64) -> At {
    At(Duration::from_secs(1000 + seconds))
}

/// Returns one write per second.
pub(super) fn params() -> Params {
    Params {
        policy: Policy::default(),
        selector: "!edge".parse().unwrap(),
        budget: Budget { limit: Limit::Percent(10), window: Duration::from_hours(1) },
        per_second: Some(1.0),
        period: Duration::from_mins(5),
        is_observing: false,
    }
}

/// Returns a machine of a leader.
pub(super) fn machine() -> Machine {
    let mut machine = Machine::new(params());
    machine.apply(Event::StoreIsNew, at(0));
    machine
}

pub(super) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: name.into(),
        provider_id: Some(format!("sim://{name}").into()),
        ..Node::default()
    }
}

pub(super) fn tainted(name: &str) -> Node {
    let taint =
        Taint { key: UNINITIALIZED.into(), effect: "NoSchedule".into(), ..Taint::default() };
    Node { taints: vec![taint], ..node(name) }
}

pub(super) fn seen(node: Node) -> SeenNode {
    let id = node.provider_id.as_deref().map(str::to_owned);
    SeenNode { node: Arc::new(node), claim: Some(Claim::Ours), id, labels_only_add: false }
}

pub(super) fn instance(name: &str) -> Instance {
    Instance::new(ProviderId::parse(&format!("sim://{name}")).unwrap(), name)
}

/// Returns the machine's answer when the node's turn has come.
fn due(machine: &mut Machine, node: Node, now: At) -> Due {
    let said = machine.apply(Event::Look(seen(node)), now);
    let due = said.into_iter().find_map(|effect| match effect {
        Effect::Request(Request::Due(due)) => Some(due),
        _ => None,
    });
    due.unwrap()
}

/// Returns how many nodes are in each state after these effects.
fn count(counts: &mut BTreeMap<&'static str, i64>, said: Vec<Effect>) -> String {
    for effect in said {
        if let Effect::Counts(state, by) = effect {
            *counts.entry(state.into()).or_default() += by;
        }
    }
    let present = counts.iter().filter(|(_, count)| **count != 0);
    present.map(|(state, count)| format!("{state} {count}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn each_node_counts_in_its_last_state_until_it_is_gone() {
    let (mut machine, mut counts) = (machine(), BTreeMap::new());
    let mut hear = |event| count(&mut counts, machine.apply(event, at(0)));
    hear(Event::Added(seen(tainted("one"))));
    assert_eq!(hear(Event::Added(seen(tainted("two")))), "pending 2");
    assert_eq!(hear(Event::Added(seen(tainted("two")))), "pending 2");
    let foreign = SeenNode { claim: Some(Claim::Foreign), ..seen(tainted("two")) };
    assert_eq!(hear(Event::Look(foreign)), "foreign 1, pending 1");
    let edge = Node { labels: [("edge".into(), "".into())].into(), ..tainted("one") };
    assert_eq!(hear(Event::Look(seen(edge))), "foreign 1, not_selected 1");
    hear(Event::Deleted(Arc::new(tainted("two"))));
    assert_eq!(hear(Event::Gone("two".into())), "not_selected 1");
    assert_eq!(hear(Event::Deleted(Arc::new(tainted("one")))), "");
}

#[test]
fn nothing_is_queued_before_this_replica_leads() {
    let mut machine = Machine::new(params());
    let nothing = |said: Vec<Effect>| assert!(said.is_empty(), "{said:?}");
    nothing(machine.apply(Event::Added(seen(tainted("one"))), at(0)));
    let selector = "pool=a".parse().unwrap();
    nothing(machine.apply(Event::Set(Params { selector, ..params() }), at(0)));
    nothing(machine.apply(Event::Deleted(Arc::new(tainted("one"))), at(0)));
}

#[test]
fn the_cloud_is_asked_about_new_nodes_once_about_required_ones_and_when_it_was_silent_for_long() {
    let mut machine = machine();
    let is_asked = |due: Due| matches!(due, Due::Ask);
    assert!(is_asked(due(&mut machine, tainted("one"), at(0))));
    let answers = vec![(Arc::new(tainted("one")), Ok(Lookup::Found(Box::new(instance("one")))))];
    machine.apply(Event::Answered { ago: SECOND, answers }, at(1));
    assert!(matches!(due(&mut machine, tainted("one"), at(31)), Due::Known(Ok(_))));
    assert!(is_asked(due(&mut machine, tainted("one"), at(32))), "the answer is old");
    machine.apply(Event::AskedAgain("one".into()), at(32));
    assert!(is_asked(due(&mut machine, node("one"), at(32))));
    assert!(matches!(due(&mut machine, node("one"), at(600)), Due::Known(Ok(_))), "required once");
    assert!(is_asked(due(&mut machine, node("one"), at(601))), "two periods ago");
    assert!(matches!(due(&mut machine, node("two"), at(0)), Due::Nothing));
    let unknown = SeenNode { claim: None, ..seen(tainted("one")) };
    let said = machine.apply(Event::Look(unknown), at(0));
    assert!(matches!(&said[..], [Effect::Request(Request::Due(Due::Known(Err(_))))]), "{said:?}");
}

#[test]
fn a_node_that_needs_no_turn_any_more_does_not_wait() {
    let mut machine = machine();
    machine.now = at(0);
    let (one, other): (Name, Name) = ("node-1".into(), "node-2".into());
    machine.take_turn(&one, 1, &[]).unwrap();
    for end in [Machine::leaves_turns, Machine::settled, Machine::forget] {
        machine.take_turn(&other, 1, &[]).unwrap_err();
        assert_eq!(machine.waiting(), 1);
        end(&mut machine, &other);
        assert_eq!(machine.waiting(), 0);
    }
    machine.take_turn(&other, 1, &[]).unwrap_err();
    let said = machine.apply(Event::Set(Params { per_second: None, ..params() }), at(0));
    let is_queued =
        |effect: &Effect| matches!(effect, Effect::Queue(name, Queued::Add(_)) if *name == other);
    assert!(said.iter().any(is_queued), "{said:?}");
    assert_eq!((machine.take_turn(&other, 1, &[]), machine.waiting()), (Ok(()), 0));
}

#[test]
fn a_contested_field_waits_and_uses_no_turn() {
    let mut machine = machine();
    machine.now = at(0);
    let (name, zone) = ("node-1".into(), [("zone".to_owned(), "a".to_owned())]);
    for _ in 0..3 {
        machine.made(&name, &zone);
    }
    let later = machine.take_turn(&name, 1, &zone).unwrap_err();
    assert_eq!(later.repeated.map(|repeated| repeated.kind).as_deref(), Some("zone"));
    assert_eq!((later.wait, machine.waiting()), (10 * SECOND, 0));
    let region = [("region".to_owned(), "r".to_owned())];
    machine.take_turn(&name, 1, &region).unwrap();
    machine.forget(&name);
    machine.take_turn(&name, 0, &zone).unwrap();
}

/// Returns the event of a worker that has this node and its instance.
fn work(node: Node) -> Event {
    let (instance, seen) = (instance(&node.name), seen(node));
    let asked = Arc::clone(&seen.node);
    let answer = Ok(Lookup::Found(Box::new(instance)));
    Event::Work(Box::new(Work { asked, seen, answer, rivals: Vec::new(), failures: 0 }))
}

#[test]
fn a_node_that_is_tainted_again_waits_for_no_turn() {
    let mut machine = machine();
    machine.now = at(0);
    machine.take_turn(&"other".into(), 1, &[]).unwrap();
    machine.take_turn(&"node-1".into(), 1, &[]).unwrap_err();
    assert_eq!(machine.waiting(), 1);
    machine.apply(work(tainted("node-1")), at(0));
    assert_eq!(machine.state("node-1"), Some(NodeState::Waiting(WaitReason::NoAddress)));
    assert_eq!(machine.waiting(), 0);
}

/// The other client makes the version of the next step old.
#[test]
fn a_step_that_another_client_sets_back_counts_although_the_next_one_meets_a_conflict() {
    let mut machine = machine();
    let ip = Address::new("InternalIP", "10.0.0.1");
    for round in 0..4 {
        let mut event = work(tainted("node-1"));
        if let Event::Work(work) = &mut event
            && let Ok(Lookup::Found(instance)) = &mut work.answer
        {
            instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.1")];
        }
        let said = machine.apply(event, at(0));
        let writes = said.iter().any(|one| matches!(one, Effect::Request(Request::Write { .. })));
        assert_eq!(writes, round < 3, "{said:?}");
        let node = Node { addresses: vec![ip.clone()], ..tainted("node-1") };
        let written = |answer| Event::Written { name: "node-1".into(), answer };
        machine.apply(written(Ok(Arc::new(node))), at(0));
        machine.apply(written(Err(Some(ApiError::Conflict))), at(0));
    }
}

#[test]
fn all_nodes_of_one_instance_are_named() {
    let mut machine = machine();
    let same = SeenNode { id: Some("sim://one".to_owned()), ..seen(node("two")) };
    let foreign = SeenNode { claim: Some(Claim::Foreign), ..seen(node("one")) };
    let said = machine.apply(Event::Refresh(vec![seen(node("one")), same, foreign]), at(0));
    let named = said.iter().filter_map(|effect| match effect {
        Effect::Report(node, Report::Duplicate { names, .. }) => Some((&*node.name, &**names)),
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), [("one", "one, two"), ("two", "one, two")]);
    let is_counted = |effect: &Effect| matches!(effect, Effect::Irregular(counts) if counts.get(&Problem::DuplicateProviderId) == Some(&2));
    assert!(said.iter().any(is_counted), "{said:?}");
}
