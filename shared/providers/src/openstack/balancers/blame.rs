//! Which annotation or option an error of the cloud is about. Pure.

use std::net::IpAddr;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};

use super::{
    super::text::MAX_VALUE,
    annotations::{FloatingNetwork, Given, PREFIX, Settings},
};

/// How much of a value an error must repeat: messages are cut.
const COMPARED: usize = 60;

/// What was asked of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    LoadBalancer,
    FloatingIp,
}

/// The words of Neutron for a subnet or network without free addresses.
const FULL: [&str; 2] = ["No more IP addresses", "IpAddressGenerationFailure"];
/// Octavia's words for a time between two checks of UDP members that is too short.
const SHORT_DELAY: &str = "The request delay value ";
/// Octavia's words for an unknown flavor and zone. It does not repeat the value.
const NO_FLAVOR: &str = "Invalid flavor_id";
const NO_ZONE: &str = "Invalid availability zone";

/// Whether the cloud has refused this value.
pub(super) fn is_about(error: &CloudError, given: &Given) -> bool {
    let is_refusal = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid);
    is_refusal && !error.maybe_done && names(error, &given.value)
}

/// Whether an error repeats a value, which it does in one line and perhaps cut.
fn names(error: &CloudError, value: &str) -> bool {
    let line: String = one_line(value, COMPARED + 1).chars().take(COMPARED).collect();
    error.message.contains(&line)
}

/// An address that the project does not have and cannot create.
pub(super) fn wished(error: CloudError, address: &str) -> CloudError {
    let is_refusal =
        matches!(error.kind, ErrorKind::Forbidden | ErrorKind::Conflict | ErrorKind::Invalid);
    if !is_refusal {
        return error;
    }
    let message = format!(
        "spec.loadBalancerIP: the project has no floating IP {address} and cannot create it: \
         choose one that it has, or none: {}",
        error.message
    );
    CloudError { message, kind: ErrorKind::Conflict, ..error }.about(format!("address {address}"))
}

/// A floating IP of the project that the load balancer cannot have.
pub(super) fn unattached(error: CloudError, address: IpAddr) -> CloudError {
    let message = format!(
        "spec.loadBalancerIP: floating IP {address} cannot be attached to the load balancer: {}",
        error.message
    );
    let is_refusal =
        matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden | ErrorKind::Invalid);
    let kind = if is_refusal { ErrorKind::Conflict } else { error.kind };
    CloudError { message, kind, ..error }.about(format!("address {address}"))
}

/// The error with the source of the value that it names.
pub(super) fn blamed(error: CloudError, about: About, settings: &Settings) -> CloudError {
    if error.message.contains(SHORT_DELAY) {
        let source =
            format!("annotation {PREFIX}health-monitor-delay, or [LoadBalancer] monitor-delay");
        let message = format!("{source}: too short for members of UDP ports: {}", error.message);
        return CloudError { message, subject: Some(source), ..error };
    }
    let networks = &settings.networks;
    let floating = match &networks.floating {
        FloatingNetwork::Named(given) => Some(given),
        FloatingNetwork::Found | FloatingNetwork::Refused(_) => None,
    };
    let places = [networks.port.as_ref(), networks.subnet.as_ref(), networks.network.as_ref()];
    let external = [networks.floating_subnet.as_ref(), floating];
    let others = [
        networks.member_subnet.as_ref(),
        settings.flavor.as_ref(),
        settings.zone.as_ref(),
        settings.tls.as_ref(),
        Some(&settings.method),
    ];
    let is_named = |given: &&Given| names(&error, &given.value);
    let is_full = FULL.iter().any(|words| error.message.contains(words));
    let of_place = || match about {
        About::LoadBalancer => places.into_iter().flatten().next(),
        About::FloatingIp => external.into_iter().flatten().next(),
    };
    let named = places.into_iter().chain(external).chain(others).flatten().find(is_named);
    let unknown = [(NO_FLAVOR, &settings.flavor), (NO_ZONE, &settings.zone)];
    let unknown = unknown.into_iter().find(|(words, _)| error.message.contains(words));
    let named = named.or_else(|| unknown.and_then(|(_, given)| given.as_ref()));
    let Some(Given { value, source }) = named.or_else(|| of_place().filter(|_| is_full)) else {
        return error;
    };
    let right = match (is_full, error.kind) {
        (true, _) => "choose one with free addresses",
        (false, ErrorKind::NotFound | ErrorKind::Invalid) => {
            "must be one that this project may use"
        }
        (false, _) => return error,
    };
    // What an annotation names does not come into being: the Service is to be changed.
    let is_final = error.kind == ErrorKind::NotFound && source.starts_with("annotation");
    let kind = if is_final { ErrorKind::Invalid } else { error.kind };
    let value = one_line(value, MAX_VALUE);
    let message = format!("{source}: {value}: {right}: {}", error.message);
    CloudError { kind, message, subject: Some(source.clone()), ..error }
}
