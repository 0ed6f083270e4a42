//! Explanations of nodes in each state.

mod cases;
mod later;

use std::time::Duration;

use ccm_cloud::{
    AbsenceProof, AddressKind, ErrorKind, Lookup, LookupResult, NodeAddress, ProofMethod,
};
use ccm_controller::machine::Machine as _;
use ccm_kube::ApiError;
use ccm_objects::{Address, Condition};

use super::{
    super::{
        Event, KnownAnswer, Work,
        event::Params,
        tests::{at, instance, machine, node, params, seen, tainted},
    },
    *,
};
use crate::plan::{InternalIpChange, Policy};

const NOW: u64 = 60;
const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns an instance with an address, in a zone.
fn whole(name: &str) -> Instance {
    let addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.1")];
    Instance { addresses, zone: Some("z1".to_owned()), ..instance(name) }
}

#[expect(clippy::unnecessary_wraps, reason = "the machine takes a result")]
fn found(instance: Instance) -> LookupResult {
    Ok(Lookup::Found(Box::new(instance)))
}

fn failed(kind: ErrorKind) -> LookupResult {
    Err(CloudError::new(kind, "the cloud's words").with_request_id("req-7"))
}

#[expect(clippy::unnecessary_wraps, reason = "the machine takes a result")]
fn gone() -> LookupResult {
    let evidence = "no instance sim://one".to_owned();
    let request_id = Some("req-7".to_owned());
    Ok(Lookup::Gone(AbsenceProof { method: ProofMethod::ById, evidence, request_id, kept: None }))
}

fn annotated(node: Node, key: &str, value: &str) -> Node {
    Node { annotations: [(key.into(), value.into())].into(), ..node }
}

/// Returns a Ready node as [`whole`] says.
fn ready() -> Node {
    let labels = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    Node {
        labels: labels.map(|key| (key.into(), "z1".into())).into(),
        addresses: vec![Address::new("InternalIP", "10.0.0.1")],
        conditions: vec![Condition {
            kind: "Ready".into(),
            status: "True".into(),
            ..Condition::default()
        }],
        ..node("one")
    }
}

fn shown(node: Node) -> NodeFacts {
    NodeFacts { seen: Some(seen(node)), is_selected: true, is_listed: true, ..NodeFacts::default() }
}

/// Tells the machine of work on this node that ended with this answer at this time.
fn work(machine: &mut Machine, node: &Node, answer: LookupResult, second: u64) {
    let asked = Arc::new(node.clone());
    let answers = vec![(Arc::clone(&asked), answer.clone())];
    machine.apply(Event::Added(seen(node.clone())), at(second));
    machine.apply(Event::Answered { ago: Duration::ZERO, answers }, at(second));
    work_from_memory(machine, node, answer, 1, second);
}

/// Lets the machine work on this node with an answer that it has had before.
fn work_from_memory(
    machine: &mut Machine,
    node: &Node,
    answer: LookupResult,
    failures: u32,
    second: u64,
) {
    let (asked, seen) = (Arc::new(node.clone()), seen(node.clone()));
    let work = Work { asked, seen, answer, rivals: Vec::new(), failures };
    machine.apply(Event::Work(Box::new(work)), at(second));
}

/// Returns the explanation after work with this answer a minute ago.
fn after(node: Node, answer: LookupResult) -> Explanation {
    let mut machine = machine();
    work(&mut machine, &node, answer, 0);
    machine.explain("one", &shown(node), at(NOW))
}

/// Returns the explanation after this answer of the API server to the write.
fn written(node: Node, answer: Result<Node, ApiError>) -> Explanation {
    let mut machine = machine();
    work(&mut machine, &node, found(whole("one")), 0);
    let answer = answer.map(Arc::new).map_err(Some);
    machine.apply(Event::Written { name: "one".into(), answer }, at(30));
    machine.explain("one", &shown(node), at(NOW))
}

fn with(shown: NodeFacts) -> Explanation {
    machine().explain("one", &shown, at(NOW))
}

fn check(told: &Explanation, expect: [&str; 3]) {
    let state = told.state.to_string();
    assert_eq!([&*state, &*told.cause, &*told.fix], expect, "{told:#?}");
}

/// Returns a Ready node of this name in this zone.
fn ready_in(name: &str, zone: &str) -> Node {
    let mut node = ready();
    (node.name, node.uid) = (name.into(), name.into());
    node.provider_id = Some(format!("sim://{name}").into());
    node.labels.values_mut().for_each(|value| *value = zone.into());
    node
}

fn moved(name: &str) -> LookupResult {
    found(Instance { zone: Some("z2".to_owned()), ..whole(name) })
}

/// Returns the explanation when the cloud wants another zone for this Ready node and for others.
fn braked(others: usize, second: u64) -> Explanation {
    let mut machine = machine();
    for number in 0..others {
        let name = format!("other-{number}");
        work(&mut machine, &ready_in(&name, "z1"), moved(&name), 0);
    }
    work(&mut machine, &ready(), moved("one"), 0);
    if second > 0 {
        work(&mut machine, &ready(), moved("one"), second);
    }
    machine.explain("one", &shown(ready()), at(second + 1))
}

/// Returns a machine in which three nodes have changed, which uses up the budget, and the cloud
/// wants another zone for this one as well.
fn over_budget() -> Machine {
    let mut machine = Machine::new(Params { per_second: None, ..params() });
    machine.apply(Event::StoreIsNew, at(0));
    for name in ["a", "b", "c"] {
        work(&mut machine, &ready_in(name, "z1"), moved(name), 0);
    }
    for name in ["a", "b", "c"] {
        work(&mut machine, &ready_in(name, "z1"), moved(name), 6);
        let answer = Ok(Arc::new(ready_in(name, "z2")));
        machine.apply(Event::Written { name: name.into(), answer }, at(6));
    }
    work(&mut machine, &ready(), moved("one"), 10);
    work(&mut machine, &ready(), moved("one"), 16);
    machine
}

/// Returns the explanation after node-ccm has written the zone three times, and it is another one
/// again.
fn contested() -> Explanation {
    let mut machine = machine();
    let edited = Node { labels: [(ZONE.into(), "other".into())].into(), ..node("one") };
    machine.apply(Event::Added(seen(edited.clone())), at(50));
    work(&mut machine, &edited, found(whole("one")), 50);
    let plan = machine.own(&seen(edited.clone()), &[]).plan.unwrap();
    for _ in 0..3 {
        machine.made(&"one".into(), &plan.fields());
    }
    machine.writing.clear();
    machine.explain("one", &shown(edited), at(55))
}

fn with_params(change: impl FnOnce(&mut Params), node: Node, answer: LookupResult) -> Explanation {
    let mut changed = params();
    change(&mut changed);
    let mut machine = Machine::new(changed);
    machine.apply(Event::StoreIsNew, at(0));
    work(&mut machine, &node, answer, 0);
    machine.explain("one", &shown(node), at(NOW))
}

/// Returns the explanation after work on the node as its instance says.
fn with_shown(node: Node, shown: NodeFacts, second: u64) -> Explanation {
    let mut machine = machine();
    work(&mut machine, &node, found(whole("one")), 0);
    machine.explain("one", &shown, at(second))
}

fn left_out(why: &str, is_selected: bool) -> NodeFacts {
    NodeFacts { why_left_out: Some(why.to_owned()), is_selected, ..shown(tainted("one")) }
}

fn named_ip(node: Node) -> Node {
    annotated(node, PROVIDED_NODE_IP, "10.9.9.9")
}

fn at_address(address: &str) -> Instance {
    let addresses = vec![NodeAddress::new(AddressKind::InternalIp, address)];
    Instance { addresses, ..whole("one") }
}

fn hold(params: &mut Params) {
    params.policy = Policy { internal_ip_change: InternalIpChange::Hold, ..params.policy };
}

#[test]
fn it_is_said_what_came_last_and_when_the_next_try_is() {
    let told = |second: u64| {
        let mut machine = machine();
        work(&mut machine, &tainted("one"), gone(), 0);
        machine.explain("one", &shown(tainted("one")), at(second))
    };
    let retrying = "(retrying with exponential back-off (max 1m0s))";
    let next = format!("at the latest at 1970-01-01T00:17:40Z, in 40 s {retrying}");
    assert_eq!(told(20).next, next);
    assert_eq!(told(20).last, ["the cause was found, at 1970-01-01T00:16:40Z, 20 s ago"]);
    assert_eq!(told(60).next, format!("now: it is due or being looked up {retrying}"));
    let quota = after(tainted("one"), failed(ErrorKind::QuotaExceeded));
    assert_eq!(quota.next, "at 1970-01-01T00:21:40Z, in 4 min (retrying every 5m0s)");

    let mut machine = machine();
    work(&mut machine, &ready(), found(whole("one")), 0);
    let next =
        |machine: &Machine, second: u64| machine.explain("one", &shown(ready()), at(second)).next;
    let all = "all nodes are looked up every 5m0s, give or take 10 %: ";
    assert_eq!(next(&machine, 10), format!("{all}not yet since this replica leads"));
    machine.apply(Event::Compared { ago: Duration::from_secs(5) }, at(20));
    let about = "about at 1970-01-01T00:21:55Z, in 4 min";
    assert_eq!(next(&machine, 30), format!("{all}{about}"));
    assert_eq!(next(&machine, 400), format!("{all}that is under way, or has failed"));
}

#[test]
fn it_is_said_when_budget_is_free_again() {
    let machine = over_budget();
    let told = machine.explain("one", &shown(ready()), at(20));
    assert_eq!(told.state, ObjectState::Held, "{told:?}");
    assert!(told.fix.starts_with("wait: it changes on its own when budget is free again; "));
    let cause = "the zone of this Ready node changes from z1 to z2; held: the budget is used up until 1970-01-01T01:16:46.000Z, because";
    assert!(told.cause.starts_with(cause), "{told:?}");
    let next = "with the first lookup of all nodes after budget is free again at 1970-01-01T01:16:46Z, in 59 min";
    assert_eq!(told.next, next);
    // Its time has come, and the lookup has not.
    let told = machine.explain("one", &shown(ready()), at(3700));
    let cause = "the zone of this Ready node changes from z1 to z2; the brake is released";
    check(&told, ["work is under way", cause, "nothing has to be done"]);
    assert!(told.next.starts_with("all nodes are looked up every 5m0s"), "{told:?}");
}

/// The page shows a failure until the next work succeeds.
#[test]
fn a_failure_is_forgotten_when_it_is_over() {
    let mut machine = machine();
    work(&mut machine, &ready(), failed(ErrorKind::Forbidden), 0);
    let state = |machine: &Machine| machine.explain("one", &shown(ready()), at(NOW)).state;
    assert_eq!(state(&machine), ObjectState::Blocked);
    work(&mut machine, &ready(), found(whole("one")), 30);
    assert_eq!(state(&machine), ObjectState::Fine);
    // A lookup of all nodes says so as well.
    work(&mut machine, &ready(), failed(ErrorKind::Forbidden), 40);
    assert_eq!(state(&machine), ObjectState::Blocked);
    let (ago, instances) = (Duration::ZERO, vec![whole("one")]);
    machine.apply(Event::Found { ago, instances }, at(50));
    let found = KnownAnswer::Found(whole("one").provider_id);
    machine.apply(Event::Compare { seen: seen(ready()), answer: found }, at(50));
    assert_eq!(state(&machine), ObjectState::Fine);
}

#[test]
fn nodes_with_the_same_provider_id_are_named() {
    let rival = Arc::new(Node { name: "two".into(), uid: "two".into(), ..ready() });
    let shown = NodeFacts { rivals: vec![rival], ..shown(ready()) };
    let told = with_shown(ready(), shown, NOW);
    assert_eq!(told.state, ObjectState::Fine, "its name is the instance's");
    assert_eq!(told.there.last().unwrap(), "other nodes have its provider ID: two");
    let renamed = Instance { name: "two".to_owned(), ..whole("one") };
    let mut machine = machine();
    work(&mut machine, &ready(), found(renamed), 0);
    let rival = Arc::new(Node { name: "two".into(), uid: "two".into(), ..ready() });
    let told =
        machine.explain("one", &NodeFacts { rivals: vec![rival], ..self::shown(ready()) }, at(NOW));
    assert_eq!(told.state, ObjectState::Blocked);
    assert!(
        told.cause.starts_with("sim://one is the instance of two: delete that node"),
        "{told:?}"
    );
}
