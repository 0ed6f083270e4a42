//! The list of programs: the only place, besides its own crate, where a new controller is
//! added.
//!
//! It determines the identities, the names for `--controllers`, the siblings' flags that are
//! accepted without effect, and the programs that the tests start, compare and print.

use ccm_settings::Foreign;

use crate::identity::{Controller, Identity};

/// A program of this repository.
#[derive(Clone, Copy, Debug)]
pub struct ListedProgram {
    /// The program's identity.
    pub identity: Identity,
    /// Further controllers of cloud-controller-manager that it runs besides its identity's.
    also: &'static [Controller],
    /// Its own flags, which its siblings accept with a warning, because a manifest of
    /// cloud-controller-manager may contain them.
    flags: &'static [Foreign],
}

impl ListedProgram {
    /// Returns true if its siblings know flags of its own.
    pub fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }

    /// Returns all its controllers.
    fn controllers(&self) -> impl Iterator<Item = Controller> + use<> {
        std::iter::once(self.identity.as_controller()).chain(self.also.iter().copied())
    }
}

/// Flags of a program.
macro_rules! flags {
    ($binary:literal: $($kind:ident $flag:literal),*) => {
        &[$(Foreign::$kind($flag, concat!("it belongs to ", $binary))),*]
    };
}

/// Initialises nodes and keeps them in sync with their instances.
pub const NODE_CCM: Identity = Identity {
    binary: "node-ccm",
    controller: "cloud-node-controller",
    alias: "cloud-node",
    port: 10258,
    event_component: "cloud-node-controller",
};

/// Deletes nodes whose instances are gone.
pub const LIFECYCLE_CCM: Identity = Identity {
    binary: "lifecycle-ccm",
    controller: "cloud-node-lifecycle-controller",
    alias: "cloud-node-lifecycle",
    port: 10288,
    event_component: "cloud-node-lifecycle-controller",
};

/// Gives Services of type LoadBalancer their load balancers.
pub const SERVICE_CCM: Identity = Identity {
    binary: "service-ccm",
    controller: "service-lb-controller",
    alias: "service",
    port: 10268,
    event_component: "service-controller",
};

/// Gives each node the routes of its pod CIDRs.
pub const ROUTE_CCM: Identity = Identity {
    binary: "route-ccm",
    controller: "node-route-controller",
    alias: "route",
    port: 10278,
    event_component: "route_controller",
};

/// Gives each node its pod CIDRs; a part of route-ccm.
pub const NODE_IPAM: Controller = Controller { name: "node-ipam-controller", alias: "nodeipam" };

/// All programs.
pub const ALL: &[ListedProgram] = &[
    ListedProgram {
        identity: NODE_CCM,
        also: &[],
        flags: flags!("node-ccm": value "concurrent-node-syncs",
            value "concurrent-node-status-updates", value "node-status-update-frequency"),
    },
    ListedProgram {
        identity: LIFECYCLE_CCM,
        also: &[],
        flags: flags!("lifecycle-ccm": value "node-monitor-period"),
    },
    ListedProgram {
        identity: SERVICE_CCM,
        also: &[],
        flags: flags!("service-ccm": value "concurrent-service-syncs"),
    },
    ListedProgram {
        identity: ROUTE_CCM,
        also: &[NODE_IPAM],
        flags: flags!("route-ccm": switch "configure-cloud-routes", value "cluster-cidr",
            value "route-reconciliation-period", switch "allocate-node-cidrs",
            value "cidr-allocator-type", value "service-cluster-ip-range",
            value "node-cidr-mask-size", value "node-cidr-mask-size-ipv4",
            value "node-cidr-mask-size-ipv6"),
    },
];

/// Returns the programs, in the order of the list.
pub fn shipped() -> impl Iterator<Item = Identity> + Clone {
    ALL.iter().map(|listing| listing.identity)
}

/// Returns the program of this name.
pub fn named(binary: &str) -> Option<Identity> {
    shipped().find(|identity| identity.binary == binary)
}

/// Returns the controllers of cloud-controller-manager.
pub(crate) fn controllers() -> impl Iterator<Item = Controller> {
    ALL.iter().flat_map(ListedProgram::controllers)
}

/// Returns all controllers of a program.
pub(crate) fn controllers_of(identity: &Identity) -> impl Iterator<Item = Controller> + use<> {
    let listing = ALL.iter().find(|listing| listing.identity == *identity);
    let also = listing.map_or(&[][..], |listing| listing.also);
    std::iter::once(identity.as_controller()).chain(also.iter().copied())
}

/// Returns the flags of all programs that a sibling accepts without effect.
pub(crate) fn flags() -> impl Iterator<Item = &'static Foreign> {
    ALL.iter().flat_map(|listing| listing.flags)
}
