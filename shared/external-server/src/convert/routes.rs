//! Routes. A wrong value from a controller is an error of the whole request.

use std::sync::Arc;

use ccm_cloud::{AppliedChange, CloudError, RouteChange, RouteTraits, WantedRoute};
use ccm_external::{
    MAX_BATCH,
    convert::{
        address_from_wire,
        front_end::{family_to_wire, owner_from_wire, parsed},
        malformed,
    },
    proto::{self, route_change::Change},
};

use super::node_from_wire;

pub fn traits_to_wire(traits: &RouteTraits) -> proto::RouteTraits {
    let RouteTraits {
        families,
        several_targets,
        replaces,
        compares_version,
        target_ids,
        target_addresses,
        max_batch,
    } = traits;
    proto::RouteTraits {
        families: families.iter().map(|family| family_to_wire(*family)).collect(),
        several_targets: Some(*several_targets),
        replaces: Some(*replaces),
        compares_version: Some(*compares_version),
        target_ids: Some(*target_ids),
        target_addresses: Some(*target_addresses),
        max_batch: u32::try_from((*max_batch).min(MAX_BATCH)).ok(),
    }
}

fn wanted_from_wire(wire: proto::WantedRoute) -> Result<WantedRoute, CloudError> {
    let proto::WantedRoute { owner, destination, node, addresses } = wire;
    // An invalid address is useless to the provider, so it is omitted.
    let addresses = addresses.iter().filter_map(|address| address_from_wire(address).ok());
    Ok(WantedRoute {
        owner: owner_from_wire(owner)?,
        destination: parsed("the destination", &destination.unwrap_or_default())?,
        node: node_from_wire(node.unwrap_or_default()),
        addresses: addresses.collect(),
    })
}

pub fn change_from_wire(wire: proto::RouteChange) -> Result<RouteChange, CloudError> {
    match wire.change {
        Some(Change::Create(new)) => wanted_from_wire(new).map(Arc::new).map(RouteChange::Create),
        Some(Change::Replace(proto::RouteReplacement { old, new })) => Ok(RouteChange::Replace {
            old: Box::new(old.unwrap_or_default().try_into()?),
            new: Arc::new(wanted_from_wire(new.unwrap_or_default())?),
        }),
        Some(Change::Delete(old)) => Ok(RouteChange::Delete(Box::new(old.try_into()?))),
        None => Err(malformed("a change of a route is of an unknown kind")),
    }
}

pub fn applied_to_wire(applied: &AppliedChange) -> proto::AppliedRoute {
    let AppliedChange { route, version } = applied;
    proto::AppliedRoute { route: route.as_ref().map(Into::into), version: version.clone() }
}
