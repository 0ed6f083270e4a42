//! The networks of the cluster, from the flags: pure. Routes and node IPAM read them alike.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | flags to networks and block sizes |
//! | `max_pod_cidr` | how wide pod CIDRs may be that this program has not assigned |

mod config;
mod max_pod_cidr;

use ccm_cloud::IpFamily;
use ipnet::IpNet;

pub use self::{
    config::{AllocatorType, BlockSizes, ClusterRange, Config, Flags, Remark, cluster_networks},
    max_pod_cidr::MaxPodCidr,
};

/// Returns a network as Kubernetes reads it: one of IPv4 that is written as IPv6
/// (`::ffff:10.244.1.0/120`) is IPv4. `None` for any other text.
pub fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok()?;
    let IpNet::V6(v6) = network else { return Some(network) };
    let length = v6.prefix_len().checked_sub(96);
    let v4 = v6.addr().to_ipv4_mapped().zip(length);
    v4.map_or(Some(network), |(address, length)| IpNet::new(address.into(), length).ok())
}

/// Returns the family of a network.
pub fn family(network: IpNet) -> IpFamily {
    IpFamily::from_address(network.addr())
}

/// Returns true if two networks have a common address.
pub(crate) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Returns true if the network lies inside one of the cluster CIDRs, or is one.
pub fn is_inside(cidr: IpNet, cluster_cidrs: &[IpNet]) -> bool {
    cluster_cidrs.iter().any(|cluster| cluster.contains(&cidr))
}

/// Returns networks as one text.
pub(crate) fn join(networks: &[IpNet]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_kubernetes_reads_them() {
        for (text, expect) in [
            ("10.244.1.7/24", Some("10.244.1.7/24")),
            ("::ffff:10.244.1.7/120", Some("10.244.1.7/24")),
            ("::ffff:0.0.0.0/96", Some("0.0.0.0/0")),
            // This is wider than all of IPv4.
            ("::ffff:0:0/95", Some("::ffff:0.0.0.0/95")),
            ("fd00::/64", Some("fd00::/64")),
            ("10.244.1.0", None),
            (" 10.244.1.0/24", None),
            ("10.244.1.0/24 ", None),
            ("10.244.1.0/+24", None),
            ("10.244.1.0/33", None),
            ("", None),
        ] {
            let read = network(text).map(|network| network.to_string());
            assert_eq!(read.as_deref(), expect, "{text:?}");
        }
    }
}
