//! What other controllers have made for the Services of this cluster.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ccm_cloud::{LoadBalancer, LoadBalancerList, Title};
use ccm_objects::Service;

use crate::plan::status::{ID, ingress};

/// By the UID of a Service: the ID of the load balancer that was made for it, and what shows that.
pub(super) type Adoptables = HashMap<Box<str>, (String, String)>;

/// The Services with the finalizer that have no load balancer in this list.
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

/// What was made for each of these Services. Of several load balancers it is the one that the
/// Service names, else the one at its address, else the oldest.
pub(super) fn adoptables(services: &[Arc<Service>], all: &[LoadBalancer]) -> Adoptables {
    let mut of_name: HashMap<String, Vec<(&LoadBalancer, &str)>> = HashMap::new();
    for balancer in all {
        if let (Title::Adoptable { why }, Some(owner)) = (&balancer.title, &balancer.owner) {
            of_name.entry(owner.to_string()).or_default().push((balancer, why));
        }
    }
    let of_service = |service: &Arc<Service>| {
        let (balancer, why) = of_name.get(&*service.key)?.iter().min_by_key(|(one, _)| {
            let is_named = service.annotation(ID) == Some(&one.id);
            let details = service.details.as_deref();
            let shown = details.map(|details| &*details.ingress).unwrap_or_default();
            let is_shown = !shown.is_empty() && ingress(one) == shown;
            (!is_named, !is_shown, Reverse(one.age), &one.id)
        })?;
        Some((service.uid.clone(), (balancer.id.clone(), (*why).to_owned())))
    };
    services.iter().filter_map(of_service).collect()
}
