//! Cases of upstream and of bad input. `docs/internal/parity.md` names them.

mod holding;
mod wide;

use std::time::Duration;

use super::*;
use crate::networks::{BlockSizes, ClusterRange, Flags};

pub(super) const GRACE: Duration = Duration::from_secs(60);
pub(super) const NOW: At = At(Duration::from_secs(1_000));

pub(super) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Returns the node with this name and these pod CIDRs; its UID is `uid-` and the name.
pub(super) fn node(name: &str, cidrs: &[&str]) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        ..Node::default()
    }
}

/// Returns the configuration of networks as `10.0.0.0/16/24`: with the size of a block.
pub(super) fn config(ranges: &[&str], services: &[&str]) -> Config {
    let range = |text: &&str| {
        let (network, mask) = text.rsplit_once('/').unwrap();
        ClusterRange { network: net(network), mask: mask.parse().unwrap() }
    };
    Config {
        allocator: AllocatorType::RangeAllocator,
        ranges: ranges.iter().map(range).collect(),
        services: services.iter().map(|one| net(one)).collect(),
        since: None,
    }
}

pub(super) fn rebuilt(ranges: &[&str], services: &[&str], nodes: &[Node]) -> Allocator {
    let hold = HoldUntil { grace: GRACE, routes: false };
    Allocator::rebuild(config(ranges, services), hold, nodes, Vec::new())
}

pub(super) fn reserve(allocator: &mut Allocator, name: &str) -> Result<String, Refusal> {
    let reserved = allocator.reserve(&node(name, &[]), NOW)?;
    Ok(reserved.cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Reserves, writes, and sees the node with its blocks.
pub(super) fn assign(allocator: &mut Allocator, name: &str) -> Result<String, Refusal> {
    let cidrs = reserve(allocator, name)?;
    allocator.record_outcome(&node(name, &[]), Written::Yes);
    let seen = allocator.observe(&node(name, &cidrs.split(',').collect::<Vec<_>>()), NOW);
    assert!(seen.foreign.is_none() && seen.rival.is_none(), "{seen:?}");
    Ok(cidrs)
}

pub(super) fn used(allocator: &Allocator) -> Vec<u128> {
    allocator.usage().map(|usage| usage.used).collect()
}

pub(super) fn problems(allocator: &Allocator) -> Vec<String> {
    let all = allocator.problems().flat_map(|(uid, problems)| {
        problems.iter().map(move |problem| format!("{uid}: {problem}"))
    });
    all.collect()
}

#[test]
fn an_allocator_starts_with_nodes_without_cidrs() {
    for ranges in [&["10.10.0.0/16/24"][..], &["10.10.0.0/16/24", "fd00::/48/64"]] {
        let allocator = rebuilt(ranges, &[], &[node("a", &[])]);
        assert_eq!(used(&allocator), vec![0; ranges.len()]);
    }
}

#[test]
fn host_bits_of_a_node_are_without_meaning() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.1/24"])]);
    assert_eq!(used(&allocator), [1]);
    assert_eq!(problems(&allocator), [""; 0]);
    assert_eq!(allocator.observe(&node("a", &["10.10.0.0/24"]), NOW), Seen::default());
    assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
}

#[test]
fn an_ipv4_network_written_as_ipv6_is_taken() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["::ffff:10.10.0.0/120"])]);
    assert_eq!((used(&allocator), problems(&allocator)), (vec![1], Vec::new()));
    assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
}

#[test]
fn a_dual_stack_node_holds_a_block_of_each_family() {
    let nodes = [node("a", &["10.10.1.0/24", "fd00:0:0:7::/64"])];
    let allocator = rebuilt(&["10.10.0.0/16/24", "fd00::/48/64"], &[], &nodes);
    assert_eq!(used(&allocator), [1, 1]);
    assert_eq!(problems(&allocator), [""; 0]);
}

/// Upstream does not start with one of these nodes.
#[test]
fn a_node_with_strange_cidrs_is_reported_and_the_others_go_on() {
    for (cidrs, expect) in [
        (
            &["172.16.0.0/24", "fd00::/64"][..],
            "pod CIDR 172.16.0.0/24 is not in --cluster-cidr 10.10.0.0/16,fd00::/48",
        ),
        (&["10.10.0.0/24", "fe00::/64"], "pod CIDR fe00::/64 is not in --cluster-cidr"),
        (&["10.10.0.0/33", "fd00::/64"], "pod CIDR \"10.10.0.0/33\" is not a network"),
        (&["10.10.0.0/24", "fd00:::/64"], "pod CIDR \"fd00:::/64\" is not a network"),
        (&["10.10.0.0/22"], "pod CIDR 10.10.0.0/22 is not a block of /24"),
        (&["10.10.0.128/25"], "pod CIDR 10.10.0.128/25 is not a block of /24"),
        (&["0.0.0.0/0"], "pod CIDR 0.0.0.0/0 overlaps --service-cluster-ip-range 10.10.128.0/20"),
        (&["10.0.0.0/9"], "pod CIDR 10.0.0.0/9 overlaps --service-cluster-ip-range 10.10.128.0/20"),
        (&["10.8.0.0/15"], "pod CIDR 10.8.0.0/15 is not in --cluster-cidr"),
        (&["10.10.129.0/24"], "pod CIDR 10.10.129.0/24 overlaps --service-cluster-ip-range"),
    ] {
        let nodes = [node("bad", cidrs), node("good", &["10.10.5.0/24", "fd00:0:0:5::/64"])];
        let mut allocator =
            rebuilt(&["10.10.0.0/16/24", "fd00::/48/64"], &["10.10.128.0/20"], &nodes);
        let found = problems(&allocator);
        let covers = ["0.0.0.0/0", "10.0.0.0/9"].contains(&cidrs[0]);
        assert!(found[0].starts_with(&format!("uid-bad: {expect}")), "{found:?}");
        // A network that covers the other node's block is shared with it.
        assert_eq!(found.len(), if covers { 3 } else { 1 }, "{found:?}");
        let given = allocator.reserve(&node("new", &[]), NOW).unwrap();
        let shown = Record::shown(&nodes[0]).networks;
        let taken =
            |one: &IpNet| shown.iter().any(|other| other.contains(one) || one.contains(other));
        // A network that covers all blocks does not take any.
        assert_eq!(given.cidrs.iter().any(taken), covers, "{given:?} of {cidrs:?}");
    }
}

/// A kubelet can say that its node has all addresses.
#[test]
fn one_node_cannot_take_the_blocks_of_all() {
    for cidr in ["10.10.0.0/22", "10.0.0.0/8", "0.0.0.0/0"] {
        let mut allocator = rebuilt(&["10.10.0.0/22/24"], &[], &[node("a", &["10.10.0.0/24"])]);
        reserve(&mut allocator, "b").unwrap();
        allocator.record_outcome(&node("b", &[]), Written::Unknown);
        assert!(!allocator.observe(&node("evil", &[cidr]), NOW).problems.is_empty());
        assert_eq!(used(&allocator), [2]);
        assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
        assert_eq!(assign(&mut allocator, "c").unwrap(), "10.10.2.0/24");
        allocator.release("uid-c", NOW - GRACE);
        allocator.expire(NOW);
        assert_eq!(used(&allocator), [2]);
        for name in ["d", "e"] {
            assign(&mut allocator, name).unwrap();
        }
        let full = reserve(&mut allocator, "f").unwrap_err().to_string();
        assert!(!full.contains("evil"), "{full}");
        allocator.release("uid-evil", NOW);
        allocator.expire(NOW + GRACE);
        assert_eq!(used(&allocator), [4]);
    }
    // A range of one block belongs to one node.
    let mut allocator = rebuilt(&["10.10.0.0/24/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    assert!(matches!(reserve(&mut allocator, "b"), Err(Refusal::Exhausted(_))));
}

#[test]
fn a_second_cidr_without_a_second_cluster_cidr_is_reported() {
    let nodes = [node("a", &["10.10.0.0/24", "fd00::/64"])];
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &nodes);
    assert_eq!(problems(&allocator).len(), 1);
    assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
}

#[test]
fn two_nodes_with_one_block_are_reported_until_one_is_gone() {
    let nodes = [
        node("a", &["10.10.0.0/24"]),
        node("b", &["10.10.0.0/24"]),
        node("c", &["10.10.0.128/25"]),
    ];
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &nodes);
    let shared = problems(&allocator).into_iter().filter(|text| text.contains("overlaps"));
    assert_eq!(shared.count(), 3);
    assert_eq!(used(&allocator), [1]);
    allocator.release("uid-a", NOW);
    allocator.release("uid-c", NOW);
    assert_eq!(problems(&allocator), [""; 0]);
    allocator.expire(NOW + GRACE);
    assert_eq!(used(&allocator), [1], "b has it");
    allocator.release("uid-b", NOW);
    allocator.expire(NOW + GRACE);
    assert_eq!(used(&allocator), [0]);
}

#[test]
fn a_problem_is_told_once_and_of_both_nodes() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    let b = node("b", &["10.10.0.0/24"]);
    let told = allocator.observe(&b, NOW).problems;
    let names: Vec<_> = told.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(allocator.observe(&b, NOW), Seen::default());
}

#[test]
fn the_first_block_is_the_first_of_the_network() {
    let mut allocator = rebuilt(&["127.123.234.0/24/30"], &[], &[]);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "127.123.234.0/30");
}

#[test]
fn blocks_of_services_are_left_out() {
    let mut allocator = rebuilt(&["127.123.234.0/24/30"], &["127.123.234.0/26"], &[]);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "127.123.234.64/30");
}

#[test]
fn taken_blocks_are_left_out() {
    let nodes = ["64", "68", "72", "80"].map(|at| node(at, &[&format!("127.123.234.{at}/30")]));
    let mut allocator = rebuilt(&["127.123.234.0/24/30"], &["127.123.234.0/26"], &nodes);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "127.123.234.76/30");
}

#[test]
fn the_order_of_cluster_cidrs_is_that_of_the_blocks() {
    let (v4, v6) = ("127.123.234.0/8/24", "ace:cab:deca::/48/64");
    let mut allocator = rebuilt(&[v4, v6], &[], &[]);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "127.0.0.0/24,ace:cab:deca::/64");
    let mut allocator = rebuilt(&[v6, v4], &[], &[]);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "ace:cab:deca::/64,127.0.0.0/24");
}

#[test]
fn blocks_between_others_are_found_and_none_counts_twice() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("c", &["10.10.2.0/24"])];
    let mut allocator = rebuilt(&["10.10.0.0/22/24"], &[], &nodes);
    for one in &nodes {
        allocator.observe(one, NOW);
    }
    assert_eq!(assign(&mut allocator, "b").unwrap(), "10.10.1.0/24");
    let usage = allocator.usage().next().unwrap();
    assert_eq!((usage.used, usage.allocations, usage.capacity), (3, 3, 4));
    assert!((usage.fraction() - 0.75).abs() < 1e-9);
}

#[test]
fn an_exhausted_family_is_named_and_nothing_is_taken_of_the_other() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24", "fd00::/63/64"], &[], &[]);
    assign(&mut allocator, "a").unwrap();
    assign(&mut allocator, "b").unwrap();
    for _ in 0..100 {
        let Refusal::Exhausted(what) = reserve(&mut allocator, "c").unwrap_err() else { panic!() };
        let expect = "fd00::/63 has no free IPv6 block of /64: all 2 are taken; remove nodes, or set --cluster-cidr to";
        assert!(what.to_string().starts_with(expect), "{what}");
    }
    assert_eq!(used(&allocator), [2, 2]);
    allocator.release("uid-a", NOW);
    let text = reserve(&mut allocator, "c").unwrap_err().to_string();
    assert!(text.contains("also by 1 node that is gone"), "{text}");
    // A node without a block here does not hold anything.
    let nodes = [node("a", &["10.10.0.0/24"]), node("x", &["10.99.0.0/24"])];
    let mut allocator = rebuilt(&["10.10.0.0/24/24"], &[], &nodes);
    allocator.release("uid-x", NOW);
    let text = reserve(&mut allocator, "c").unwrap_err().to_string();
    assert!(text.contains("all 1 are taken") && !text.contains("gone"), "{text}");
}

#[test]
fn the_block_that_became_free_is_the_next_one() {
    let mut allocator = rebuilt(&["10.10.0.0/22/24"], &[], &[]);
    for name in ["a", "b", "c", "d"] {
        assign(&mut allocator, name).unwrap();
    }
    assert!(reserve(&mut allocator, "e").is_err());
    for (old, new, block) in [("c", "e", "10.10.2.0/24"), ("d", "f", "10.10.3.0/24")] {
        allocator.release(&format!("uid-{old}"), NOW - GRACE);
        assert_eq!(assign(&mut allocator, new).unwrap(), block);
    }
}

#[test]
fn a_living_node_keeps_its_block_and_gets_no_other() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    assert_eq!(reserve(&mut allocator, "a"), Err(Refusal::Assigned));
    let shown = allocator.reserve(&node("b", &["10.10.7.0/24"]), NOW);
    assert_eq!(shown, Err(Refusal::Assigned));
    assert_eq!(used(&allocator), [1]);
}

#[test]
fn a_node_that_is_being_deleted_keeps_its_block_and_gets_none() {
    let deleting = Node { deleting: true, ..node("a", &["10.10.0.0/24"]) };
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], std::slice::from_ref(&deleting));
    assert_eq!(allocator.observe(&deleting, NOW), Seen::default());
    allocator.expire(NOW + GRACE * 9);
    assert_eq!(used(&allocator), [1]);
    let new = Node { deleting: true, ..node("b", &[]) };
    assert_eq!(allocator.reserve(&new, NOW), Err(Refusal::Deleting));
}

/// The cloud's allocator has no blocks of its own to run out of.
#[test]
fn the_cloud_may_give_what_no_other_node_has() {
    let flags = Flags {
        allocator: AllocatorType::CloudAllocator,
        cluster_cidrs: vec!["10.10.0.0/28".to_owned()],
        ..Flags::default()
    };
    let (config, _) = flags.check().unwrap();
    let hold = HoldUntil { grace: GRACE, routes: false };
    let nodes = [node("a", &["10.10.0.0/30"])];
    let mut allocator = Allocator::rebuild(config, hold, &nodes, Vec::new());
    assert_eq!(allocator.usage().count(), 0);
    let given = allocator.reserve_given(&node("b", &[]), &[net("10.10.0.4/30")], NOW);
    assert_eq!(given.unwrap().cidrs, [net("10.10.0.4/30")]);
    // The cloud may change it until it is written.
    let other = [net("10.10.0.8/30")];
    let kept = allocator.reserve_given(&node("b", &[]), &other, NOW).unwrap().cidrs;
    assert_eq!(kept, [net("10.10.0.4/30")]);
    allocator.record_outcome(&node("b", &[]), Written::No);
    assert_eq!(allocator.reserve_given(&node("b", &[]), &other, NOW).unwrap().cidrs, other);
    let Err(Refusal::Taken(problem)) =
        allocator.reserve_given(&node("c", &[]), &[net("10.10.0.0/29")], NOW)
    else {
        panic!()
    };
    assert!(problem.to_string().contains("10.10.0.0/29 overlaps 10.10.0."), "{problem}");
    allocator.observe(&node("evil", &["0.0.0.0/0"]), NOW);
    let next = allocator.reserve_given(&node("e", &[]), &[net("10.10.0.12/30")], NOW);
    assert!(next.is_ok(), "one node cannot take the networks of all: {next:?}");
    allocator.release("uid-a", NOW);
    let again = allocator.reserve_given(&node("a2", &[]), &[net("10.10.0.0/30")], NOW);
    assert_eq!(again.unwrap().cidrs, [net("10.10.0.0/30")], "the cloud knows that a is gone");
    allocator.expire(NOW + GRACE);
    let other = allocator.reserve_given(&node("d", &[]), &[net("10.10.0.0/30")], NOW);
    assert!(matches!(other, Err(Refusal::Taken(_))), "a2 has it: {other:?}");
}
