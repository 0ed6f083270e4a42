//! The provider `openstack` against real OpenStack services.
//!
//! [`services`] starts Keystone, Nova, Neutron and Octavia by the scripts of `tests/openstack`.
//! [`proxy`] is in front of each service, counts requests and injects faults. [`admin`] acts as a
//! cloud's user and operator. [`many_routes`] and [`many_balancers`] count the cost of many routes
//! and load balancers, for scenarios and benchmarks. [`scenarios`] holds the scenarios, and a
//! [`rig`] is the fixture of one scenario; [`states`] takes a Service through states.

use std::fmt;

pub mod admin;
pub mod balancing;
pub mod http;
pub mod many_balancers;
pub mod many_routes;
pub mod proxy;
pub mod rig;
pub mod scenarios;
pub mod services;
pub mod states;

/// A service that the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone: authentication, and the service catalog.
    Identity,
    /// Nova: servers and flavors.
    Compute,
    /// Neutron: ports, networks, floating IPs.
    Network,
    /// Octavia: load balancers.
    LoadBalancer,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Compute, Self::Network, Self::LoadBalancer];

    /// Returns its type in Keystone's catalog.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
        }
    }

    /// Returns the port on which `tests/openstack/up` serves it, the usual one.
    pub const fn port(self) -> u16 {
        match self {
            Self::Identity => 5000,
            Self::Compute => 8774,
            Self::Network => 9696,
            Self::LoadBalancer => 9876,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
