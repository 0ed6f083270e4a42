//! The machine alone: events in, effects out.

use ccm_base::At;
use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Instance, Lookup, ProofMethod, ProviderId};
use ccm_controller::machine::Machine as _;
use ccm_kube::ApiError;
use ccm_objects::{Condition, instance_gone};
use jiff::Timestamp;

use super::{
    effect::{Ask, NodePlan, Told},
    event::{FleetList, HandoverNote, Sight, Unlisted, WriteAnswer},
    *,
};
use crate::policy::{
    Heartbeat, Policy,
    action::{APPROVED, Action, Write},
};

pub(super) fn at(seconds: u64) -> At {
    At(Duration::from_secs(seconds))
}

pub(super) fn node(name: &str, version: u64, is_ready: bool) -> Arc<Node> {
    let status = if is_ready { "True" } else { "Unknown" };
    let (kind, status) = ("Ready".into(), status.into());
    Arc::new(Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        resource_version: version.to_string().into(),
        provider_id: Some(format!("sim://{name}").into()),
        created: Some(Timestamp::UNIX_EPOCH),
        conditions: vec![Condition { kind, status, ..Condition::default() }],
        ..Node::default()
    })
}

pub(super) fn parameters() -> Parameters {
    Parameters {
        policy: Policy { grace_period: Duration::ZERO, ..Policy::default() },
        node_selector: "!left-out".parse().unwrap(),
        scale_down_taints: Vec::new(),
        shutdown_taint_removal: shutdown::Removal::default(),
    }
}

pub(super) fn see(machine: &mut Machine, now: At, node: Arc<Node>) -> Vec<Effect> {
    machine.apply(Event::Seen { node, claim: Some(Claim::Ours), is_new: false }, now)
}

/// Returns a machine with this node, which is not Ready, and ten that are.
pub(super) fn with_nodes(observes: bool) -> Machine {
    let mut machine = Machine::new(parameters(), observes);
    machine.apply(Event::TermBegins(HandoverNote::default()), at(0));
    see(&mut machine, at(0), node("a", 1, false));
    for number in 0..10 {
        see(&mut machine, at(0), node(&format!("ready-{number}"), 1, true));
    }
    machine
}

pub(super) fn sight(now: At) -> Sight {
    let wall = Timestamp::from_second(now.0.as_secs().try_into().unwrap()).unwrap();
    Sight { wall, claims: Vec::new() }
}

pub(super) fn gone() -> Lookup {
    let (method, evidence) = (ProofMethod::ById, "no such instance".to_owned());
    Lookup::Gone(AbsenceProof { method, evidence, request_id: None, kept: None })
}

pub(super) fn is_asked(effects: &[Effect]) -> Option<&Ask> {
    effects.iter().find_map(|effect| match effect {
        Effect::Ask(ask) => Some(ask),
        _ => None,
    })
}

pub(super) fn due(machine: &mut Machine, now: At) -> Vec<Effect> {
    machine.apply(Event::Pass(sight(now)), now);
    machine.apply(Event::Due { most_lookups: 500, lists: true, seed: 1 }, now)
}

/// Plays a pass in which the cloud knows no instance of `a`, neither by lookup nor in the list.
/// Returns the effects of the decisions.
pub(super) fn pass(machine: &mut Machine, now: At) -> Vec<Effect> {
    let effects = due(machine, now);
    let Some(Ask { look_up, list, .. }) = is_asked(&effects) else { return effects };
    for node in look_up {
        let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
        let result = Ok(gone());
        machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, now);
    }
    if *list {
        machine.apply(Event::Listed(Ok(FleetList { instances: 10, malformed: 0 })), now);
    }
    for effect in machine.apply(Event::Answered, now) {
        let Effect::ReadLeases(names) = effect else { panic!("{effect:?}") };
        for name in names {
            machine.apply(Event::Beat { name, shown: Some(Heartbeat::default()) }, now);
        }
    }
    let unlisted = Unlisted { missing: ["a".into()].into(), as_of: u64::MAX };
    machine.apply(Event::Decide { sight: sight(now), unlisted }, now)
}

pub(super) fn writes(effects: &[Effect]) -> Vec<&Action> {
    let writes = effects.iter().filter_map(|effect| match effect {
        Effect::Write(action) => Some(action),
        _ => None,
    });
    writes.collect()
}

/// Returns the write that deletes `a`, after as many passes as that takes.
pub(super) fn deletion(machine: &mut Machine) -> (At, Action) {
    pass(machine, at(1000));
    let effects = pass(machine, at(1021));
    let left = effects.iter().position(|effect| matches!(effect, Effect::Leave(_)));
    let write = effects.iter().position(|effect| matches!(effect, Effect::Write(_)));
    assert!(left.is_some() && left < write, "what is left waits for no deletion: {effects:?}");
    let [action] = writes(&effects)[..] else { panic!("{effects:?}") };
    (at(1021), action.clone())
}

pub(super) fn answered(
    machine: &mut Machine,
    now: At,
    action: &Action,
    answer: WriteAnswer,
) -> Vec<Effect> {
    machine.apply(Event::Written { action: action.clone(), answer }, now)
}

#[test]
fn a_node_whose_instance_is_gone_is_marked_and_deleted() {
    let mut machine = with_nodes(false);
    let (now, proof) = deletion(&mut machine);
    assert!(matches!(proof.write, Write::Proof(..)), "{proof:?}");
    let annotations = [(instance_gone::KEY.into(), "proof".into())].into();
    let marked = Arc::new(Node { annotations, ..Node::clone(&node("a", 2, false)) });
    let effects = answered(&mut machine, now, &proof, Ok(Some(Arc::clone(&marked))));
    let [Effect::Write(delete)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(delete.node.resource_version, marked.resource_version);
    let effects = answered(&mut machine, now, delete, Ok(None));
    let [Effect::Told(told), Effect::Clear(_)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((told.result.as_ref(), told.open_for), (Ok(&true), Duration::from_secs(21)));
    let (name, uid) = ("a".into(), "uid-a".into());
    let effects = machine.apply(Event::Gone { name, uid }, now);
    assert!(matches!(&effects[..], [Effect::Forget(_)]), "{effects:?}");
    assert_eq!(machine.gauges(now).budget.used, 1);
}

#[test]
fn a_refused_mark_holds_no_deletion_but_a_change_of_the_node_does() {
    for (answer, is_deleted) in [
        (Err(Some(ApiError::Forbidden("no".to_owned()))), true),
        (Err(Some(ApiError::Conflict)), false),
        (Err(None), false),
    ] {
        let mut machine = with_nodes(false);
        let (now, proof) = deletion(&mut machine);
        let effects = answered(&mut machine, now, &proof, answer.clone());
        assert_eq!(writes(&effects).len(), usize::from(is_deleted), "{answer:?}: {effects:?}");
        assert_eq!(machine.gauges(now).budget.used, usize::from(is_deleted), "{answer:?}");
        // The task that did not send a write reports that.
        let is_told = effects.iter().any(|effect| matches!(effect, Effect::Told(_)));
        assert_eq!(is_told, answer == Err(Some(ApiError::Conflict)), "{answer:?}");
    }
}

#[test]
fn an_observer_decides_and_writes_nothing() {
    let mut machine = with_nodes(true);
    let annotations = [(APPROVED.into(), "yes".into())].into();
    let approved = Node { annotations, ..Node::clone(&node("approved", 1, true)) };
    see(&mut machine, at(0), Arc::new(approved));
    let effects = machine.apply(Event::Pass(sight(at(999))), at(999));
    assert!(matches!(&effects[..], [Effect::Page(..)]), "{effects:?}");
    pass(&mut machine, at(1000));
    let effects = pass(&mut machine, at(1021));
    assert_eq!(writes(&effects).len(), 0, "{effects:?}");
    let page = effects.iter().find_map(|effect| match effect {
        Effect::Page(node, NodePlan::Steps(steps)) => Some((&*node.name, steps[0].step)),
        _ => None,
    });
    assert_eq!(page, Some(("a", "delete")));
    assert_eq!(machine.gauges(at(1021)).budget.used, 0);
}

/// The list is not about nodes that the provider does not answer for.
#[test]
fn a_list_is_compared_with_the_nodes_in_reach() {
    let mut machine = with_nodes(false);
    let other =
        Event::Seen { node: node("other", 1, true), claim: Some(Claim::Foreign), is_new: false };
    machine.apply(other, at(0));
    pass(&mut machine, at(1000));
    due(&mut machine, at(1021));
    machine.apply(Event::Listed(Ok(FleetList { instances: 10, malformed: 1 })), at(1022));
    let missing = ["a".into(), "other".into()].into();
    let unlisted = Unlisted { missing, as_of: u64::MAX };
    machine.apply(Event::Decide { sight: sight(at(1023)), unlisted }, at(1023));
    let (_, shown) = machine.survey();
    assert_eq!(shown.map(|shown| (shown.found, shown.of)), Some((10, 11)));
    // A failed one shows nothing.
    due(&mut machine, at(1100));
    let failed = Err(CloudError::new(ErrorKind::Timeout, "late"));
    machine.apply(Event::Listed(failed), at(1101));
    let decide = Event::Decide { sight: sight(at(1101)), unlisted: Unlisted::default() };
    machine.apply(decide, at(1101));
    assert_eq!(machine.survey().1.map(|shown| shown.found), Some(10));
}

#[test]
fn the_plan_of_a_node_ends_when_it_is_ready() {
    let mut machine = with_nodes(false);
    let labels = [("left-out".into(), "".into())].into();
    let left_out = Arc::new(Node { labels, ..Node::clone(&node("b", 1, false)) });
    let effects = see(&mut machine, at(0), left_out);
    assert!(matches!(&effects[..], [Effect::Wake]), "{effects:?}");
    due(&mut machine, at(1000));
    let effects = machine.apply(Event::Ended, at(1000));
    let is_blocked = |effect: &Effect| matches!(effect, Effect::Page(node, NodePlan::LeftOut { is_selected: false }) if &*node.name == "b");
    assert_eq!(effects.iter().filter(|effect| is_blocked(effect)).count(), 1, "{effects:?}");
    see(&mut machine, at(1001), node("b", 2, true));
    let effects = machine.apply(Event::Pass(sight(at(1002))), at(1002));
    assert!(matches!(&effects[..], [Effect::Clear(name)] if &**name == "b"), "{effects:?}");
    assert!(machine.apply(Event::Pass(sight(at(1003))), at(1003)).is_empty());
}

#[test]
fn a_mark_that_is_not_stored_is_written_again_later() {
    let mut machine = with_nodes(false);
    let instance = |power| {
        let id = ProviderId::parse("sim://a").unwrap();
        let mut instance = Instance::new(id, "a");
        instance.power = power;
        Ok(Lookup::Found(Box::new(instance)))
    };
    let mut look_up = |now: At| {
        due(&mut machine, now);
        let (name, uid) = ("a".into(), "uid-a".into());
        let result = instance(ccm_cloud::PowerState::Stopped);
        machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, now);
        let decide = Event::Decide { sight: sight(now), unlisted: Unlisted::default() };
        let effects = machine.apply(decide, now);
        let told = writes(&effects)
            .into_iter()
            .flat_map(|action| answered(&mut machine, now, action, Ok(Some(node("a", 2, false)))));
        told.collect::<Vec<_>>()
    };
    let effects = look_up(at(1000));
    let [Effect::Repeated(_, repeated), Effect::Told(told)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let Told { result, .. } = &**told;
    assert!(repeated.is_refused && *result == Ok(false), "{effects:?}");
    assert_eq!(look_up(at(1030)).len(), 0, "it waits");
    assert_eq!(look_up(at(1061)).len(), 2);
}

/// A record begins with the memory as text.
#[test]
fn the_memory_is_a_plain_value() {
    let mut machine = with_nodes(false);
    pass(&mut machine, at(1000));
    let text = serde_json::to_string(&machine).unwrap();
    let mut again: Machine = serde_json::from_str(&text).unwrap();
    let effects = |machine: &mut Machine| serde_json::to_string(&pass(machine, at(1021))).unwrap();
    assert_eq!(effects(&mut again), effects(&mut machine));
}
