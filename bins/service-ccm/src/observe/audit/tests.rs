use ccm_cloud::Member;

use super::*;

/// The load balancer was deleted and its duplicate is left: the known members are not the members
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
        let mut entry = Entry::default();
        let balancer =
            |id: &str| LoadBalancer { phase: Phase::Ready, ..LoadBalancer::new(id, "", None) };
        entry.state.known = Known::There(Box::new(balancer("one")));
        entry.membership.shown(&members, &nodes);
        let listing = Listing {
            service: &Service::default(),
            found: vec![balancer(id)],
            is_complete: true,
            stores_digest: true,
        };
        listed(&mut entry, listing, &nodes, At::default());
        assert_eq!((entry.membership.is_known(), entry.awaited), (is_known, !is_known), "{id}");
    }
}
