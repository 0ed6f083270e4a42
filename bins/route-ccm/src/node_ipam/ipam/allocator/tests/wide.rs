//! Pod CIDRs that nodes bring and that are wider than a block.

use super::*;

fn at(seconds: u64) -> At {
    At(Duration::from_secs(seconds))
}

/// Returns a node that was created at this time.
fn created(name: &str, seconds: u64, cidrs: &[&str]) -> Node {
    let created = at(seconds).to_string().parse().unwrap();
    Node { created: Some(created), ..node(name, cidrs) }
}

/// Returns an allocator of a /20 with 16 blocks, which have had their size since this time.
fn since(seconds: u64, routes: bool, nodes: &[Node]) -> Allocator {
    let config = Config { since: Some(at(seconds)), ..config(&["10.10.0.0/20/24"], &[]) };
    Allocator::rebuild(config, HoldUntil { grace: GRACE, routes }, nodes, Vec::new())
}

#[test]
fn one_of_a_younger_node_takes_nothing_from_the_others() {
    let wide = created("wide", 101, &["10.10.0.0/21"]);
    // The node was seen while this process leads, or found by it.
    let mut seen = since(100, false, &[]);
    let new = seen.observe(&wide, NOW);
    assert_eq!(new.problems.len(), 1, "{new:?}");
    assert!(new.foreign.is_some() && new.rival.is_none(), "{new:?}");
    for mut allocator in [seen, since(100, false, std::slice::from_ref(&wide))] {
        let all = problems(&allocator);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].contains("10.10.0.0/21 is wider than a block of /24"), "{all:?}");
        assert_eq!(used(&allocator), [0]);
        for number in 0..16 {
            let given = assign(&mut allocator, &format!("n{number}"));
            assert_eq!(given.unwrap(), format!("10.10.{number}.0/24"));
        }
        assert_eq!(problems(&allocator).len(), 1, "the others are as they should be");
        let full = reserve(&mut allocator, "more").unwrap_err().to_string();
        assert!(!full.contains("wide"), "{full}");
        // It does not hold anything after its end.
        allocator.release("uid-wide", NOW);
        assert_eq!(allocator.waiting_for_routes().count(), 0);
        assert_eq!(used(&allocator), [16]);
        assert!(allocator.held(9).iter().all(|held| held.cidrs.is_empty()));
    }
}

#[test]
fn one_of_an_older_node_is_kept() {
    let wide = created("wide", 99, &["10.10.0.0/21"]);
    let mut allocator = since(100, false, std::slice::from_ref(&wide));
    assert_eq!(used(&allocator), [8]);
    assert_eq!(assign(&mut allocator, "n").unwrap(), "10.10.8.0/24");
    assert!(problems(&allocator)[0].contains("it stays"), "{:?}", problems(&allocator));
    // Without a time all nodes count.
    let mut allocator =
        rebuilt(&["10.10.0.0/20/24"], &[], &[created("wide", 101, &["10.10.0.0/21"])]);
    assert_eq!(assign(&mut allocator, "n").unwrap(), "10.10.8.0/24");
}

#[test]
fn the_end_of_one_that_has_a_route_is_held_by_nobody() {
    let mut allocator = since(100, true, &[created("wide", 101, &["10.10.0.0/21"])]);
    allocator.routes_are([net("10.10.0.0/21")], NOW);
    allocator.release("uid-wide", NOW);
    allocator.expire(NOW + GRACE);
    assert_eq!(allocator.held_nodes(), 0);
}

#[test]
fn the_sizes_of_blocks_are_as_old_as_the_smallest_ones() {
    let sizes = |ranges: &[&str], left, now| config(ranges, &[]).sizes(left, at(now));
    let first = sizes(&["10.10.0.0/20/24"], None, 1);
    let is_since = |sizes: BlockSizes, seconds: u64| {
        let config = config(&["10.10.0.0/20/24"], &[]).with_sizes(sizes);
        config.is_older(&created("n", seconds, &[]))
            && !config.is_older(&created("n", seconds + 1, &[]))
    };
    for (ranges, since) in [
        (&["10.10.0.0/20/24"][..], 1),
        // The network and the blocks become larger.
        (&["10.0.0.0/8/24"], 1),
        (&["10.10.0.0/20/22"], 1),
        // Nodes have had larger blocks.
        (&["10.10.0.0/20/25"], 9),
        (&["10.10.0.0/20/24", "fd00::/48/64"], 9),
    ] {
        let next = sizes(ranges, Some(first), 9);
        assert!(is_since(next, since), "{ranges:?}: {next:?}");
        assert_eq!(sizes(ranges, Some(next), 20), next);
    }
}
