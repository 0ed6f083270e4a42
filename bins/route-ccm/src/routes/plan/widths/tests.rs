use std::sync::Arc;

use ccm_base::At;
use ccm_objects::{Taint, node_keys::UNINITIALIZED};

use super::*;
use crate::routes::plan::tests::{World, approves, at, net, node, route, why};

/// Returns nodes 1 to 5 with these pod CIDRs.
fn nodes(cidrs: [&str; 5]) -> Vec<NodeView> {
    (1..).zip(cidrs).map(|(number, cidr)| node(number, &[cidr])).collect()
}

/// Returns five nodes, of which the last one has a wide pod CIDR.
fn one_of_five() -> Vec<NodeView> {
    nodes(["10.120.1.0/24", "10.120.2.0/24", "10.120.3.0/24", "10.120.4.0/24", "10.120.128.0/17"])
}

#[test]
fn the_usual_size_is_that_of_most() {
    let usual = |lengths: &[u8]| {
        let cidrs = (1..).zip(lengths);
        let cidrs =
            cidrs.map(|(number, length)| node(number, &[&format!("10.120.{number}.0/{length}")]));
        let nodes: Vec<_> = cidrs.collect();
        Usual::new(&nodes, &[net("10.0.0.0/8")]).prefix_len(IpFamily::V4)
    };
    for (lengths, expect) in [
        (&[24, 24, 24, 17][..], Some(24)),
        (&[24, 24, 17], None),
        (&[22, 22, 22, 22], Some(22)),
        // Exactly half of them are not most of them.
        (&[24, 24, 22, 22], Some(22)),
        (&[26, 25, 24, 22, 22], Some(24)),
        (&[], None),
    ] {
        assert_eq!(usual(lengths), expect, "{lengths:?}");
    }
}

#[test]
fn one_that_is_wider_than_those_of_most_waits_for_a_person() {
    let mut world = World::new(one_of_five(), Vec::new());
    assert_eq!(world.settle(at(0)).len(), 4);
    let plan = world.plan(at(1));
    assert_eq!(plan.counts.cidrs_wider_than_most, 1);
    let (text, has_failed) = why(&plan, "n5");
    assert_eq!(has_failed, Some(true));
    assert!(text.contains("10.120.128.0/17 is wider than on most nodes (/24)"), "{text}");
    assert!(text.contains("--max-pod-cidr"), "{text}");
    // A younger node has the addresses: its route is created, and the approval does not remove it.
    world.nodes.push(node(6, &["10.120.130.0/24"]));
    assert_eq!(world.settle(at(2)), ["create 10.120.130.0/24 to n6"]);
    world.approval = Some(approves("*"));
    assert_eq!(world.settle(at(3)), [""; 0]);
    let text = why(&world.plan(at(3)), "n5").0;
    assert!(text.contains("overlaps 10.120.130.0/24 of node n6"), "{text}");
    world.goes(6, true);
    let done = world.settle(at(4));
    assert_eq!(done, ["create 10.120.128.0/17 to n5", "delete 10.120.130.0/24 to sim://i-6"]);
    // An existing route does not need an approval.
    world.approval = None;
    assert_eq!(world.settle(at(5)), [""; 0]);
    assert_eq!(world.plan(at(5)).counts.nodes_incomplete, 0);
}

#[test]
fn a_route_that_stands_is_kept_and_moved() {
    let routes = vec![route("10.120.128.0/17", crate::routes::plan::tests::instance(5))];
    for most in ["", "24"] {
        let mut world = World::new(one_of_five(), routes.clone());
        world.most = most.parse().unwrap();
        assert_eq!(world.settle(at(0)).len(), 4, "{most:?}");
        assert_eq!(world.plan(at(1)).counts.nodes_complete, 5, "{most:?}");
        // The node gets another address.
        let before = world.nodes.pop().expect("a node");
        let mut after = Node::clone(&before.node);
        after.provider_id = Some("sim://i-55".into());
        let id = ccm_cloud::ProviderId::parse("sim://i-55").ok();
        let after = NodeView { node: after.into(), id, left_out: None };
        world.former.record_change(&before, &after);
        world.nodes.push(after);
        let done = world.settle(at(2));
        assert_eq!(done, ["replace 10.120.128.0/17 of n5: sim://i-5 -> sim://i-55"], "{most:?}");
    }
}

#[test]
fn the_flag_decides_in_place_of_the_other_nodes() {
    for (most, cidr, expect) in [
        ("", "10.120.128.0/17", false),
        ("17", "10.120.128.0/17", true),
        ("18", "10.120.128.0/17", false),
        ("0", "10.120.128.0/17", true),
        ("26", "10.120.5.0/24", false),
        ("26", "10.120.5.0/26", true),
        // Nothing is said about the other family.
        ("26", "fd00:0:0:1::/64", true),
        ("0,72", "fd00:0:0:1::/64", false),
    ] {
        let mut world = World::new(one_of_five(), Vec::new());
        world.nodes[4] = node(5, &[cidr]);
        world.most = most.parse().unwrap();
        world.approval = (!most.is_empty()).then(|| approves("*"));
        let plan = world.plan(at(0));
        let words = format!("create {cidr} to n5");
        assert_eq!(plan.due().any(|one| one.words() == words), expect, "{most:?} {cidr}");
        assert_eq!(why(&plan, "n5").1, Some(!expect), "{most:?} {cidr}");
    }
}

#[test]
fn with_blocks_of_ours_a_wider_one_is_refused() {
    let config = |since: Option<At>| {
        let cluster_cidrs = vec!["10.120.0.0/16".to_owned()];
        let flags = crate::networks::Flags { cluster_cidrs, ..crate::networks::Flags::default() };
        Config { since, ..flags.check().expect("flags").0 }
    };
    let created = |number| node(number, &[]).node.created.map(At::from);
    // All nodes have wider pod CIDRs, as after a change of the size of blocks.
    let wide =
        ["10.120.0.0/22", "10.120.4.0/22", "10.120.8.0/22", "10.120.12.0/22", "10.120.16.0/22"];
    for (since, expect) in [(None, 5), (created(5), 5), (created(3), 3)] {
        let mut world = World::new(nodes(wide), Vec::new());
        world.blocks = Some(config(since));
        world.approval = Some(approves("*"));
        let plan = world.plan(at(0));
        assert_eq!((plan.due().count(), plan.counts.cidrs_too_wide), (expect, 5 - expect));
        if let Some((_, problem)) = plan.problems.first() {
            assert!(problem.to_string().contains("wider than /24 of --node-cidr-mask-size"));
        }
    }
    // A block of ours may be wider than the pod CIDRs of most nodes, and than the flag says.
    let small =
        ["10.120.0.0/26", "10.120.1.0/26", "10.120.2.0/26", "10.120.3.0/26", "10.120.4.0/24"];
    let mut world = World::new(nodes(small), Vec::new());
    assert_eq!(world.plan(at(0)).due().count(), 4);
    (world.blocks, world.most) = (Some(config(None)), "26".parse().unwrap());
    assert_eq!(world.plan(at(0)).due().count(), 5);
}

#[test]
fn a_node_that_waits_for_its_initialisation_takes_the_route_of_no_younger_one() {
    // Its kubelet has the provider ID of another machine by mistake, so node-ccm holds it.
    let mut wrong = node(1, &["10.120.1.0/24"]);
    let taint =
        Taint { key: UNINITIALIZED.into(), effect: "NoSchedule".into(), ..Taint::default() };
    Arc::make_mut(&mut wrong.node).taints.push(taint);
    let right = NodeView { id: wrong.id.clone(), ..node(2, &["10.120.2.0/24"]) };
    let mut world = World::new(vec![wrong, right], Vec::new());
    assert_eq!(world.settle(at(0)), ["create 10.120.2.0/24 to n2"]);
    let plan = world.plan(at(1));
    assert!(
        why(&plan, "n1").0.contains("node n2, which is initialised, ready or older"),
        "{plan:?}"
    );
}

#[test]
fn a_node_with_the_provider_id_of_an_older_one_gets_no_route() {
    let same = |number: u8, cidr: &str| NodeView { id: node(1, &[]).id, ..node(number, &[cidr]) };
    let pair = || vec![same(2, "10.120.2.0/24"), node(1, &["10.120.1.0/24"])];
    let mut world = World::new(pair(), Vec::new());
    world.nodes.push(node(3, &["10.120.2.0/24"]));
    assert_eq!(world.settle(at(0)), ["create 10.120.1.0/24 to n1", "create 10.120.2.0/24 to n3"]);
    let plan = world.plan(at(1));
    assert_eq!(plan.counts.cidrs_of_same_id, 1);
    assert!(
        why(&plan, "n2").0.contains("node n1, which is initialised, ready or older"),
        "{:?}",
        why(&plan, "n2")
    );
    world.goes(3, true);
    world.goes(1, true);
    // The machine has registered again under another name, and its old Node is gone.
    let done = world.settle(at(2));
    assert!(
        done.contains(&"replace 10.120.2.0/24 of n2: sim://i-3 -> sim://i-1".to_owned()),
        "{done:?}"
    );
    // An existing route stays.
    let routes = vec![route("10.120.2.0/24", crate::routes::plan::tests::instance(1))];
    let mut world = World::new(pair(), routes);
    assert_eq!(world.settle(at(0)), ["create 10.120.1.0/24 to n1"]);
    assert_eq!(world.plan(at(1)).counts.nodes_complete, 2);
    // An older, excluded node has it nevertheless.
    let mut world = World::new(pair(), Vec::new());
    world.nodes[1].left_out = Some(crate::routes::plan::wanted::LeftOut::NotSelected);
    assert_eq!(world.settle(at(0)), [""; 0]);
}

#[test]
fn a_node_with_the_address_of_another_one_gets_no_route() {
    let address = |number: u8| ccm_objects::Address::new("InternalIP", format!("10.0.0.{number}"));
    // The first node has no provider ID, and its kubelet reports the address of the second one.
    let mut liar = NodeView { id: None, ..node(1, &["10.120.1.0/24", "fd00:0:0:1::/64"]) };
    let changed = Arc::make_mut(&mut liar.node);
    (changed.provider_id, changed.addresses) = (None, vec![address(2)]);
    changed.addresses.push(ccm_objects::Address::new("InternalIP", "fd00::1"));
    let honest = node(2, &["10.120.2.0/24"]);
    let words = |nodes: &[&NodeView], takes_addresses| {
        let mut world = World::new(nodes.iter().map(|view| (*view).clone()).collect(), Vec::new());
        (world.traits.target_ids, world.traits.target_addresses) = (false, takes_addresses);
        let plan = world.plan(at(0));
        (plan.due().map(crate::routes::plan::Planned::words).collect::<Vec<_>>(), plan)
    };
    let (done, plan) = words(&[&liar, &honest], true);
    assert_eq!(done, ["create 10.120.2.0/24 to n2", "create fd00:0:0:1::/64 to n1"]);
    assert!(why(&plan, "n1").0.contains("has the same InternalIP 10.0.0.2"), "{plan:?}");
    assert_eq!(words(&[&liar], true).0.len(), 2, "it may be its address");
    assert_eq!(words(&[&liar, &honest], false).0.len(), 3, "the cloud does not look at addresses");
    // A machine that is gone may leave its address to the next one.
    let is_ready = |view: &NodeView, is_ready| {
        let mut view = view.clone();
        let node = Arc::make_mut(&mut view.node);
        let status = if is_ready { "True" } else { "Unknown" };
        let ready = ccm_objects::Condition {
            kind: "Ready".into(),
            status: status.into(),
            ..Default::default()
        };
        node.conditions = vec![ready];
        node.addresses = vec![address(2)];
        view
    };
    let (old, new) = (is_ready(&honest, false), is_ready(&node(3, &["10.120.3.0/24"]), true));
    assert_eq!(words(&[&old, &new], true).0, ["create 10.120.3.0/24 to n3"]);
    assert_eq!(words(&[&is_ready(&old, true), &new], true).0, ["create 10.120.2.0/24 to n2"]);
}
