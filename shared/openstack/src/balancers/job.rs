//! The configuration that a Service asks for by its annotations and the options. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_cloud::{CloudError, ErrorKind, FrontEnd, IpFamily, Protocol, Wanted};

use super::{
    Context,
    annotations::{self, Given, Settings},
    features::Features,
};
use crate::config::unmanaged;

/// The reason of a note about an address family that a load balancer does not have.
pub const SINGLE_STACK: &str = "LoadBalancerSingleStack";

/// A wanted load balancer, as its annotations and the options say.
pub struct Job<'a> {
    pub cx: Context<'a>,
    pub wanted: &'a Wanted,
    pub settings: Settings,
    pub features: Features,
    /// True if it is the load balancer's turn to get health monitors by `local-monitor: all`.
    pub adds_monitors: bool,
}

/// Returns the error about a setting of this subject that cannot be had.
pub fn invalid(subject: impl Into<String>, what: impl Into<String>) -> CloudError {
    CloudError::new(ErrorKind::Invalid, what).about(subject)
}

/// Refuses what no load balancer of this Octavia can be.
fn check(wanted: &Wanted, features: Features) -> Result<(), CloudError> {
    let (front_end, traits) = (&wanted.front_end, features.traits());
    if front_end.ports.is_empty() {
        return Err(invalid("ports", "a load balancer needs at least one port"));
    }
    let mut seen = BTreeSet::new();
    for port in &front_end.ports {
        let subject = format!("{}/{}", port.port, port.protocol);
        if !traits.protocols.contains(&port.protocol) {
            let what = match port.protocol {
                Protocol::Sctp => "SCTP needs version 2.23 of Octavia's API",
                _ => "Octavia does not offer this protocol",
            };
            return Err(invalid(subject, what));
        }
        if !seen.insert((port.protocol, port.port)) {
            return Err(invalid(subject, "the port is listed twice"));
        }
    }
    let first = front_end.families.first().copied().unwrap_or(IpFamily::V4);
    if let Some(address) = front_end.address.filter(|ip| IpFamily::from_address(*ip) != first) {
        let what = format!("spec.loadBalancerIP: {address} is not {first}, as the Service is");
        return Err(invalid(format!("address {address}"), what));
    }
    let foreign = front_end.settings.keys().find(|key| !traits.passes(key));
    if let Some(key) = foreign {
        let what = format!("annotation {key} is not supported by the Octavia provider");
        return Err(invalid(format!("annotation {key}"), what));
    }
    Ok(())
}

impl<'a> Job<'a> {
    /// Reads what an item asks for. Fails with [`ErrorKind::Invalid`] if that cannot be.
    pub fn read(
        cx: Context<'a>,
        wanted: &'a Wanted,
        features: Features,
    ) -> Result<Self, CloudError> {
        check(wanted, features)?;
        let FrontEnd { settings, traffic, .. } = &*wanted.front_end;
        let settings = annotations::read(settings, &cx.config, *traffic)?;
        Ok(Self { cx, wanted, settings, features, adds_monitors: false })
    }

    /// Returns the wished virtual address itself, if it can be chosen.
    pub fn own_address(&self, family: IpFamily) -> Option<IpAddr> {
        let is_published = self.settings.internal || family == IpFamily::V6;
        self.wanted.front_end.address.filter(|_| is_published)
    }
}

/// Refuses a new floating IP if its choice depends on something that is not managed yet.
pub fn check_floating(settings: &Settings) -> Result<(), CloudError> {
    match settings.networks.floating_patterns.first() {
        Some(Given { source, .. }) => {
            Err(invalid(source.to_string(), format!("{source}: {}", unmanaged::PATTERNS)))
        }
        None => Ok(()),
    }
}
