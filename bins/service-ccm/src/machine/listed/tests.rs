use std::sync::Arc;

use ccm_cloud::{Ingress, IngressAddress, IpMode, Member};
use ccm_objects::ServiceDetails;

use super::*;

/// The load balancer was deleted and its duplicate is left. The known members are not the members
/// of the duplicate.
#[test]
fn the_members_of_another_load_balancer_are_not_known() {
    let member = Member {
        node: "a".to_owned(),
        provider_id: None,
        addresses: Vec::new(),
        labels: Arc::default(),
    };
    let members: Arc<[Member]> = vec![member].into();
    let nodes = NodeSet { members: Arc::clone(&members), ..NodeSet::default() };
    for (id, is_known) in [("one", true), ("twin", false)] {
        let mut entry = BalancerEntry::default();
        let balancer =
            |id: &str| LoadBalancer { phase: Phase::Ready, ..LoadBalancer::new(id, "", None) };
        entry.state.known = Known::There(Box::new(balancer("one")));
        entry.membership.shown(&members, &nodes, At::default());
        let listing = Listing {
            service: &Service::default(),
            found: vec![balancer(id)],
            malformed: &[],
            stores_digest: true,
            started: At::default(),
            seen: At::default(),
        };
        entry.listed(listing, &nodes);
        assert_eq!((entry.membership.is_known(), entry.awaited), (is_known, !is_known), "{id}");
    }
}

fn balancer(id: &str) -> LoadBalancer {
    LoadBalancer { phase: Phase::Ready, ..LoadBalancer::new(id, "", None) }
}

/// Applies a list with these load balancers to a Service whose annotation names `named`.
fn list(
    entry: &mut BalancerEntry,
    named: Option<&str>,
    found: Vec<LoadBalancer>,
    is_complete: bool,
) {
    let annotations = named.map(|id| (ID.into(), id.into())).into_iter().collect();
    let details = ServiceDetails { annotations, ..ServiceDetails::default() };
    let service = Service { details: Some(Box::new(details)), ..Service::default() };
    let (started, seen) = (At::default(), At::default());
    let malformed = if is_complete { Vec::new() } else { vec!["another one".to_owned()] };
    let malformed = &*malformed;
    let listing =
        Listing { service: &service, found, malformed, stores_digest: true, started, seen };
    entry.listed(listing, &NodeSet::default());
}

#[test]
fn only_a_complete_list_shows_that_a_load_balancer_is_gone() {
    for (is_complete, is_absent) in [(false, false), (true, true)] {
        let mut entry = BalancerEntry::default();
        entry.state.known = Known::There(Box::new(balancer("one")));
        list(&mut entry, None, Vec::new(), is_complete);
        assert_eq!(entry.state.known == Known::Absent, is_absent, "{is_complete}");
    }
}

#[test]
fn of_two_load_balancers_the_named_one_stays_or_else_the_oldest() {
    let aged = |id: &str, seconds| {
        let age = Some(Duration::from_secs(seconds));
        LoadBalancer { age, ..balancer(id) }
    };
    for (named, stays, goes) in
        [(None, "old", "young"), (Some("young"), "young", "old"), (Some("other"), "old", "young")]
    {
        let mut entry = BalancerEntry::default();
        list(&mut entry, named, vec![aged("young", 1), aged("old", 2)], true);
        assert_eq!(entry.state.id(), Some(stays), "{named:?}");
        assert_eq!(entry.state.duplicate.as_deref(), Some(goes), "{named:?}");
    }
}

/// A cloud that shows an entry on two pages does not have two load balancers.
#[test]
fn a_load_balancer_that_a_list_shows_twice_is_not_its_own_duplicate() {
    let mut entry = BalancerEntry::default();
    list(&mut entry, Some("one"), vec![balancer("one"), balancer("one")], true);
    assert_eq!((entry.state.id(), &entry.state.duplicate), (Some("one"), &None));
    list(&mut entry, Some("one"), vec![balancer("one"), balancer("two"), balancer("one")], true);
    assert_eq!(entry.state.duplicate.as_deref(), Some("two"));
}

#[test]
fn a_list_without_an_address_takes_none_away() {
    let ingress = |text: &str| Ingress {
        address: IngressAddress::Hostname(text.to_owned()),
        ip_mode: IpMode::Vip,
        failed_ports: Vec::new(),
    };
    let with = |id: &str, ingress| LoadBalancer { ingress, ..balancer(id) };
    let before = with("one", vec![ingress("a")]);
    for (id, seen, expect) in [
        ("one", vec![], vec![ingress("a")]),
        ("one", vec![ingress("b")], vec![ingress("b")]),
        ("two", vec![], vec![]),
    ] {
        let mut seen = with(id, seen);
        keep_unshown(&mut seen, Some(&before));
        assert_eq!(seen.ingress, expect, "{id}");
    }
}

#[test]
fn a_service_learns_that_its_entry_of_the_list_cannot_be_read() {
    let mut entry = BalancerEntry::default();
    entry.state.known = Known::There(Box::new(balancer("one")));
    let service = Service::default();
    let mut compare = |malformed: &[&str], found| {
        let malformed: Vec<String> = malformed.iter().map(|&line| line.to_owned()).collect();
        let (started, seen, malformed) = (At::default(), At::default(), &*malformed);
        let listing =
            Listing { service: &service, found, malformed, stores_digest: true, started, seen };
        let is_due = entry.compared(Made::default(), listing, &NodeSet::default());
        (is_due, entry.state.unreadable.is_some())
    };
    assert_eq!(compare(&["one: no digest"], Vec::new()), (true, true));
    assert_eq!(compare(&["one: no digest"], Vec::new()), (false, true), "it is not news");
    assert_eq!(compare(&["another: no digest"], Vec::new()), (true, false));
    compare(&["one: no digest"], Vec::new());
    assert!(!compare(&[], vec![balancer("one")]).1);
}
