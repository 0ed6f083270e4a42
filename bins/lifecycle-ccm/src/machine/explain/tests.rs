//! The first three lines about a node in each state.

use std::time::Duration;

use ccm_cloud::{AbsenceProof, ErrorKind, Instance, LookupResult, ProofMethod, ProviderId};
use ccm_controller::{brake::Limit, machine::Machine as _};
use ccm_objects::{Condition, Taint};

use super::{
    super::{
        Effect, Event,
        event::{FleetList, Unlisted},
        tests::{answered, at, due, node, parameters, pass, see, sight, with_nodes, writes},
    },
    *,
};
use crate::policy::Heartbeat;

/// Returns the first lines about the node `a`, as they are on the page.
fn lines(machine: &Machine, now: At) -> [String; 3] {
    lines_of(machine, machine.nodes.get("a").map(|node| &**node), now)
}

fn lines_of(machine: &Machine, object: Option<&Node>, now: At) -> [String; 3] {
    let before = serde_json::to_string(machine).unwrap();
    let why_left_out = |_: &Node, is_selected: bool| match is_selected {
        true => "provider ID sim://a is odd".to_owned(),
        false => "--node-selector does not select it".to_owned(),
    };
    let Explanation { state, cause, fix, .. } = machine.explain(object, &why_left_out, now);
    assert_eq!(serde_json::to_string(machine).unwrap(), before, "it only reads");
    [state.to_string(), cause, fix]
}

/// Checks that each line contains this.
#[track_caller]
fn check(lines: &[String; 3], [state, cause, fix]: [&str; 3]) {
    assert_eq!(lines[0], state, "{lines:?}");
    assert!(lines[1].contains(cause), "{:?} lacks {cause:?}", lines[1]);
    assert!(lines[2].contains(fix), "{:?} lacks {fix:?}", lines[2]);
}

fn changed(change: impl FnOnce(&mut Node)) -> Arc<Node> {
    let mut changed = Node::clone(&node("a", 5, false));
    change(&mut changed);
    Arc::new(changed)
}

fn found(power: PowerState) -> Lookup {
    let mut instance = Instance::new(ProviderId::parse("sim://a").unwrap(), "a");
    instance.power = power;
    Lookup::Found(Box::new(instance))
}

fn gone(method: ProofMethod) -> Lookup {
    let (evidence, request_id) = ("no instance a".to_owned(), Some("req-7".to_owned()));
    Lookup::Gone(AbsenceProof { method, evidence, request_id, kept: None })
}

fn failed(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "no luck").with_request_id("req-1")
}

/// Returns a pass in which the cloud says this about `a`, and in its list, if it is asked for one.
fn look(
    machine: &mut Machine,
    now: At,
    result: &LookupResult,
    list: Result<FleetList, CloudError>,
) -> Vec<Effect> {
    due(machine, now);
    let (name, uid, result) = ("a".into(), "uid-a".into(), result.clone());
    machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, now);
    machine.apply(Event::Listed(list), now);
    machine.apply(Event::Answered, now);
    let shown = Some(Heartbeat::default());
    machine.apply(Event::Beat { name: "a".into(), shown }, now);
    let unlisted = Unlisted { missing: ["a".into()].into(), as_of: u64::MAX };
    machine.apply(Event::Decide { sight: sight(now), unlisted }, now)
}

const LISTED: Result<FleetList, CloudError> = Ok(FleetList { instances: 10, malformed: 0 });

/// Returns a machine that has heard this about `a` in two passes, a confirmation period apart.
fn after(machine: Machine, result: &LookupResult) -> (Machine, Vec<Effect>) {
    let mut machine = machine;
    look(&mut machine, at(1000), result, LISTED);
    let effects = look(&mut machine, at(1021), result, LISTED);
    (machine, effects)
}

#[test]
fn a_node_with_which_nothing_is_wrong_or_that_is_anothers() {
    let ready = node("a", 5, true);
    let not_ready = changed(|_| ());
    let labelled = changed(|node| drop(node.labels.insert("left-out".into(), "".into())));
    let deleting = changed(|node| node.deleting = true);
    for (node, claim, expect) in [
        (
            None,
            None,
            ["unknown", "the API server does not show a Node of this name", "check the name"],
        ),
        (
            Some(&ready),
            Some(Claim::Ours),
            ["fine", "it is Ready, so the cloud is not asked about it", NOTHING],
        ),
        (
            Some(&labelled),
            Some(Claim::Ours),
            ["not responsible", "--node-selector does not select it", "nothing has to be done;"],
        ),
        (
            Some(&ready),
            Some(Claim::Foreign),
            ["not responsible", "provider ID sim://a is odd", "another controller"],
        ),
        (
            Some(&ready),
            None,
            [
                "unknown",
                "lifecycle-ccm does not know which provider owns this node (provider ID sim://a)",
                "wait",
            ],
        ),
        (
            Some(&deleting),
            Some(Claim::Ours),
            [
                "work is under way",
                "it is already being deleted",
                "kubectl get node a -o jsonpath='{.metadata.finalizers}'",
            ],
        ),
        (
            Some(&not_ready),
            Some(Claim::Ours),
            [
                "unknown",
                "it is not Ready (Unknown), and this replica has not looked it up yet",
                "line stores",
            ],
        ),
    ] {
        let mut machine = Machine::new(parameters(), false);
        if let Some(node) = node {
            let (node, is_new) = (Arc::clone(node), false);
            machine.apply(Event::Seen { node, claim, is_new }, at(0));
        }
        check(&lines_of(&machine, node.map(|node| &**node), at(1000)), expect);
    }
}

#[test]
fn a_node_without_an_answer() {
    let mut machine = with_nodes(false);
    due(&mut machine, at(1000));
    let asked = "the cloud has not answered about it yet: the last lookup began at 1970-01-01T00:16:40Z, 3 s ago";
    check(&lines(&machine, at(1003)), ["work is under way", asked, "--cloud-call-timeout"]);
}

#[test]
fn what_the_cloud_says_about_an_instance_or_does_not_say() {
    let error = |kind| Err(failed(kind));
    for (result, expect) in [
        (
            Ok(found(PowerState::Running)),
            [
                "fine",
                "it is not Ready (Unknown), but its instance exists and runs",
                "kubectl describe node a",
            ],
        ),
        (
            Ok(found(PowerState::Changing)),
            ["fine", "its instance exists (it is between two states)", "wait"],
        ),
        (
            Ok(Lookup::NotOurs("it is theirs".to_owned())),
            ["not responsible", "another controller is responsible for it: it is theirs", NOTHING],
        ),
        (
            error(ErrorKind::Unauthorized),
            [
                "blocked",
                "unauthorized: no luck (request req-1)",
                "renew the credentials of the cloud",
            ],
        ),
        (
            error(ErrorKind::Timeout),
            ["work is under way", "timeout: no luck (request req-1)", "wait; if it lasts"],
        ),
        (
            Ok(gone(ProofMethod::ByName)),
            ["work is under way", "its proof is too weak", "by the instance's ID"],
        ),
    ] {
        let (machine, _) = after(with_nodes(false), &result);
        check(&lines(&machine, at(1022)), expect);
    }
}

#[test]
fn the_taint_of_a_machine_that_is_shut_down() {
    let (mut machine, effects) = after(with_nodes(false), &Ok(found(PowerState::Stopped)));
    let due = "the machine is shut down; update of the shutdown taint is due";
    check(&lines(&machine, at(1022)), ["work is under way", due, NOTHING]);
    let [action] = writes(&effects)[..] else { panic!("{effects:?}") };
    let denied = ApiError::Forbidden("no taint today".to_owned());
    answered(&mut machine, at(1022), action, Err(Some(denied)));
    let denied = "is due, and failed: forbidden: no taint today";
    check(&lines(&machine, at(1023)), ["blocked", denied, "admission policy"]);
    answered(&mut machine, at(1024), action, Err(Some(ApiError::Timeout)));
    let late = "failed: no response in time";
    check(&lines(&machine, at(1024)), ["work is under way", late, "it is tried again"]);
    // The answer does not show the taint.
    answered(&mut machine, at(1025), action, Ok(Some(node("a", 6, false))));
    check(
        &lines(&machine, at(1026)),
        ["blocked", "the answer does not show it", "webhook or policy"],
    );
    let (key, effect) = (shutdown::KEY.into(), shutdown::EFFECT.into());
    let tainted = changed(|node| {
        node.resource_version = "7".into();
        node.taints = vec![Taint { key, effect, ..Taint::default() }];
    });
    answered(&mut machine, at(1027), action, Ok(Some(tainted)));
    let off = "its machine is shut down in the cloud, so it has the taint node.cloudprovider.kubernetes.io/shutdown";
    check(&lines(&machine, at(1028)), ["fine", off, "start the machine in the cloud"]);
    // It runs again.
    machine.parameters.shutdown_taint_removal = shutdown::Removal::Ready;
    look(&mut machine, at(1030), &Ok(found(PowerState::Running)), LISTED);
    check(
        &lines(&machine, at(1031)),
        ["fine", "stays until it is Ready", "--shutdown-taint-removal=cloud"],
    );
    let ready = Condition { kind: "Ready".into(), status: "True".into(), ..Condition::default() };
    let tainted = machine.nodes.get("a").cloned().unwrap();
    see(
        &mut machine,
        at(1032),
        Arc::new(Node { conditions: vec![ready], ..Node::clone(&tainted) }),
    );
    let leaves = "the node is Ready; update of the shutdown taint is due";
    check(&lines(&machine, at(1033)), ["work is under way", leaves, NOTHING]);
}

#[test]
fn what_is_missing_before_a_node_is_deleted() {
    let by_id = Ok(gone(ProofMethod::ById));
    let mut machine = with_nodes(false);
    look(&mut machine, at(1000), &by_id, LISTED);
    let waits = "the cloud reports that its instance is gone; waiting for confirmation; one answer so far: no instance a (request req-7)";
    let keep = "kubectl annotate node a --overwrite quartet.dev/deletion-protected=true";
    check(&lines(&machine, at(1001)), ["work is under way", waits, keep]);
    let object = machine.nodes.get("a").cloned();
    let next = machine.explain(object.as_deref(), &|_, _| String::new(), at(1001)).next;
    let expect = "the next lookup is due at 1970-01-01T00:16:45Z, in 4 s; its deletion at 1970-01-01T00:17:00Z, in 19 s at the earliest";
    assert_eq!(next, expect);
    // The cloud does not answer in the meantime.
    look(&mut machine, at(1005), &Err(failed(ErrorKind::Forbidden)), LISTED);
    let error = "the latest lookup gave no usable answer: forbidden: no luck (request req-1); one answer so far";
    check(&lines(&machine, at(1006)), ["blocked", error, "permission"]);
    look(&mut machine, at(1021), &by_id, Err(failed(ErrorKind::Unauthorized)));
    let list = "no check of the fleet has confirmed it yet: unauthorized: no luck";
    check(&lines(&machine, at(1022)), ["blocked", list, "renew the credentials"]);
    look(&mut machine, at(1026), &by_id, LISTED);
    let due = "and the node is due for deletion; 3 answers over 26 s, the latest: no instance a (request req-7)";
    check(&lines(&machine, at(1027)), ["work is under way", due, NOTHING]);
    // A young node.
    let mut machine = with_nodes(false);
    machine.parameters.policy.grace_period = Duration::from_hours(2);
    look(&mut machine, at(1000), &by_id, LISTED);
    let young = "the node is within its grace period";
    check(&lines(&machine, at(1001)), ["work is under way", young, "--node-grace-period"]);
}

#[test]
fn a_deletion_that_was_decided() {
    let by_id = Ok(gone(ProofMethod::ById));
    let (mut machine, effects) = after(with_nodes(false), &by_id);
    let [proof] = writes(&effects)[..] else { panic!("{effects:?}") };
    let denied = Err(Some(ApiError::Forbidden("the policy guard says no".to_owned())));
    let effects = answered(&mut machine, at(1022), proof, denied.clone());
    let [deletion] = writes(&effects)[..] else { panic!("{effects:?}") };
    answered(&mut machine, at(1023), deletion, denied);
    let refused = "but the deletion of the node failed: forbidden: the policy guard says no";
    check(
        &lines(&machine, at(1024)),
        ["blocked", refused, "give the account of this program the right"],
    );
    answered(&mut machine, at(1025), deletion, Err(Some(ApiError::Timeout)));
    let lost = "the deletion of the node is not confirmed: no response in time";
    check(&lines(&machine, at(1026)), ["work is under way", lost, "wait"]);
    answered(&mut machine, at(1027), deletion, Ok(None));
    let accepted = "the API server has accepted its deletion";
    check(&lines(&machine, at(1028)), ["work is under way", accepted, NOTHING]);
    // An observer deletes nothing.
    let mut machine = with_nodes(true);
    pass(&mut machine, at(1000));
    pass(&mut machine, at(1021));
    let observed = "shows 10 of 11 nodes; --mode=observe does not write; the line decided says which step is due";
    let fix = "the controller that leads does it, or this one with --mode=control";
    check(&lines(&machine, at(1022)), ["work is under way", observed, fix]);
}

#[test]
fn a_deletion_that_is_held() {
    let by_id = Ok(gone(ProofMethod::ById));
    let approve = "kubectl annotate node a --overwrite quartet.dev/deletion-approved=yes";
    // The list does not show any node.
    let mut machine = with_nodes(false);
    pass(&mut machine, at(1000));
    due(&mut machine, at(1021));
    let (name, uid, result) = ("a".into(), "uid-a".into(), by_id.clone());
    machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, at(1021));
    machine.apply(Event::Listed(Ok(FleetList { instances: 0, malformed: 0 })), at(1021));
    let shown = Some(Heartbeat::default());
    machine.apply(Event::Beat { name: "a".into(), shown }, at(1021));
    let missing = machine.nodes.iter().map(|(node, _)| Arc::clone(&node.name)).collect();
    let unlisted = Unlisted { missing, as_of: u64::MAX };
    machine.apply(Event::Decide { sight: sight(at(1021)), unlisted }, at(1021));
    let open = "but the breaker is open: the cloud's list shows none of 11 nodes: wrong project, region or credentials?; 2 answers over 21 s, the latest: no instance a (request req-7)";
    check(&lines(&machine, at(1022)), ["held", open, approve]);
    // An approval with a wrong value is named.
    let wrong = changed(|node| drop(node.annotations.insert(APPROVED.into(), "ja".into())));
    see(&mut machine, at(1022), wrong);
    let named = "the present value \"ja\" does not approve: kubectl annotate node";
    check(&lines(&machine, at(1022)), ["held", open, named]);
    // An approval lets it pass.
    let approved = changed(|node| drop(node.annotations.insert(APPROVED.into(), "yes".into())));
    see(&mut machine, at(1023), approved);
    let passes = "its deletion may no longer be held";
    check(&lines(&machine, at(1024)), ["work is under way", passes, "wait for the next lookup"]);

    let mut machine = with_nodes(false);
    machine.parameters.policy.budget = Limit::Count(0);
    let (machine, _) = after(machine, &by_id);
    let none = "but --node-deletion-budget allows no deletion; 2 answers";
    check(&lines(&machine, at(1022)), ["held", none, "raise --node-deletion-budget"]);
    check(&lines(&machine, at(1022)), ["held", none, approve]);
}

#[test]
fn a_budget_that_is_used_up_is_free_again_at_a_time() {
    let mut machine = with_nodes(false);
    machine.parameters.policy.budget = Limit::Count(1);
    let deleted = [(at(900), "uid-other".into())].into_iter().collect();
    let left = super::super::event::HandoverNote { deleted, ..Default::default() };
    machine.apply(Event::TermBegins(left), at(950));
    let (machine, _) = after(machine, &Ok(gone(ProofMethod::ById)));
    let used = "but --node-deletion-budget is used up; 2 answers";
    let until = "wait: the budget allows more at 1970-01-01T00:25:00Z, in 7 min; to delete it now: kubectl annotate node a --overwrite quartet.dev/deletion-approved=yes";
    check(&lines(&machine, at(1022)), ["held", used, until]);
}

#[test]
fn what_a_person_or_a_setting_holds() {
    let by_id = Ok(gone(ProofMethod::ById));
    let protected = changed(|node| drop(node.annotations.insert(PROTECTED.into(), "true".into())));
    let mut machine = with_nodes(false);
    see(&mut machine, at(0), protected);
    let (machine, _) = after(machine, &by_id);
    let held = "the annotation quartet.dev/deletion-protected prevents its deletion";
    check(
        &lines(&machine, at(1022)),
        ["held", held, "kubectl annotate node a quartet.dev/deletion-protected-"],
    );

    let mut machine = with_nodes(false);
    see(&mut machine, at(0), changed(|node| node.provider_id = None));
    let (machine, _) = after(machine, &Ok(gone(ProofMethod::ByName)));
    check(
        &lines(&machine, at(1022)),
        ["held", "--ghost-deletion excludes it", "kubectl delete node a"],
    );

    // Another machine under the same name, whose kubelet is Ready.
    let mut machine = with_nodes(false);
    for (version, uuid) in [(2, "one"), (3, "two")] {
        let uuid = Some(uuid.into());
        let new = Node { system_uuid: uuid, ..Node::clone(&node("a", version, true)) };
        see(&mut machine, at(version), Arc::new(new));
    }
    let (machine, _) = after(machine, &by_id);
    check(
        &lines(&machine, at(1022)),
        [
            "held",
            "it is Ready on another machine",
            "--replaced-nodes=delete, and open the admission policy: docs/explanation/lifecycle-ccm.md, Ready nodes and the admission policy",
        ],
    );
}

#[test]
fn a_machine_that_lives_although_the_cloud_denies_it() {
    let by_id = Ok(gone(ProofMethod::ById));
    let mut machine = with_nodes(false);
    look(&mut machine, at(1000), &by_id, LISTED);
    due(&mut machine, at(1021));
    let (name, uid, result) = ("a".into(), "uid-a".into(), by_id.clone());
    machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, at(1021));
    let shown = Some(Heartbeat("renewed".to_owned()));
    machine.apply(Event::Beat { name: "a".into(), shown }, at(1021));
    let decide = Event::Decide { sight: sight(at(1021)), unlisted: Unlisted::default() };
    machine.apply(decide, at(1021));
    let lives = "its kubelet has renewed its Lease since; the node is kept; 2 answers over 21 s";
    check(&lines(&machine, at(1022)), ["blocked", lives, "check project, region and credentials"]);
    // The next answer opens a new case, and it is the same machine.
    look(&mut machine, at(1026), &by_id, LISTED);
    let lives = "but its kubelet has renewed its Lease since, the last time at 1970-01-01T00:17:01Z, 6 s ago; the node is kept; one answer so far";
    check(&lines(&machine, at(1027)), ["blocked", lives, "check project, region and credentials"]);
    let object = machine.nodes.get("a").cloned();
    let next = machine.explain(object.as_deref(), &|_, _| String::new(), at(1027)).next;
    assert_eq!(next, "the next lookup is due at 1970-01-01T00:17:11Z, in 4 s");
    // It lives no longer.
    let effects = look(&mut machine, at(1047), &by_id, LISTED);
    assert_eq!(writes(&effects).len(), 1);
    check(&lines(&machine, at(1048)), ["work is under way", "is due for deletion", NOTHING]);
}

/// Another node has the name now, or no node has it.
#[test]
fn nothing_is_kept_of_nodes_that_are_gone() {
    let by_id = Ok(gone(ProofMethod::ById));
    let is_gone = || Event::Gone { name: "a".into(), uid: "uid-a".into() };
    let mut machine = with_nodes(false);
    let nothing = serde_json::to_string(&machine.last).unwrap();
    due(&mut machine, at(1000));
    let (name, uid, result) = ("a".into(), "uid-a".into(), by_id.clone());
    machine.apply(Event::LookedUp { name, uid, is_witness: false, result }, at(1000));
    machine.apply(is_gone(), at(1000));
    let unlisted = Unlisted::default();
    machine.apply(Event::Decide { sight: sight(at(1000)), unlisted }, at(1000));
    assert_eq!(serde_json::to_string(&machine.last).unwrap(), nothing);

    let (mut machine, effects) = after(with_nodes(false), &by_id);
    let [proof] = writes(&effects)[..] else { panic!("{effects:?}") };
    machine.apply(is_gone(), at(1022));
    answered(&mut machine, at(1023), proof, Err(Some(ApiError::Timeout)));
    assert_eq!(serde_json::to_string(&machine.last).unwrap(), nothing);

    let (mut machine, effects) = after(with_nodes(false), &by_id);
    let [proof] = writes(&effects)[..] else { panic!("{effects:?}") };
    answered(&mut machine, at(1022), proof, Err(Some(ApiError::Timeout)));
    assert!(machine.last.failure("a", "uid-a", true).is_some());
    assert!(machine.last.failure("a", "uid-b", true).is_none());
}
