//! Finds the annotation or option that an error of the cloud is about. Pure.

use std::net::IpAddr;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_openstack_client::text::MAX_VALUE;

use super::annotations::{self, FloatingNetwork, Given, PREFIX, Settings};

/// The number of characters of a service's text that are compared: services cut long messages.
const COMPARED: usize = 100;

/// The request to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    LoadBalancer,
    FloatingIp,
}

/// The words of Neutron for a subnet or network without free addresses.
const FULL: [&str; 2] = ["No more IP addresses", "IpAddressGenerationFailure"];
/// Octavia's words for a too short time between two checks of UDP members.
const SHORT_DELAY: &str = "The request delay value ";
/// Octavia's words for an unknown flavor or zone. It does not repeat the value.
const NO_FLAVOR: &str = "Invalid flavor_id";
const NO_ZONE: &str = "Invalid availability zone";
/// The fields of flavor and zone.
const FLAVOR: &str = "flavor_id";
const ZONE: &str = "availability_zone";
/// Neutron's text if no router connects an external network with the subnet of a port.
const UNREACHABLE: [&str; 2] = ["External network ", " is not reachable from subnet "];
/// The start of the subject of an error about a requested address.
const ADDRESS: &str = "address ";

/// A value in a request. Services name it by the kind of object, or by the field, when they do not
/// find or do not accept it.
#[derive(Clone, Copy)]
struct Sent<'a> {
    given: &'a Given,
    kind: &'static str,
    field: &'static str,
}

/// Returns true if the cloud has refused this subnet of members.
pub fn refuses_subnet(error: &CloudError, given: &Given) -> bool {
    let is_refusal = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid);
    let sent = Sent { given, kind: "Subnet", field: "subnet_id" };
    is_refusal && !error.maybe_done && refuses(&error.message, sent)
}

/// Returns true if a service says that the object does not exist, or that it cannot be used in this
/// field. The service repeats the value in one line and may cut it.
fn refuses(message: &str, Sent { given, kind, field }: Sent<'_>) -> bool {
    let ends = ["not found", "could not be found", "is not a valid external network"];
    let is_object = ends.iter().any(|end| {
        let line = one_line(&format!("{kind} {} {end}", given.value), COMPARED + 1);
        message.contains(&line.chars().take(COMPARED).collect::<String>())
    });
    let is_field = [format!("Invalid input for {field}."), format!("field/attribute {field}.")];
    is_object || is_field.iter().any(|words| message.contains(words))
}

/// Parses the external network and the subnet that no router connects.
fn unreachable(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once(UNREACHABLE[0])?;
    let (network, rest) = rest.split_once(UNREACHABLE[1])?;
    let subnet = rest.split(['.', ' ']).next()?;
    (!network.contains(' ') && !subnet.is_empty()).then_some((network, subnet))
}

/// Returns an address that the project does not have and cannot create.
pub fn not_available(error: CloudError, address: &str) -> CloudError {
    let is_refusal =
        matches!(error.kind, ErrorKind::Forbidden | ErrorKind::Conflict | ErrorKind::Invalid);
    if !is_refusal {
        return error;
    }
    let message = format!(
        "spec.loadBalancerIP: the project has no floating IP {address} and cannot create it: \
         choose one that it has, or leave it empty: {}",
        error.message
    );
    CloudError { message, kind: ErrorKind::Conflict, ..error }.about(format!("address {address}"))
}

/// Returns a floating IP of the project that the load balancer cannot have.
pub fn not_attached(error: CloudError, address: IpAddr) -> CloudError {
    let what = match unreachable(&error.message) {
        Some((network, subnet)) => format!("{}choose another address", no_router(network, subnet)),
        None => "it is refused".to_owned(),
    };
    let message = format!(
        "spec.loadBalancerIP: floating IP {address} cannot be attached to the load balancer: {what}: \
         {}",
        error.message
    );
    let is_refusal =
        matches!(error.kind, ErrorKind::NotFound | ErrorKind::Forbidden | ErrorKind::Invalid);
    let kind = if is_refusal { ErrorKind::Conflict } else { error.kind };
    CloudError { message, kind, ..error }.about(format!("address {address}"))
}

/// Says which router is missing and how to help. The caller appends the last alternative.
fn no_router(network: &str, subnet: &str) -> String {
    format!(
        "no router connects subnet {subnet} with external network {network}: add the subnet to a \
         router whose gateway is {network}, make the Service internal ({}=true), or ",
        annotations::INTERNAL
    )
}

/// Adds to the error the annotation or option whose value the service refuses. A value that
/// the message only mentions is not the cause.
pub fn add_source(error: CloudError, about: About, settings: &Settings) -> CloudError {
    if error.subject.as_ref().is_some_and(|subject| subject.starts_with(ADDRESS)) {
        // The error already names the requested address as the cause.
        return error;
    }
    if error.message.contains(SHORT_DELAY) {
        let source =
            format!("annotation {PREFIX}health-monitor-delay, or [LoadBalancer] monitor-delay");
        let message = format!("{source}: too short for members of UDP ports: {}", error.message);
        return CloudError { message, subject: Some(source), ..error };
    }
    if let Some((network, subnet)) = unreachable(&error.message) {
        // A user can add the router without a change of the Service, so this is not final.
        let (what, subject) = (no_router(network, subnet), format!("external network {network}"));
        let message = format!("{what}name another floating-network-id: {}", error.message);
        let error = CloudError { message, kind: ErrorKind::Conflict, ..error };
        return error.about(subject);
    }
    let sent = sent(settings, about);
    let is_full = FULL.iter().any(|words| error.message.contains(words));
    let has_no_room = |one: &&Sent<'_>| {
        let id = one_line(&one.given.value, COMPARED);
        error.message.contains(&format!("addresses available on network {id}"))
    };
    let is_cause = |one: &&Sent<'_>| match one.field {
        FLAVOR if error.message.contains(NO_FLAVOR) => true,
        ZONE if error.message.contains(NO_ZONE) => true,
        _ => refuses(&error.message, **one),
    };
    // The value decides on the network of an address.
    let is_place = |one: &&Sent<'_>| about == About::FloatingIp || one.field.starts_with("vip_");
    let found = match is_full {
        // Neutron names the network, but the request may name one of its subnets.
        true => sent.iter().find(has_no_room).or_else(|| sent.iter().find(is_place)),
        false => sent.iter().find(is_cause),
    };
    let Some(Sent { given: Given { value, source }, .. }) = found else { return error };
    let right = match (is_full, error.kind) {
        (true, _) => "choose one with free addresses",
        (false, ErrorKind::NotFound | ErrorKind::Invalid) => {
            "must be one that this project may use"
        }
        (false, _) => return error,
    };
    // An object that an annotation names will not appear later: the Service must be changed.
    let is_final = error.kind == ErrorKind::NotFound && source.is_annotation();
    let kind = if is_final { ErrorKind::Invalid } else { error.kind };
    let value = one_line(value, MAX_VALUE);
    let message = format!("{source}: {value}: {right}: {}", error.message);
    CloudError { kind, message, subject: Some(source.to_string()), ..error }
}

/// Returns the values from annotations and options that a request contains.
fn sent(settings: &Settings, about: About) -> Vec<Sent<'_>> {
    let networks = &settings.networks;
    let floating = match &networks.floating {
        FloatingNetwork::Named(given) => Some(given),
        FloatingNetwork::Found | FloatingNetwork::Refused(_) => None,
    };
    let all = match about {
        About::LoadBalancer => vec![
            (networks.port.as_ref(), "Port", "vip_port_id"),
            (networks.subnet.as_ref(), "Subnet", "vip_subnet_id"),
            (networks.network.as_ref(), "Network", "vip_network_id"),
            (networks.member_subnet.as_ref(), "Subnet", "subnet_id"),
            (settings.flavor.as_ref(), "Flavor", FLAVOR),
            (settings.zone.as_ref(), "Availability Zone", ZONE),
            (settings.tls.as_ref(), "TLS container", "default_tls_container_ref"),
            (Some(&settings.method), "Algorithm", "lb_algorithm"),
        ],
        About::FloatingIp => vec![
            (networks.floating_subnet.as_ref(), "Subnet", "subnet_id"),
            (floating, "Network", "floating_network_id"),
        ],
    };
    let sent = |(given, kind, field): (Option<_>, _, _)| Some(Sent { given: given?, kind, field });
    all.into_iter().filter_map(sent).collect()
}

#[cfg(test)]
mod tests;
