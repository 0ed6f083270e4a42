//! The limits of these load balancers.

use std::net::IpAddr;

use ccm_cloud::{CloudError, ErrorKind, FrontEnd, IpFamily, Owner};

use super::{
    FLOATING, SimBalancer,
    changes::wants_floating,
    store::{Floating, Store},
};

/// Refuses a configuration that this cloud cannot have, or that the contract does not allow. `now`
/// is the load balancer that would get it.
pub(super) fn check(
    store: &Store,
    front_end: &FrontEnd,
    now: Option<&SimBalancer>,
) -> Result<(), CloudError> {
    let traits = &store.settings.traits;
    let invalid =
        |what: &str, subject: String| Err(CloudError::new(ErrorKind::Invalid, what).about(subject));
    if front_end.ports.is_empty() {
        return invalid("a load balancer needs a port", "ports".to_owned());
    }
    let mut seen = std::collections::BTreeSet::new();
    for port in &front_end.ports {
        let subject = || format!("port {}/{}", port.port, port.protocol);
        if !traits.protocols.contains(&port.protocol) {
            return invalid("this cloud does not have this protocol", subject());
        }
        if !seen.insert((port.protocol, port.port)) {
            return invalid("two listeners on one port", subject());
        }
    }
    let families = front_end.families.len();
    if families == 0 || families > 1 + usize::from(traits.dual_stack) {
        return invalid("this cloud does not have this set of families", "families".to_owned());
    }
    if let Some(key) = front_end.settings.keys().find(|key| !traits.passes(key)) {
        return invalid("this cloud does not read this annotation", format!("annotation {key}"));
    }
    if let Some(value) = front_end.settings.get(FLOATING)
        && !["true", "false"].contains(&value.as_str())
    {
        return invalid("expected true or false", format!("annotation {FLOATING}: {value:?}"));
    }
    if traits.wants_service && front_end.service.is_none() {
        return invalid("this cloud needs the Service", "service".to_owned());
    }
    front_end.address.map_or(Ok(()), |address| check_address(store, front_end, address, now))
}

fn check_address(
    store: &Store,
    front_end: &FrontEnd,
    address: IpAddr,
    now: Option<&SimBalancer>,
) -> Result<(), CloudError> {
    let error =
        |kind, what: String| Err(CloudError::new(kind, what).about(format!("address {address}")));
    if !front_end.families.contains(&IpFamily::from_address(address)) {
        return error(ErrorKind::Invalid, "the address is of another family".to_owned());
    }
    if wants_floating(front_end) {
        let own = &front_end.owner;
        let is_of_another = |floating: &&Floating| {
            let Owner { cluster, namespace, name, .. } = &floating.owner;
            // A Service may ask for an address that an earlier Service of its name has kept.
            let is_next = floating.is_kept
                && (cluster, namespace, name) == (&own.cluster, &own.namespace, &own.name);
            !own.is(&floating.owner) && !is_next
        };
        if let Some(floating) = store.floating.get(&address).filter(is_of_another) {
            let what = format!("the floating address belongs to Service {}", floating.owner);
            return error(ErrorKind::Conflict, what);
        }
        return Ok(());
    }
    if now.is_some_and(|balancer| !balancer.addresses.contains(&address)) {
        return error(
            ErrorKind::Invalid,
            "the address of a load balancer cannot be changed".to_owned(),
        );
    }
    let id = now.map(|balancer| &balancer.id);
    if store.balancers.values().any(|it| Some(&it.id) != id && it.addresses.contains(&address)) {
        return error(ErrorKind::Conflict, "the address is in use".to_owned());
    }
    Ok(())
}
