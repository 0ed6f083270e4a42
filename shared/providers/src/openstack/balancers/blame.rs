//! Which annotation or option an error of the cloud is about. Pure.

use ccm_cloud::{CloudError, ErrorKind};

use super::annotations::{FloatingNetwork, Given, Settings};

/// What was asked of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    LoadBalancer,
    FloatingIp,
}

/// The words of Neutron for a subnet or network without free addresses.
const FULL: [&str; 2] = ["No more IP addresses", "IpAddressGenerationFailure"];
/// Octavia's words for an unknown flavor and zone. It does not repeat the value.
const NO_FLAVOR: &str = "Invalid flavor_id";
const NO_ZONE: &str = "Invalid availability zone";

/// The error with the source of the value that it names.
pub(super) fn blamed(error: CloudError, about: About, settings: &Settings) -> CloudError {
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
    let is_named = |given: &&Given| error.message.contains(&*given.value);
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
    let message = format!("{source}: {value}: {right}: {}", error.message);
    CloudError { kind, message, subject: Some(source.clone()), ..error }
}
