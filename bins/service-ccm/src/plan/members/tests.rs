//! Members follow the nodes, but do not follow a mistake.

use std::time::Duration;

use ccm_cloud::{AddressKind, NodeAddress, ProviderId};
use ccm_controller::brake::Limit;
use proptest::prelude::*;

use super::*;

mod floor;
mod mistakes;
mod selected;

const WINDOW: Duration = Duration::from_mins(10);
const BUDGET: Budget = Budget { limit: Limit::Percent(10), window: WINDOW };
static EVERY: NodeSelector = NodeSelector::every();
/// Every node may be a member, and no approval was given.
pub(super) const RULES: MemberRules<'static> = MemberRules {
    budget: BUDGET,
    approved: false,
    selector: &EVERY,
    is_default: false,
    families: &[],
    in_cloud: None,
};
const APPROVED: MemberRules<'static> = MemberRules { approved: true, ..RULES };
const HOURS: Duration = Duration::from_hours(6);
const LONG: MemberRules<'static> =
    MemberRules { budget: Budget { window: HOURS, ..BUDGET }, ..RULES };

fn at(seconds: u64) -> At {
    At::default() + Duration::from_hours(1) + Duration::from_secs(seconds)
}

fn member(number: usize) -> Member {
    Member {
        node: format!("n{number:03}"),
        provider_id: ProviderId::parse(&format!("sim://i-{number}")).ok(),
        addresses: vec![NodeAddress {
            kind: AddressKind::InternalIp,
            address: format!("10.0.{}.{}", number / 250, number % 250),
        }],
        labels: Arc::default(),
    }
}

fn nodes(numbers: impl IntoIterator<Item = usize>) -> NodeSet {
    NodeSet { members: numbers.into_iter().map(member).collect(), ..NodeSet::default() }
}

/// Returns these nodes, and others that are excluded for this reason.
fn and(mut set: NodeSet, numbers: impl IntoIterator<Item = usize>, why: Excluded) -> NodeSet {
    for number in numbers {
        let name: Arc<str> = member(number).node.as_str().into();
        if why == Excluded::ScaleDown {
            set.marks.see(&name, Some(Mark::Meant), At::default());
        }
        set.excluded.insert(name, why);
    }
    set
}

/// Returns a load balancer with the members 0 to `count - 1`.
fn with(count: usize) -> Membership {
    let mut membership = Membership::default();
    membership.shown(&(0..count).map(member).collect(), &NodeSet::default(), at(0));
    membership
}

/// Decides and makes the change. Returns how many left, and how many are held.
fn step(membership: &mut Membership, now: At, nodes: &NodeSet) -> (usize, usize) {
    let decision = membership.decide(now, nodes, RULES);
    membership.applied(&decision.members, now);
    (decision.members.absent.len(), decision.held.len())
}

#[test]
fn a_node_that_joins_is_a_member_at_once() {
    let mut membership = with(3);
    let decision = membership.decide(at(0), &nodes(0..5), RULES);
    assert!(decision.changes && decision.held.is_empty());
    assert_eq!((decision.members.present.len(), decision.members.absent.len()), (5, 0));
    membership.applied(&decision.members, at(0));
    assert!(!membership.decide(at(1), &nodes(0..5), RULES).changes);
}

/// Returns nodes with these addresses each; `{}` stands for the number of the node.
fn nodes_with(numbers: impl IntoIterator<Item = usize>, ips: &[(AddressKind, &str)]) -> NodeSet {
    let mut set = nodes(numbers);
    let mut members = set.members.to_vec();
    for (number, one) in members.iter_mut().enumerate() {
        let address = |text: &str| text.replace("{}", &number.to_string());
        one.addresses = ips.iter().map(|(kind, ip)| NodeAddress::new(*kind, address(ip))).collect();
    }
    set.members = members.into();
    set
}

#[test]
fn members_with_two_addresses_of_a_family_are_as_they_were_told() {
    use AddressKind::{ExternalIp, InternalIp};
    for ips in [
        &[(InternalIp, "10.0.0.{}"), (ExternalIp, "192.0.2.{}")][..],
        &[(InternalIp, "10.0.0.{}"), (InternalIp, "10.0.1.{}")],
        &[(InternalIp, "10.0.0.{}"), (InternalIp, "fd00::{}"), (InternalIp, "2001:db8::{}")],
    ] {
        let mut membership = with(0);
        assert_eq!(step(&mut membership, at(0), &nodes_with(0..13, ips)), (0, 0));
        let joined = nodes_with(0..14, ips);
        assert!(membership.decide(at(1), &joined, RULES).changes);
        assert_eq!(step(&mut membership, at(1), &joined), (0, 0));
        assert!(!membership.decide(at(2), &joined, RULES).changes);
        // Other labels do not change a member either.
        let mut labelled = joined.members.to_vec();
        for one in &mut labelled {
            one.labels = Arc::new([("zone".to_owned(), "a".to_owned())].into());
        }
        let labelled = NodeSet { members: labelled.into(), ..NodeSet::default() };
        let decision = membership.decide(at(3), &labelled, RULES);
        assert!(!decision.changes && decision.held.is_empty());
        assert_eq!(step(&mut membership, at(4), &nodes_with(0..13, ips)), (1, 0), "{ips:?}");
        assert!(!membership.decide(at(5), &nodes_with(0..13, ips), RULES).changes);
    }
}

/// Load balancers use the first address of each family.
#[test]
fn a_member_whose_address_in_use_changes_is_another_one() {
    use AddressKind::{ExternalIp, InternalIp};
    let before = [(InternalIp, "10.0.0.{}"), (ExternalIp, "192.0.2.{}")];
    for (after, changes) in [
        (&[(InternalIp, "10.0.0.{}"), (ExternalIp, "192.0.2.9{}")][..], false),
        (&[(InternalIp, "10.0.0.{}")], false),
        (&[(InternalIp, "10.0.9.{}"), (ExternalIp, "192.0.2.{}")], true),
        (&[(ExternalIp, "192.0.2.{}")], true),
        (&[(InternalIp, "10.0.0.{}"), (InternalIp, "fd00::{}")], true),
    ] {
        let mut membership = with(0);
        step(&mut membership, at(0), &nodes_with(0..3, &before));
        let view = nodes_with(0..3, after);
        let decision = membership.decide(at(1), &view, RULES);
        assert_eq!((decision.changes, decision.held.len()), (changes, 0), "{after:?}");
        membership.applied(&decision.members, at(1));
        assert!(!membership.decide(at(2), &view, RULES).changes, "{after:?}");
    }
}

#[test]
fn a_node_that_is_replaced_is_another_member() {
    // The node has another name.
    let mut membership = with(3);
    let decision = membership.decide(at(0), &nodes(1..4), RULES);
    let named = |members: &[Member]| members.iter().map(|one| one.node.clone()).collect::<Vec<_>>();
    assert_eq!(named(&decision.members.present), ["n001", "n002", "n003"]);
    assert_eq!(named(&decision.members.absent), ["n000"]);
    // The node has the same name and another instance.
    let mut view = nodes(0..3);
    let mut members = view.members.to_vec();
    members[0].provider_id = ProviderId::parse("sim://other").ok();
    view.members = members.into();
    let mut membership = with(3);
    let decision = membership.decide(at(0), &view, RULES);
    assert!(decision.changes && decision.held.is_empty());
    assert_eq!((&decision.members.present, decision.members.absent.len()), (&view.members, 0));
}

#[test]
fn a_thin_view_empties_no_load_balancer() {
    for (view, out) in [(nodes([]), 20), (nodes(0..10), 20), (nodes(0..190), 10)] {
        let mut membership = with(200);
        let left: usize = (0..60).map(|turn| step(&mut membership, at(turn * 10), &view).0).sum();
        assert_eq!(left, out, "within ten minutes");
        // All nodes are back: nothing is held, and the nodes that left are members again.
        let decision = membership.decide(at(601), &nodes(0..200), RULES);
        assert!(decision.held.is_empty() && decision.members.present.len() == 200);
    }
}

#[test]
fn the_rest_leaves_window_by_window_and_the_last_one_never() {
    let mut membership = with(10);
    let mut known = Vec::new();
    for turn in 0..6 {
        step(&mut membership, at(turn * 600), &nodes([]));
        known.push(membership.count());
    }
    assert_eq!(known, [7, 4, 2, 1, 1, 1]);
    let decision = membership.decide(at(9999), &nodes([]), RULES);
    assert_eq!(decision.held.values().collect::<Vec<_>>(), [&Held::Floor]);
    assert!(!decision.changes);
    // A new node takes its place.
    assert_eq!(step(&mut membership, at(9999), &nodes([42])), (1, 0));
}

#[test]
fn marked_nodes_leave_without_approval() {
    let view = and(nodes(0..10), 10..50, Excluded::ScaleDown);
    let mut membership = with(50);
    assert_eq!(step(&mut membership, at(0), &view), (40, 0));
    // They are gone, and had the mark when they were last seen.
    let mut membership = with(50);
    assert_eq!(
        step(&mut membership, at(1), &NodeSet { marks: view.marks, ..nodes(0..10) }),
        (40, 0)
    );
    // A node whose mark was removed before it was deleted does not count as marked.
    let mut membership = with(50);
    assert_eq!(step(&mut membership, at(2), &nodes(0..10)), (5, 35));
    // All nodes are marked, so one stays.
    let mut membership = with(50);
    assert_eq!(step(&mut membership, at(0), &and(nodes([]), 0..50, Excluded::ScaleDown)), (49, 1));
}

#[test]
fn the_label_takes_half_of_the_members_at_most() {
    let labelled = |numbers| and(nodes(0..0), numbers, Excluded::Label);
    let mut membership = with(10);
    assert_eq!(step(&mut membership, at(0), &labelled(0..10)), (5, 5));
    assert_eq!(step(&mut membership, at(300), &labelled(0..10)), (0, 5));
    // In the next window half of the rest may leave.
    assert_eq!(step(&mut membership, at(600), &labelled(0..10)), (2, 3));
    let mut membership = with(10);
    let view = and(nodes(4..10), 0..4, Excluded::Label);
    assert_eq!(step(&mut membership, at(0), &view), (4, 0));
    let mut membership = with(1);
    assert_eq!(step(&mut membership, at(0), &labelled(0..1)), (0, 1));
}

#[test]
fn a_change_of_all_addresses_is_braked() {
    let moved = |count: usize| {
        let mut members: Vec<Member> = (0..count).map(member).collect();
        for member in &mut members {
            member.addresses[0].address.push('9');
        }
        NodeSet { members: members.into(), ..NodeSet::default() }
    };
    let mut membership = with(100);
    let decision = membership.decide(at(0), &moved(100), RULES);
    assert_eq!((decision.held.len(), decision.members.absent.len()), (90, 0));
    let new = decision.members.present.iter().filter(|one| one.addresses[0].address.ends_with('9'));
    assert_eq!((new.count(), decision.members.present.len()), (19, 100));
    // Replaced members do not return their part of the budget.
    for turn in 0..60 {
        step(&mut membership, at(turn * 10), &moved(100));
    }
    let decision = membership.decide(at(599), &moved(100), RULES);
    assert_eq!(decision.held.len(), 90, "within one window");
    let mut membership = with(2);
    assert!(membership.decide(at(0), &moved(2), RULES).held.is_empty());
}

#[test]
fn an_approval_overrides_the_brake_but_not_the_last_member() {
    let mut membership = with(100);
    let decision = membership.decide(at(0), &nodes([]), APPROVED);
    assert_eq!((decision.members.absent.len(), decision.held.len()), (99, 1));
}

#[test]
fn asking_twice_charges_once_and_a_node_that_returns_is_not_charged() {
    let mut membership = with(10);
    for turn in 0..5 {
        let decision = membership.decide(at(turn), &nodes(3..10), RULES);
        assert_eq!((decision.members.absent.len(), decision.held.len()), (3, 0));
    }
    membership.decide(at(6), &nodes(0..10), RULES);
    assert_eq!(step(&mut membership, at(7), &nodes(0..7)), (3, 0));
}

/// Lets the cloud show that the load balancer has these members.
fn shows(membership: &mut Membership, now: At, numbers: impl IntoIterator<Item = usize>) {
    membership.shown(&numbers.into_iter().map(member).collect(), &NodeSet::default(), now);
}

#[test]
fn a_member_that_left_by_a_full_call_is_not_charged_when_it_is_back() {
    let mut membership = with(10);
    membership.decide(at(0), &nodes(1..10), RULES);
    shows(&mut membership, at(1), 1..10);
    shows(&mut membership, at(60), 0..10);
    assert_eq!(step(&mut membership, at(61), &nodes([0, 4, 5, 6, 7, 8, 9])), (3, 0));
}

#[test]
fn a_member_that_the_cloud_still_shows_may_leave_and_is_not_charged_if_it_stays() {
    let mut membership = with(10);
    membership.decide(at(0), &nodes(3..10), RULES);
    shows(&mut membership, at(1), 0..10);
    membership.decide(at(2), &nodes(0..10), RULES);
    assert_eq!(step(&mut membership, at(3), &nodes(0..7)), (3, 0));
}

/// The cloud has made the change, and the answer is lost.
#[test]
fn a_member_that_may_have_left_stays_charged_when_its_node_is_back() {
    for is_sent in [false, true] {
        let mut membership = with(10);
        membership.decide(at(0), &nodes(3..10), RULES);
        if is_sent {
            membership.sent();
        }
        membership.decide(at(10), &nodes(0..10), RULES);
        let left = membership.decide(at(20), &nodes((0..3).chain(6..10)), RULES);
        assert_eq!(left.members.absent.len(), if is_sent { 0 } else { 3 });
        // The cloud shows that they exist.
        shows(&mut membership, at(30), 0..10);
        membership.decide(at(31), &nodes(0..10), RULES);
        assert_eq!(step(&mut membership, at(32), &nodes(0..7)), (3, 0));
    }
}

#[test]
fn the_window_begins_when_the_member_has_left() {
    // The cloud is slow.
    let mut slow = with(10);
    let decision = slow.decide(at(0), &nodes(3..10), RULES);
    slow.applied(&decision.members, at(500));
    // The cloud refuses it at first, and the leader ends before the answer to the second call.
    let mut refused = with(10);
    refused.decide(at(0), &nodes(3..10), RULES);
    refused.decide(at(500), &nodes(3..10), RULES);
    let mut refused = resumed(&refused, at(500));
    // They were charged when they were replaced.
    let mut replaced = with(10);
    let mut members = nodes(0..10).members.to_vec();
    for one in &mut members[..3] {
        one.provider_id = ProviderId::parse("sim://other").ok();
    }
    let view = NodeSet { members: members.into(), ..NodeSet::default() };
    assert_eq!(step(&mut replaced, at(0), &view), (0, 0));
    assert_eq!(step(&mut replaced, at(500), &nodes(3..10)), (3, 0));
    shows(&mut refused, at(501), 3..10);
    for (mut membership, how) in [(slow, "slow"), (refused, "refused"), (replaced, "replaced")] {
        assert_eq!(step(&mut membership, at(1050), &nodes(4..10)), (0, 1), "{how}");
        assert_eq!(step(&mut membership, at(1101), &nodes(4..10)), (1, 0), "{how}");
    }
}

#[test]
fn the_last_member_leaves_when_another_one_joins() {
    let mut membership = with(1);
    assert_eq!(step(&mut membership, at(0), &nodes([])), (0, 1));
    assert_eq!(step(&mut membership, at(50), &nodes(1..7)), (1, 0));
    assert_eq!(step(&mut membership, at(60), &nodes(4..7)), (2, 1));
}

/// Returns the membership that the next leader gets from the last one.
fn resumed(membership: &Membership, now: At) -> Membership {
    let mut left = Departures::default();
    membership.add_departures(now - WINDOW, &mut left);
    let stored = serde_json::to_string(&left).unwrap();
    Membership::resume(now, &serde_json::from_str(&stored).unwrap())
}

/// Returns the next leader's view of it.
fn handed_over(membership: &Membership, now: At) -> Membership {
    let mut next = resumed(membership, now);
    next.shown(membership.known.as_ref().unwrap(), &NodeSet::default(), now);
    next
}

#[test]
fn a_new_leader_has_the_budget_that_the_last_one_left() {
    let mut membership = with(10);
    assert_eq!(step(&mut membership, at(0), &nodes(4..10)), (3, 1));
    let mut membership = handed_over(&membership, at(60));
    assert_eq!(step(&mut membership, at(60), &nodes(4..10)), (0, 1));
    assert_eq!(step(&mut membership, at(600), &nodes(4..10)), (1, 0));
    let labelled = |set| and(nodes(set), 0..4, Excluded::Label);
    let mut membership = with(10);
    assert_eq!(step(&mut membership, at(0), &labelled(4..10)), (4, 0));
    let mut membership = handed_over(&membership, at(60));
    let more = and(labelled(6..10), 4..6, Excluded::Label);
    assert_eq!(step(&mut membership, at(60), &more), (1, 1), "half of ten may leave");
}

proptest! {
    /// In every history of nodes and leaders, a load balancer lacks at most three of the members
    /// that it had at any time within the window, and it always has one.
    #[test]
    fn the_brake_holds_in_any_history(
        views in prop::collection::vec(
            (prop::collection::btree_set(0..30_usize, 0..30), any::<bool>(), 0..4), 1..20),
    ) {
        let mut membership = with(30);
        let mut counts = vec![(0, 30)];
        for (turn, (view, is_new_leader, answer)) in (0..).zip(views) {
            let now = turn * 60;
            if is_new_leader {
                membership = handed_over(&membership, at(now));
            }
            let decision = membership.decide(at(now), &nodes(view), RULES);
            match answer {
                // The cloud refuses it, or shows that it has not done it.
                0 => continue,
                1 => {
                    let same = membership.known.clone().unwrap();
                    membership.shown(&same, &NodeSet::default(), at(now));
                    continue;
                }
                2 => membership.shown(&decision.members.present, &NodeSet::default(), at(now)),
                _ => membership.applied(&decision.members, at(now)),
            }
            counts.push((now, membership.count()));
            let lately = counts.iter().filter(|(at, _)| at + WINDOW.as_secs() > now);
            let most = lately.map(|(_, count)| *count).max().unwrap_or_default();
            prop_assert!(most - membership.count() <= 3, "{counts:?}");
            prop_assert!(membership.count() > 0);
        }
    }
}

#[test]
fn members_without_a_node_are_not_counted() {
    let mut membership = Membership::default();
    let nameless = Member { node: String::new(), ..member(0) };
    membership.shown(&vec![nameless, member(1)].into(), &NodeSet::default(), at(0));
    assert_eq!(membership.count(), 1);
}
