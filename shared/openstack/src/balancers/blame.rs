//! Finds the annotation or option that an error of the cloud is about. Pure.

use std::net::IpAddr;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_openstack_client::text::MAX_VALUE;

use super::annotations::{self, FloatingNetwork, Given, PREFIX, Settings};

/// How many characters of a service's text are compared: services cut long messages.
const COMPARED: usize = 100;

/// The request to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
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
/// Neutron's text if no router connects an external network with the subnet of a port.
const UNREACHABLE: [&str; 2] = ["External network ", " is not reachable from subnet "];
/// The start of the subject of an error about a requested address.
const ADDRESS: &str = "address ";

/// The use of a value. Services name it by this when they do not find or do not accept a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Port,
    Network,
    Subnet,
    MemberSubnet,
    FloatingNetwork,
    FloatingSubnet,
    Flavor,
    Zone,
    Method,
    Tls,
}

impl Role {
    /// The kind of object in the services' messages, and the field in their requests.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Port => ("Port", "vip_port_id"),
            Self::Network => ("Network", "vip_network_id"),
            Self::Subnet => ("Subnet", "vip_subnet_id"),
            Self::MemberSubnet | Self::FloatingSubnet => ("Subnet", "subnet_id"),
            Self::FloatingNetwork => ("Network", "floating_network_id"),
            Self::Flavor => ("Flavor", "flavor_id"),
            Self::Zone => ("Availability Zone", "availability_zone"),
            Self::Method => ("Algorithm", "lb_algorithm"),
            Self::Tls => ("TLS container", "default_tls_container_ref"),
        }
    }

    /// Returns true if the value determines where an address comes from.
    const fn is_place(self) -> bool {
        let is_virtual = matches!(self, Self::Port | Self::Subnet | Self::Network);
        is_virtual || matches!(self, Self::FloatingSubnet | Self::FloatingNetwork)
    }

    /// Returns true if a request of this kind contains the value.
    const fn is_sent(self, about: About) -> bool {
        let is_floating = matches!(self, Self::FloatingNetwork | Self::FloatingSubnet);
        matches!(about, About::FloatingIp) == is_floating
    }
}

/// Returns true if the cloud has refused this subnet of members.
pub fn is_about(error: &CloudError, given: &Given) -> bool {
    let is_refusal = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid);
    is_refusal && !error.maybe_done && refuses(&error.message, Role::MemberSubnet, &given.value)
}

/// Returns true if a service says that the object does not exist, or that it cannot be used in this
/// role. The service repeats the value in one line and may cut it.
fn refuses(message: &str, role: Role, value: &str) -> bool {
    let (kind, field) = role.words();
    let ends = ["not found", "could not be found", "is not a valid external network"];
    let is_object = ends.iter().any(|end| {
        let line = one_line(&format!("{kind} {value} {end}"), COMPARED + 1);
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

/// An address that the project does not have and cannot create.
pub fn wished(error: CloudError, address: &str) -> CloudError {
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

/// A floating IP of the project that the load balancer cannot have.
pub fn unattached(error: CloudError, address: IpAddr) -> CloudError {
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

/// Adds to the error the annotation or option whose value the service refuses in its role. A value that
/// the message only mentions is not the cause.
pub fn blamed(error: CloudError, about: About, settings: &Settings) -> CloudError {
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
    let given = given(settings);
    let sent = given.iter().filter(|(role, _)| role.is_sent(about));
    let is_full = FULL.iter().any(|words| error.message.contains(words));
    let has_no_room = |(_, given): &&(Role, &Given)| {
        let id = one_line(&given.value, COMPARED);
        error.message.contains(&format!("addresses available on network {id}"))
    };
    let is_to_blame = |(role, given): &&(Role, &Given)| match role {
        Role::Flavor if error.message.contains(NO_FLAVOR) => true,
        Role::Zone if error.message.contains(NO_ZONE) => true,
        _ => refuses(&error.message, *role, &given.value),
    };
    let found = match is_full {
        // Neutron names the network, but the request may name one of its subnets.
        true => {
            let place = || sent.clone().find(|(role, _)| role.is_place());
            sent.clone().find(has_no_room).or_else(place)
        }
        false => sent.clone().find(is_to_blame),
    };
    let Some((_, Given { value, source })) = found else { return error };
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

/// Returns the values from annotations and options, with their roles.
fn given(settings: &Settings) -> Vec<(Role, &Given)> {
    let networks = &settings.networks;
    let floating = match &networks.floating {
        FloatingNetwork::Named(given) => Some(given),
        FloatingNetwork::Found | FloatingNetwork::Refused(_) => None,
    };
    let all = [
        (Role::Port, networks.port.as_ref()),
        (Role::Subnet, networks.subnet.as_ref()),
        (Role::Network, networks.network.as_ref()),
        (Role::FloatingSubnet, networks.floating_subnet.as_ref()),
        (Role::FloatingNetwork, floating),
        (Role::MemberSubnet, networks.member_subnet.as_ref()),
        (Role::Flavor, settings.flavor.as_ref()),
        (Role::Zone, settings.zone.as_ref()),
        (Role::Tls, settings.tls.as_ref()),
        (Role::Method, Some(&settings.method)),
    ];
    all.into_iter().filter_map(|(role, given)| Some((role, given?))).collect()
}

#[cfg(test)]
mod tests;
