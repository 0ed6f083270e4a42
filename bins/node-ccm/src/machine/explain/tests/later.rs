//! Later events end an explanation, or leave it as it is.

use super::*;

fn explained(machine: &Machine, node: &Node, second: u64) -> Explanation {
    machine.explain("one", &shown(node.clone()), at(second))
}

/// The memory has an older answer, and the node agrees with it.
#[test]
fn only_the_cloud_takes_back_what_it_has_said() {
    for (answer, cause) in [
        (gone(), "its instance is gone: no instance sim://one"),
        (failed(ErrorKind::Forbidden), "forbidden: the cloud's words"),
    ] {
        let mut machine = machine();
        work(&mut machine, &ready(), found(whole("one")), 0);
        work(&mut machine, &ready(), answer, 300);
        work_from_memory(&mut machine, &ready(), found(whole("one")), 0, 340);
        let told = explained(&machine, &ready(), 350);
        assert_eq!(told.state, ObjectState::Blocked, "{told:?}");
        assert!(told.cause.starts_with(cause), "{told:?}");
        work(&mut machine, &ready(), found(whole("one")), 400);
        assert_eq!(explained(&machine, &ready(), 410).state, ObjectState::Fine);
    }
}

/// A lookup of all nodes began before the cloud proved that the instance is gone.
#[test]
fn an_older_answer_that_comes_later_takes_nothing_back() {
    let mut machine = machine();
    work(&mut machine, &ready(), gone(), 300);
    for (ago, state) in [(30, ObjectState::Blocked), (5, ObjectState::Fine)] {
        let (ago, instances) = (Duration::from_secs(ago), vec![whole("one")]);
        machine.apply(Event::Found { ago, instances }, at(320));
        let answer = KnownAnswer::Found(whole("one").provider_id);
        machine.apply(Event::Compare { seen: seen(ready()), answer }, at(320));
        assert_eq!(explained(&machine, &ready(), 330).state, state);
    }
}

/// Another client has made the change, and a lookup of all nodes shows it.
#[test]
fn a_write_that_was_refused_is_over_when_the_node_agrees() {
    let mut machine = machine();
    let not_ready = Node { conditions: Vec::new(), ..ready() };
    work(&mut machine, &not_ready, moved("one"), 0);
    let answer = Err(Some(ApiError::Forbidden("policy X".to_owned())));
    machine.apply(Event::Written { name: "one".into(), answer }, at(1));
    assert_eq!(explained(&machine, &not_ready, 2).state, ObjectState::Blocked);
    let instances = vec![whole("one")];
    machine.apply(Event::Found { ago: Duration::ZERO, instances }, at(10));
    let answer = KnownAnswer::Found(whole("one").provider_id);
    machine.apply(Event::Compare { seen: seen(not_ready.clone()), answer }, at(10));
    assert_eq!(explained(&machine, &not_ready, 11).state, ObjectState::Fine);
}

#[test]
fn the_first_answer_that_there_is_no_instance_needs_nobody() {
    let mut machine = machine();
    for (failures, second, state) in [(0, 0, ObjectState::Working), (1, 10, ObjectState::Blocked)] {
        work_from_memory(&mut machine, &tainted("one"), gone(), failures, second);
        let told = explained(&machine, &tainted("one"), second + 1);
        assert_eq!(told.state, state, "{told:?}");
        assert!(told.cause.ends_with("(InstanceNotFound)"), "{told:?}");
    }
}

/// The brake gathers changes for five seconds.
#[test]
fn a_change_that_the_brake_lets_pass_waits_for_its_turn() {
    let mut machine = machine();
    work(&mut machine, &ready(), moved("one"), 0);
    let told = explained(&machine, &ready(), 1);
    assert!(told.cause.ends_with("are gathered first"), "{told:?}");
    assert_eq!(told.next, "at 1970-01-01T00:16:45Z, in 4 s");
    let told = explained(&machine, &ready(), 6);
    let cause = "it differs from its instance, and its write is due (sim://one: ";
    assert!(told.cause.starts_with(cause), "{told:?}");
    assert_eq!(told.next, "within seconds");
}

#[test]
fn a_change_that_is_taken_back_is_not_gathered() {
    let mut machine = machine();
    for second in [0, 6] {
        work(&mut machine, &ready(), moved("one"), second);
    }
    let answer = Ok(Arc::new(ready()));
    machine.apply(Event::Written { name: "one".into(), answer }, at(7));
    let told = explained(&machine, &ready(), 8);
    assert_eq!(told.state, ObjectState::Blocked, "{told:?}");
    assert!(told.cause.contains("was answered as done, but the answer does not show it"));
}

/// node-ccm cannot find the instance of a node without a provider ID in its inventory.
#[test]
fn in_observe_mode_nothing_is_under_way() {
    let nameless = Node { provider_id: None, ..tainted("one") };
    for (node, answer) in [(nameless, found(whole("one"))), (ready(), moved("one"))] {
        let told = with_params(|params| params.is_observing = true, node, answer);
        check(
            &told,
            [
                "work is under way",
                "--mode=observe does not write; the line decided says which step is due",
                "the controller that leads does it, or this one with --mode=control",
            ],
        );
        assert!(!told.next.is_empty(), "{told:?}");
    }
}

/// Another client has done what was due.
#[test]
fn in_observe_mode_a_node_is_fine_when_nothing_is_due() {
    let mut machine = Machine::new(Params { is_observing: true, ..params() });
    machine.apply(Event::StoreIsNew, at(0));
    let nameless = Node { provider_id: None, ..tainted("one") };
    work(&mut machine, &nameless, found(whole("one")), 0);
    work(&mut machine, &ready(), found(whole("one")), 10);
    assert_eq!(explained(&machine, &ready(), 20).state, ObjectState::Fine);
}

#[test]
fn a_conflict_that_lasts_names_the_node() {
    let mut machine = machine();
    work(&mut machine, &tainted("one"), found(whole("one")), 0);
    machine.writing.clear();
    let (node, what) = (Arc::new(tainted("one")), "labels".to_owned());
    machine.apply(Event::Conflicts { node, what }, at(10));
    let told = explained(&machine, &tainted("one"), 20);
    let cause = "the API server refuses to write labels of the node: the object has changed since it was read";
    let fix = "wait; if it lasts, find out who writes the node so often: kubectl get node one -o yaml --show-managed-fields";
    check(&told, ["work is under way", cause, fix]);
}
