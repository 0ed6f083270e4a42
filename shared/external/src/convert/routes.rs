//! Converts routes and their targets.
//!
//! The routes of a provider's answer are read one by one: a wrong value is an error of that route
//! alone. A wrong value from a controller is an error of the whole request.

use std::{borrow::Cow, fmt::Display};

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, AppliedChange, CloudError, ProofMethod, ProviderId, Route, RouteChange,
    RouteTarget, RouteTraits, WantedRoute,
};
use ipnet::IpNet;

use super::{
    absence_from_wire, address_to_wire,
    front_end::{family_from_wire, owner_from_wire, owner_to_wire, parsed},
    load_balancers::{line, version},
    malformed,
};
use crate::{
    MAX_BATCH,
    proto::{self, route_change::Change, route_target::Target},
};

pub fn traits_from_wire(wire: Option<proto::RouteTraits>) -> RouteTraits {
    let proto::RouteTraits {
        families,
        several_targets,
        replaces,
        compares_version,
        target_ids,
        target_addresses,
        max_batch,
    } = wire.unwrap_or_default();
    let families = match families.as_slice() {
        [] => RouteTraits::default().families,
        // A family unknown to this version cannot be used.
        some => some.iter().filter_map(|family| family_from_wire(*family).ok()).collect(),
    };
    let max_batch = max_batch.and_then(|most| usize::try_from(most).ok()).unwrap_or(1);
    RouteTraits {
        families,
        several_targets: several_targets.unwrap_or(false),
        replaces: replaces.unwrap_or(false),
        compares_version: compares_version.unwrap_or(false),
        target_ids: target_ids.unwrap_or(true),
        target_addresses: target_addresses.unwrap_or(false),
        max_batch: max_batch.clamp(1, MAX_BATCH),
    }
}

/// Returns a text that is sent back as it came, so it may not be cut.
fn whole(what: &str, text: String) -> Result<String, CloudError> {
    if one_line(&text, LONGEST_LINE) == text {
        return Ok(text);
    }
    let wrong = format!("{what} {text:?} is not one line of at most {LONGEST_LINE} characters");
    Err(malformed(wrong))
}

pub fn target_to_wire(target: &RouteTarget) -> proto::RouteTarget {
    proto::RouteTarget {
        target: Some(match target {
            RouteTarget::Address(address) => Target::Address(address.to_string()),
            RouteTarget::Instance(id) => Target::Instance(id.as_str().to_owned()),
            RouteTarget::Node(name) => Target::Node(name.clone()),
            RouteTarget::Blackhole(name) => Target::Blackhole(name.clone()),
        }),
    }
}

/// Returns a target. One of a kind that this version does not know is an error: without a target, a
/// route would seem to drop packets.
pub fn target_from_wire(wire: proto::RouteTarget) -> Result<RouteTarget, CloudError> {
    match wire.target {
        Some(Target::Address(text)) => parsed("the target", &text).map(RouteTarget::Address),
        Some(Target::Instance(text)) => match ProviderId::parse(&text) {
            Ok(id) => Ok(RouteTarget::Instance(id)),
            Err(error) => Err(malformed(error.to_string())),
        },
        Some(Target::Node(name)) if !name.is_empty() => {
            whole("the name of the target", name).map(RouteTarget::Node)
        }
        Some(Target::Blackhole(name)) if !name.is_empty() => {
            whole("the name of the target", name).map(RouteTarget::Blackhole)
        }
        Some(Target::Node(_) | Target::Blackhole(_)) => {
            Err(malformed("the name of the target is empty"))
        }
        None => Err(malformed("its target is of an unknown kind")),
    }
}

/// Returns the text that identifies a target, with its kind.
pub fn target_key(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Address(address) => format!("address {address}"),
        RouteTarget::Instance(id) => format!("instance {id}"),
        RouteTarget::Node(name) => format!("node {name}"),
        RouteTarget::Blackhole(name) => format!("blackhole {name}"),
    }
}

/// Returns the text that identifies the target of an answer.
pub fn answered_target(wire: Option<&proto::RouteTarget>) -> Cow<'static, str> {
    let target = wire.cloned().map(target_from_wire);
    target.and_then(Result::ok).map_or("no target".into(), |target| target_key(&target).into())
}

/// Returns the key of a route: its destination without host bits. A text that is not a network is
/// its own key.
pub fn answered_destination(text: &str) -> Cow<'_, str> {
    let network = text.parse().map(|network: IpNet| network.trunc().to_string());
    network.map_or(text.into(), Into::into)
}

impl From<&Route> for proto::Route {
    fn from(route: &Route) -> Self {
        let Route { id, destination, target, owner, defect } = route;
        Self {
            id: id.clone(),
            destination: Some(destination.to_string()),
            target: target.as_ref().map(target_to_wire),
            owner: owner.as_ref().map(owner_to_wire),
            defect: defect.clone(),
        }
    }
}

impl TryFrom<proto::Route> for Route {
    type Error = CloudError;

    fn try_from(wire: proto::Route) -> Result<Self, CloudError> {
        let proto::Route { id, destination, target, owner, defect } = wire;
        let text = destination.unwrap_or_default();
        let about = |what: &dyn Display| malformed(format!("route to {text:?}: {what}"));
        let network = text.parse();
        let spelled = |error: CloudError| about(&error.message);
        Ok(Self {
            id: id
                .filter(|id| !id.is_empty())
                .map(|id| whole("the ID", id))
                .transpose()
                .map_err(spelled)?,
            destination: network.map_err(|_| about(&"its destination is not a network"))?,
            target: target.map(target_from_wire).transpose().map_err(spelled)?,
            // Only a complete record makes a route an owner's.
            owner: owner.map(|owner| owner_from_wire(Some(owner))).transpose().map_err(spelled)?,
            defect: line(defect),
        })
    }
}

fn wanted_to_wire(wanted: &WantedRoute) -> proto::WantedRoute {
    let WantedRoute { owner, destination, node, addresses } = wanted;
    proto::WantedRoute {
        owner: Some(owner_to_wire(owner)),
        destination: Some(destination.to_string()),
        node: Some(node.into()),
        addresses: addresses.iter().map(address_to_wire).collect(),
    }
}

pub fn change_to_wire(change: &RouteChange) -> proto::RouteChange {
    let change = match change {
        RouteChange::Create(new) => Change::Create(wanted_to_wire(new)),
        RouteChange::Replace { old, new } => Change::Replace(proto::RouteReplacement {
            old: Some((&**old).into()),
            new: Some(wanted_to_wire(new)),
        }),
        RouteChange::Delete(old) => Change::Delete((&**old).into()),
    };
    proto::RouteChange { change: Some(change) }
}

pub fn applied_from_wire(wire: proto::AppliedRoute) -> Result<AppliedChange, CloudError> {
    let proto::AppliedRoute { route, version: after } = wire;
    Ok(AppliedChange { route: route.map(Route::try_from).transpose()?, version: version(after) })
}

/// Checks that an answer is about this change, and what can follow from it.
pub fn fits(change: &RouteChange, applied: AppliedChange) -> Result<AppliedChange, CloudError> {
    let destination = change.destination();
    let wrong = |what: &str| Err(malformed(format!("route to {destination}: {what}")));
    match (change, &applied.route) {
        (RouteChange::Delete(_), None) => Ok(applied),
        (RouteChange::Delete(_), Some(_)) => wrong("the provider shows a route after its deletion"),
        (_, Some(route)) if route.destination.trunc() != destination => {
            wrong(&format!("the provider shows a route to {}", route.destination))
        }
        (_, Some(Route { target: Some(_), .. })) => Ok(applied),
        _ => wrong("the provider shows no route, or one without a target, after its creation"),
    }
}

/// Returns the proof that a target does not exist. Routes are deleted because of it.
pub fn gone_from_wire(
    target: &RouteTarget,
    wire: proto::Absence,
) -> Result<AbsenceProof, CloudError> {
    let proof = absence_from_wire(wire)?;
    match (proof.method, target) {
        (ProofMethod::ById, _) => Ok(proof),
        (ProofMethod::ByName, RouteTarget::Address(_) | RouteTarget::Node(_)) => Ok(proof),
        (ProofMethod::ProvidersWord, RouteTarget::Node(_) | RouteTarget::Blackhole(_)) => Ok(proof),
        (method, _) => Err(malformed(format!(
            "the provider says that target {target} is gone by {method:?}, which is not a proof"
        ))),
    }
}
