//! Load balancers that other controllers and users have made for the Services of this cluster.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ccm_cloud::{LoadBalancer, LoadBalancerList, LoadBalancerTraits, Title};
use ccm_objects::Service;

use super::listed::Made;
use crate::plan::{
    Foreign, by_provider,
    status::{ID, ingress},
};

/// The load balancers that others have made, by the UID of the Service.
pub(super) type AllMade = HashMap<Box<str>, Made>;

/// Returns the Services with the finalizer that have no load balancer in this list.
pub(super) fn without_load_balancer(
    mut services: Vec<Arc<Service>>,
    list: &LoadBalancerList,
) -> Vec<Arc<Service>> {
    let ours = list.load_balancers.iter().filter(|balancer| balancer.title == Title::Ours);
    let uids: HashSet<&str> = ours.filter_map(|one| Some(&*one.owner.as_ref()?.uid)).collect();
    services.retain(|service| {
        let has_none = !uids.contains(&*service.uid);
        service.is_load_balancer && service.has_finalizer && !service.deleting && has_none
    });
    services
}

/// Returns the load balancer of others for each of these Services.
pub(super) fn made(
    services: &[Arc<Service>],
    all: &[LoadBalancer],
    traits: &LoadBalancerTraits,
) -> AllMade {
    let mut of_name: HashMap<String, Vec<&LoadBalancer>> = HashMap::new();
    for balancer in all {
        if let (Title::Adoptable { .. } | Title::Shared { .. }, Some(owner)) =
            (&balancer.title, &balancer.owner)
        {
            of_name.entry(owner.to_string()).or_default().push(balancer);
        }
    }
    let by_id: HashMap<&str, &LoadBalancer> = all.iter().map(|one| (&*one.id, one)).collect();
    let of_service = |service: &Arc<Service>| {
        let named = by_provider(service, traits).and_then(|(_, id)| by_id.get(id).copied());
        let own = of_name.get(&*service.key).map(Vec::as_slice).unwrap_or_default();
        (service.uid.clone(), made_for(service, named, own))
    };
    services.iter().map(of_service).collect()
}

/// Returns the load balancer of others for one Service: the one that its annotation names;
/// otherwise, of the ones made for it, the adopted one, the one at its address, or the oldest.
fn made_for(service: &Service, named: Option<&LoadBalancer>, own: &[&LoadBalancer]) -> Made {
    let details = service.details.as_deref();
    let shown = details.map(|details| &*details.ingress).unwrap_or_default();
    // A shared load balancer of its name does not prevent a Service without an address from getting
    // its own.
    let is_in_use = |one: &&LoadBalancer| {
        let is_shared = matches!(one.title, Title::Shared { .. });
        !is_shared || !shown.is_empty() || service.annotation(ID) == Some(&one.id)
    };
    let first = own.iter().copied().filter(is_in_use).min_by_key(|one| {
        let is_known = service.annotation(ID) == Some(&one.id);
        let is_shown = !shown.is_empty() && ingress(one) == shown;
        (!is_known, !is_shown, Reverse(one.age), &one.id)
    });
    let Some(balancer) = named.or(first) else { return Made::default() };
    let is_own = own.iter().any(|one| one.id == balancer.id);
    match &balancer.title {
        Title::Adoptable { why } if is_own => {
            let adoptable = Some((balancer.id.clone(), why.clone()));
            Made { adoptable, ..Made::default() }
        }
        _ => {
            let (id, whose) = (balancer.id.clone(), whose(balancer));
            Made { foreign: Some(Foreign { id, whose, is_named: !is_own }), ..Made::default() }
        }
    }
}

/// Returns the owner of a load balancer that this program does not take over for a Service.
fn whose(balancer: &LoadBalancer) -> String {
    match (&balancer.title, &balancer.owner) {
        (Title::Shared { others }, _) => format!("it is shared by {} Services", others + 1),
        (Title::Ours, Some(owner)) => format!("it belongs to Service {owner}"),
        (Title::Adoptable { .. }, Some(owner)) => {
            format!("another controller made it for Service {owner}")
        }
        _ => "its record does not say that it belongs to this cluster".to_owned(),
    }
}
