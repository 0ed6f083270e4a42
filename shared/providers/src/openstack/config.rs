//! What the settings say about instances.

use ipnet::IpNet;

/// The settings.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The region.
    pub region: Option<String>,
    /// Whether provider IDs name the region.
    pub regional_ids: bool,
    /// Which addresses nodes show.
    pub networking: Networking,
    /// Which labels nodes get.
    pub labels: Labels,
}

/// Which addresses nodes show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networking {
    /// Leave out IPv6.
    pub ipv6_disabled: bool,
    /// Networks, by name or ID, whose addresses are external.
    pub public_networks: Vec<String>,
    /// When not empty: the only networks, by name or ID, whose addresses are internal.
    pub internal_networks: Vec<String>,
    /// The order of addresses: those in the first network come first.
    pub sort_order: Vec<IpNet>,
}

/// Which labels nodes get.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// Keys of the server's metadata; with `*` at the end, beginnings of keys.
    pub metadata: Vec<String>,
    /// The ID of the hypervisor.
    pub host_id: bool,
    /// The ID of the flavor.
    pub flavor_id: bool,
}
