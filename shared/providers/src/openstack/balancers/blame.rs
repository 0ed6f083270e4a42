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
    let Some(Given { value, source }) = named.or_else(|| of_place().filter(|_| is_full)) else {
        return error;
    };
    let right = match (is_full, error.kind) {
        (true, _) => "choose one with free addresses",
        (false, ErrorKind::NotFound | ErrorKind::Invalid) => {
            "must be the ID of one that this project may use"
        }
        (false, _) => return error,
    };
    // What an annotation names does not come into being: the Service is to be changed.
    let is_final = error.kind == ErrorKind::NotFound && source.starts_with("annotation");
    let kind = if is_final { ErrorKind::Invalid } else { error.kind };
    let message = format!("{source}: {value}: {right}: {}", error.message);
    CloudError { kind, message, subject: Some(source.clone()), ..error }
}
