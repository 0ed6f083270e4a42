//! Load balancers that select their members by the labels of nodes.

use super::*;

fn number_of(one: &Member) -> usize {
    one.node.trim_start_matches('n').parse().unwrap()
}

fn labelled(set: NodeSet, labels: impl Fn(usize) -> &'static str) -> NodeSet {
    let mut members = set.members.to_vec();
    for one in &mut members {
        let number = number_of(one);
        let terms = labels(number).split(',').filter_map(|term| term.split_once('='));
        one.labels =
            Arc::new(terms.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    }
    NodeSet { members: members.into(), ..set }
}

fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(|one| one.node.as_str()).collect()
}

/// Returns the members that the provider makes or keeps.
fn made<'a>(decision: &'a Decision, selector: &NodeSelector) -> Vec<&'a str> {
    let present = decision.members.present.iter();
    present.filter(|one| selector.matches(&one.labels)).map(|one| one.node.as_str()).collect()
}

/// Returns nodes of which those below `edge` have the label.
fn edges(count: usize, edge: usize) -> NodeSet {
    labelled(nodes(0..count), |number| if number < edge { "pool=edge" } else { "pool=core" })
}

#[test]
fn a_node_that_gets_or_loses_the_label_joins_or_leaves() {
    let edge = NodeSelector::parse("pool=edge");
    let rules = MemberRules { selector: &edge, ..RULES };
    for is_read in [false, true] {
        // The cloud shows its members without their labels.
        let mut membership = with(4);
        let mut now = 0;
        for (view, changes, wanted) in [
            (edges(8, 4), false, 4),
            (edges(8, 5), true, 5),
            (edges(8, 6), true, 6),
            (edges(8, 4), true, 4),
        ] {
            now += 1;
            let decision = membership.decide(at(now), &view, rules);
            assert_eq!(decision.changes, changes, "{is_read} {wanted}");
            assert_eq!(made(&decision, &edge).len(), wanted);
            assert!(decision.held.is_empty() && decision.members.absent.is_empty());
            if is_read {
                membership.shown(&(0..wanted).map(member).collect(), &view, at(now));
            } else if changes {
                membership.applied(&decision.members, at(now));
            }
            assert!(!membership.decide(at(now), &view, rules).changes, "{is_read} {wanted}");
            // This load balancer does not ask for this label.
            let other = labelled(view, |number| match number < wanted {
                true => "pool=edge,zone=a",
                false => "pool=core,zone=a",
            });
            assert!(!membership.decide(at(now), &other, rules).changes, "{is_read} {wanted}");
        }
    }
}

#[test]
fn a_label_that_many_lose_takes_half_at_most_and_the_others_are_kept() {
    let edge = NodeSelector::parse("pool=edge");
    let rules = MemberRules { selector: &edge, ..RULES };
    for is_told in [false, true] {
        let mut membership = with(6);
        if is_told {
            membership.decide(at(0), &edges(8, 6), rules);
        }
        let decision = membership.decide(at(1), &edges(8, 0), rules);
        assert_eq!(decision.held.values().filter(|why| **why == Held::Label).count(), 3);
        assert_eq!(made(&decision, &edge), ["n003", "n004", "n005"], "with the label, if need be");
        membership.applied(&decision.members, at(1));
        let decision = membership.decide(at(2), &edges(8, 0), rules);
        assert_eq!((decision.changes, decision.held.len()), (false, 3));
    }
}

#[test]
fn nodes_that_are_no_members_do_not_count() {
    let edge = NodeSelector::parse("pool=edge");
    let rules = MemberRules { selector: &edge, ..RULES };
    let short = |gone: std::ops::Range<usize>| {
        let set = edges(40, 4);
        let is_there = |one: &&Member| !gone.contains(&number_of(one));
        NodeSet { members: set.members.iter().filter(is_there).cloned().collect(), ..set }
    };
    for is_told in [false, true] {
        // Four of forty nodes are members: the list lacks all of these, or only others.
        let mut membership = with(4);
        if is_told {
            membership.decide(at(0), &edges(40, 4), rules);
            membership
                .applied(&Members { present: edges(40, 4).members, ..Members::default() }, at(0));
        }
        let decision = membership.decide(at(1), &short(4..40), rules);
        assert!(!decision.changes && decision.held.is_empty(), "{is_told}");
        let decision = membership.decide(at(2), &short(0..4), rules);
        assert_eq!(
            (names(&decision.members.absent).len(), decision.held.len()),
            (2, 2),
            "{is_told}"
        );
        assert_eq!(made(&decision, &edge), ["n002", "n003"], "{is_told}");
    }
}

#[test]
fn nodes_without_an_address_of_the_family_do_not_count() {
    let rules = MemberRules { families: &[IpFamily::V6], ..RULES };
    let view = nodes(0..4);
    let mut membership = with(0);
    membership.shown(&Arc::default(), &view, at(0));
    let decision = membership.decide(at(1), &view, rules);
    assert!(!decision.changes, "an IPv4 node is not a member of an IPv6 load balancer");
    let decision = membership.decide(at(2), &nodes(0..1), rules);
    assert!(!decision.changes && decision.held.is_empty());
}

#[test]
fn what_the_cloud_has_shown_last_counts() {
    // Only the provider knows which of the 20 nodes it has selected: 4.
    let opaque = NodeSelector::opaque();
    let rules = MemberRules { selector: &opaque, in_cloud: Some(4), ..RULES };
    let mut membership = with(20);
    let decision = membership.decide(at(0), &nodes(0..10), rules);
    assert_eq!((decision.members.absent.len(), decision.held.len()), (2, 8));
}

#[test]
fn each_label_counts_if_only_the_provider_knows_which() {
    let opaque = NodeSelector::opaque();
    let rules = MemberRules { selector: &opaque, ..RULES };
    let mut membership = with(4);
    let (before, after) = (edges(4, 2), edges(4, 3));
    membership.shown(&before.members, &before, at(0));
    assert!(!membership.decide(at(0), &before, rules).changes);
    let decision = membership.decide(at(1), &after, rules);
    assert!(decision.changes && decision.held.is_empty() && decision.members.absent.is_empty());
    // The cloud shows all of them before it knows about the label.
    membership.shown(&after.members, &after, at(2));
    let decision = membership.decide(at(2), &after, rules);
    assert!(decision.changes, "it must be told");
    membership.applied(&decision.members, at(3));
    assert!(!membership.decide(at(3), &after, rules).changes);
    // The last leader sent other labels, or nobody knows.
    membership.relabelled();
    assert!(membership.decide(at(4), &after, rules).changes);
    membership.selected(&Members { present: after.members.clone(), ..Members::default() }, &after);
    assert!(!membership.decide(at(5), &after, rules).changes);
}

/// The provider's configuration names another label, or a value that no node has.
#[test]
fn another_default_selector_is_braked() {
    let (edge, typo) = (NodeSelector::parse("pool=edge"), NodeSelector::parse("pool=egde"));
    let view = edges(20, 10);
    for is_read in [false, true] {
        let mut membership = with(10);
        let rules = |selector| MemberRules { selector, is_default: true, ..RULES };
        let decision = membership.decide(at(0), &view, rules(&edge));
        assert!(!decision.changes);
        for turn in 1..60 {
            let decision = membership.decide(at(turn * 10), &view, rules(&typo));
            assert_eq!((made(&decision, &typo).len(), decision.held.len()), (7, 7), "{turn}");
            assert_eq!(decision.changes, turn == 1, "{turn}");
            if decision.changes && is_read {
                let left = made(&decision, &typo).into_iter().map(str::to_owned);
                let left: Vec<String> = left.collect();
                let shown = (0..10).map(member).filter(|one| left.contains(&one.node)).collect();
                membership.shown(&shown, &view, at(turn * 10));
            } else if decision.changes {
                membership.applied(&decision.members, at(turn * 10));
            }
            if turn == 30 {
                membership = resumed(&membership, at(turn * 10));
                membership.shown(&(3..10).map(member).collect(), &view, at(turn * 10));
            }
        }
        // It is corrected.
        let decision = membership.decide(at(601), &view, rules(&edge));
        assert_eq!((made(&decision, &edge).len(), decision.held.len()), (10, 0));
        // A Service chooses other labels on purpose.
        let core = NodeSelector::parse("pool=core");
        membership.applied(&decision.members, at(602));
        let decision = membership.decide(at(603), &view, MemberRules { selector: &core, ..RULES });
        assert_eq!((made(&decision, &core).len(), decision.held.len()), (10, 0));
    }
}

#[test]
fn nodes_that_lose_the_label_of_the_default_selector_are_braked() {
    let edge = NodeSelector::parse("pool=edge");
    let rules = MemberRules { selector: &edge, is_default: true, ..RULES };
    let mut membership = with(10);
    assert!(!membership.decide(at(0), &edges(20, 10), rules).changes);
    let decision = membership.decide(at(1), &edges(20, 5), rules);
    assert_eq!((made(&decision, &edge).len(), decision.held.len()), (7, 2));
    membership.applied(&decision.members, at(1));
    assert!(!membership.decide(at(2), &edges(20, 5), rules).changes);
    // They have it again.
    let decision = membership.decide(at(3), &edges(20, 10), rules);
    assert_eq!((made(&decision, &edge).len(), decision.held.len()), (10, 0));
    membership.applied(&decision.members, at(3));
    let decision = membership.decide(at(4), &edges(20, 7), rules);
    assert_eq!((made(&decision, &edge).len(), decision.held.len()), (7, 0));
}

/// The nodes that another default does not pick exist. That does not bring them back.
#[test]
fn members_that_another_default_has_taken_count_for_the_next_leader() {
    let edge = NodeSelector::parse("pool=edge");
    let budget = Budget { limit: Limit::Count(3), ..RULES.budget };
    let rules = MemberRules { selector: &edge, is_default: true, budget, ..RULES };
    let mut membership = with(10);
    let view = edges(10, 7);
    let decision = membership.decide(at(1), &view, rules);
    assert_eq!(made(&decision, &edge).len(), 7);
    membership.applied(&decision.members, at(1));
    // The next leader reads the members, and one joins.
    let mut next = resumed(&membership, at(2));
    next.shown(&(0..7).map(member).collect(), &view, at(2));
    let more = edges(11, 7);
    let more =
        labelled(more, |number| if number < 7 || number == 10 { "pool=edge" } else { "pool=core" });
    let decision = next.decide(at(3), &more, rules);
    assert!(decision.changes);
    next.applied(&decision.members, at(3));
    let fewer =
        labelled(more, |number| if number < 5 || number == 10 { "pool=edge" } else { "pool=core" });
    let decision = next.decide(at(4), &fewer, rules);
    assert_eq!(decision.held.len(), 2, "the budget is used up: {decision:?}");
}

#[test]
fn members_without_an_address_of_the_family_count_for_the_next_leader() {
    let budget = Budget { limit: Limit::Count(3), ..RULES.budget };
    let rules = MemberRules { families: &[IpFamily::V4], budget, ..RULES };
    let view = |count: usize, bare: std::ops::Range<usize>| {
        let mut members = nodes(0..count).members.to_vec();
        for number in bare {
            members[number].addresses.clear();
        }
        NodeSet { members: members.into(), ..nodes(0..count) }
    };
    let mut membership = with(10);
    let decision = membership.decide(at(1), &view(10, 7..10), rules);
    assert!(decision.held.is_empty(), "{decision:?}");
    membership.applied(&decision.members, at(1));
    // The next leader reads the members, and one joins.
    let mut next = resumed(&membership, at(2));
    next.shown(&(0..7).map(member).collect(), &view(10, 7..10), at(2));
    let decision = next.decide(at(3), &view(11, 7..10), rules);
    assert!(decision.changes);
    next.applied(&decision.members, at(3));
    let decision = next.decide(at(4), &view(11, 5..10), rules);
    assert_eq!(decision.held.len(), 2, "the budget is used up: {decision:?}");
}

/// The list lacks four of ten members, and other nodes join by their labels. An hour later, the
/// fourth is still held.
#[test]
fn nodes_that_join_by_another_selector_or_return_make_up_for_no_others() {
    let (edge, web) = (NodeSelector::parse("pool=edge"), NodeSelector::parse("tier=web"));
    let view = |lacks_label: usize| {
        labelled(nodes(4..20), |number| match number {
            number if number >= 10 || number == lacks_label => "tier=web",
            _ => "pool=edge,tier=web",
        })
    };
    for (is_default, [second, third]) in [(true, [(&web, 0); 2]), (false, [(&edge, 9), (&edge, 0)])]
    {
        let mut membership = with(10);
        let mut go = |minutes: u64, (selector, lacks_label): (&NodeSelector, usize)| {
            let rules = MemberRules { selector, is_default, ..LONG };
            let decision = membership.decide(at(60 * minutes), &view(lacks_label), rules);
            membership.applied(&decision.members, at(60 * minutes));
            decision.held.len()
        };
        assert_eq!(go(0, (&edge, 0)), 1);
        assert_eq!(go(1, second), 1);
        assert_eq!([go(2, third), go(63, third)], [1; 2], "{is_default}");
    }
}
