//! A large cluster, until the last block. The test is alone in its process, so that its memory can
//! be measured.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::time::Duration;

use ccm_base::At;
use ccm_objects::Node;
use route_ccm::ipam::{Allocator, Flags, HoldUntil, Refusal, Written};

const NODES: usize = 16_384;
const GRACE: Duration = Duration::from_secs(60);
/// The most memory of one node with blocks of both families.
const MOST: u64 = 800;

/// Returns the resident memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn node(number: usize) -> Node {
    Node {
        name: format!("node-{number:05}").into(),
        uid: format!("00000000-0000-4000-8000-{number:012x}").into(),
        ..Node::default()
    }
}

#[test]
fn a_large_range_is_filled_to_the_last_block() {
    let flags = Flags {
        cluster_cidrs: vec!["10.64.0.0/10".to_owned(), "fd00::/48".to_owned()],
        ..Flags::default()
    };
    let (config, _) = flags.check().unwrap();
    let hold = HoldUntil { grace: GRACE, routes: false };
    let fresh = || Allocator::rebuild(config.clone(), hold, &[], Vec::new());
    let mut nodes: Vec<Node> = (0..NODES).map(node).collect();
    let mut allocator = fresh();
    for node in &mut nodes {
        let reserved = allocator.reserve(node, At::default()).unwrap();
        node.pod_cidrs = reserved.cidrs.iter().map(|cidr| cidr.to_string().into()).collect();
    }
    // The same is repeated and measured: the memory of a node itself does not belong to the
    // allocator.
    let before = resident();
    let mut measured = fresh();
    for shown in &nodes {
        let new = Node { pod_cidrs: Vec::new(), ..shown.clone() };
        measured.reserve(&new, At::default()).unwrap();
        measured.record_outcome(shown, Written::Yes);
        assert!(measured.observe(shown, At::default()).foreign.is_none());
    }
    let per_node = resident().saturating_sub(before) / NODES as u64;
    println!("{per_node} bytes for a node with blocks of both families");
    assert!(per_node < MOST, "{per_node} bytes for each node");

    let Err(Refusal::Exhausted(what)) = measured.reserve(&node(NODES), At::default()) else {
        panic!("a block is left")
    };
    let expect = "10.64.0.0/10 has no free IPv4 block of /24: all 16384 are taken;";
    assert!(what.to_string().starts_with(expect), "{what}");
    measured.release(&nodes[7_000].uid, At::default());
    let early = measured.reserve(&node(NODES), At(GRACE / 2));
    assert!(matches!(early, Err(Refusal::Exhausted(_))), "{early:?}");
    let reserved = measured.reserve(&node(NODES), At(GRACE)).unwrap();
    let texts: Vec<_> = reserved.cidrs.iter().map(ToString::to_string).collect();
    // IPv6 has more blocks than the cluster has nodes, so the next one is new.
    assert_eq!(texts, ["10.91.88.0/24", "fd00:0:0:4000::/64"]);
}
