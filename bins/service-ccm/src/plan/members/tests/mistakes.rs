//! Events that gave an incomplete list of nodes more than one budget.

use super::*;

fn go(membership: &mut Membership, now: u64, view: &NodeSet) -> usize {
    let decision = membership.decide(at(now), view, LONG);
    membership.applied(&decision.members, at(now));
    membership.count()
}

fn drained(mut set: NodeSet, numbers: impl IntoIterator<Item = usize>, mark: Mark) -> NodeSet {
    for number in numbers {
        set.marks.see(&member(number).node, Some(mark), at(0));
    }
    set
}

/// Returns the number of members after this history: the list lacks the nodes 0 to 49 of 100 by
/// mistake, and ten leave. At the same time the nodes 60 to 89 are replaced one by one (cordoned
/// and deleted, or by Karpenter), each by a new one. In total, only ten may be missing.
fn rolling(mark: Mark, joins_first: bool) -> usize {
    let mut membership = with(100);
    assert_eq!(go(&mut membership, 0, &nodes(50..100)), 90);
    for turn in 0..30 {
        let now = 100 * (turn as u64 + 1);
        let old = |gone: usize| (50..60).chain(60 + gone..100);
        let new = |more: usize| 200..200 + more;
        let before = if joins_first { (turn, turn + 1) } else { (turn + 1, turn) };
        let view = |(gone, more)| drained(nodes(old(gone).chain(new(more))), 60..60 + gone, mark);
        go(&mut membership, now, &view(before));
        go(&mut membership, now + 20, &view((turn + 1, turn + 1)));
        go(&mut membership, now + 40, &view((turn + 1, turn + 1)));
    }
    // The nodes that joined do not count for others later.
    let view = drained(nodes((50..60).chain(90..100).chain(200..230)), 60..90, mark);
    for hour in 2..6 {
        go(&mut membership, 3600 * hour, &view);
    }
    membership.count()
}

#[test]
fn cordoned_nodes_that_are_replaced_give_no_budget_to_a_short_list() {
    for joins_first in [false, true] {
        let len = rolling(Mark::Drained, joins_first);
        assert!(len >= 90, "{len} of 100 stay, {joins_first}");
    }
}

#[test]
fn nodes_that_karpenter_replaces_give_no_budget_to_a_short_list() {
    for joins_first in [false, true] {
        let len = rolling(Mark::Meant, joins_first);
        assert!(len >= 90, "{len} of 100 stay, {joins_first}");
    }
}

/// One node after the other gets the exclusion label for a while (maintenance), or the autoscaler's taint that is taken
/// off again. 100 members, the list lacks 50 others.
#[test]
fn a_node_that_leaves_and_returns_by_a_mark_gives_no_budget() {
    for why in [Excluded::Label, Excluded::ScaleDown] {
        let mut membership = with(100);
        assert_eq!(go(&mut membership, 0, &nodes(50..100)), 90);
        for turn in 0..40 {
            let now = 100 * (turn + 1);
            // Always the same node flaps.
            go(&mut membership, now, &and(nodes(51..100), [50], why));
            go(&mut membership, now + 20, &nodes(50..100));
            go(&mut membership, now + 40, &nodes(50..100));
        }
        let len = membership.count();
        assert!(len >= 90, "{len} of 100 stay, {why:?}");
    }
}

/// A Service's own selector is changed and changed back, with an incomplete list of nodes.
#[test]
fn a_selector_that_is_changed_back_gives_no_budget() {
    let (one, both) = (NodeSelector::parse("pool=edge"), NodeSelector::parse("tier=web"));
    let label = |mut set: NodeSet| {
        let mut members = set.members.to_vec();
        for member in &mut members {
            let number: usize = member.node.trim_start_matches('n').parse().unwrap();
            let pool = if number.is_multiple_of(2) { "edge" } else { "core" };
            member.labels = Arc::new(
                [("pool".to_owned(), pool.to_owned()), ("tier".to_owned(), "web".to_owned())]
                    .into(),
            );
        }
        set.members = members.into();
        set
    };
    let (all, short) = (label(nodes(0..100)), label(nodes(50..100)));
    let mut membership = with(100);
    let mut go = |now, view: &NodeSet, selector: &NodeSelector| {
        let rules = MemberRules { selector, ..LONG };
        let decision = membership.decide(at(now), view, rules);
        membership.applied(&decision.members, at(now));
        let present = decision.members.present.iter();
        present.filter(|one| selector.matches(&one.labels)).count()
    };
    go(0, &all, &both);
    assert_eq!(go(1, &short, &both), 90);
    let mut len = 90;
    for turn in 0..5 {
        go(100 * turn + 100, &short, &one);
        len = go(100 * turn + 120, &short, &both);
        len = len.min(go(100 * turn + 140, &short, &both));
    }
    assert!(len >= 90, "{len} of 100 stay");
}

/// The exclusion label on three of four nodes of a small pool: two leave, one is held. The next
/// leader has the departures of all load balancers, and lets the third one leave.
#[test]
fn a_new_leader_keeps_half_of_a_small_pool_with_the_label() {
    let view = and(nodes([3]), 0..3, Excluded::Label);
    let (mut big, mut small) = (with(100), with(4));
    assert_eq!(go(&mut big, 0, &and(nodes(3..100), 0..3, Excluded::Label)), 97);
    assert_eq!(go(&mut small, 0, &view), 2);
    let mut left = Departures::default();
    for one in [&big, &small] {
        one.add_departures(at(0) - HOURS, &mut left);
    }
    let mut next = Membership::resume(at(60), &left);
    next.shown(small.known.as_ref().unwrap(), &NodeSet::default(), at(60));
    let len = go(&mut next, 61, &view);
    assert_eq!(len, 2, "{len} of 4 stay");
}

/// The list lacks half of the nodes, and an autoscaler replaces 30 of the others at once.
#[test]
fn nodes_that_an_autoscaler_replaces_at_once_give_no_budget_later() {
    let mut membership = with(100);
    assert_eq!(go(&mut membership, 0, &nodes(50..100)), 90);
    let view = |more: usize| drained(nodes((80..100).chain(200..200 + more)), 50..80, Mark::Meant);
    assert_eq!(go(&mut membership, 10, &view(0)), 60);
    for minutes in 1..180 {
        go(&mut membership, 60 * minutes, &view(30));
    }
    assert_eq!(membership.count(), 90);
}
