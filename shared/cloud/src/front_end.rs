//! The wanted state of a load balancer: a layer-4 front end, the members behind it, and how both
//! appear in the cloud.
//!
//! Nothing here is a Service. A Service is the first source of front ends; a Gateway's TCP
//! and UDP routes can be another one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::{Digest, NodeAddress, Owner, ProviderId};

/// A family of IP addresses.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
pub enum IpFamily {
    /// IPv4.
    #[serde(rename = "IPv4")]
    #[strum(serialize = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    #[strum(serialize = "IPv6")]
    V6,
}

impl IpFamily {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub fn from_address(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A transport protocol.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// One port of a front end. Protocol and port together are unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrontEndPort {
    /// Its name; empty if it has no name.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the load balancer.
    pub port: u16,
    /// The port of the members. A port without one has no members.
    pub member_port: Option<u16>,
    /// The protocol above the transport, as the user names it.
    pub app_protocol: Option<String>,
}

/// The members that get a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Any: each one forwards it.
    Cluster,
    /// Those with a local endpoint. They answer 200 to `GET /healthz` on this port.
    Local {
        /// The port of the health check.
        health_check_port: u16,
    },
}

/// The configuration of one load balancer, without its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontEnd {
    /// Its owner.
    pub owner: Owner,
    /// The digest of all fields below.
    pub digest: Digest,
    /// The families of its addresses, the preferred one first. More than one only if
    /// [`LoadBalancerTraits::dual_stack`](crate::LoadBalancerTraits::dual_stack) is set.
    pub families: Vec<IpFamily>,
    /// True if a load balancer without one of these families is useless (`ipFamilyPolicy:
    /// RequireDualStack`). Not in the digest: it does not change an existing load balancer.
    #[serde(default)]
    pub requires_families: bool,
    /// Its ports, sorted. At least one.
    pub ports: Vec<FrontEndPort>,
    /// The networks that may connect, sorted. Empty means all.
    pub source_ranges: Vec<IpNet>,
    /// The address that the user asks for.
    pub address: Option<IpAddr>,
    /// How long a client's connections go to the same member; `None` for no affinity.
    pub affinity: Option<Duration>,
    /// The members that get a connection.
    pub traffic: Traffic,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// The annotations that begin with one of
    /// [`LoadBalancerTraits::annotations`](crate::LoadBalancerTraits::annotations). An empty
    /// value differs from an absent one.
    pub settings: BTreeMap<String, String>,
    /// The Service as JSON (metadata, spec and `status.loadBalancer`), if
    /// [`LoadBalancerTraits::wants_service`](crate::LoadBalancerTraits::wants_service) is set. The
    /// digest covers its spec and its annotations.
    pub service: Option<Arc<str>>,
}

/// One node behind a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node's name. In an answer it is empty if the cloud does not know it.
    pub node: String,
    /// The provider ID of its instance.
    pub provider_id: Option<ProviderId>,
    /// Its addresses, those for connections first.
    pub addresses: Vec<NodeAddress>,
    /// The node's labels, if
    /// [`LoadBalancerTraits::member_labels`](crate::LoadBalancerTraits::member_labels) is set.
    pub labels: Arc<BTreeMap<String, String>>,
}

impl Member {
    /// Returns the member's address of this family: the first internal one, else the first external
    /// one.
    pub fn address(&self, family: IpFamily) -> Option<IpAddr> {
        use crate::AddressKind::{ExternalIp, InternalIp};
        let of_kind = |kind| {
            let mut same = self.addresses.iter().filter(move |address| address.kind == kind);
            same.find_map(|address| {
                let ip: IpAddr = address.address.parse().ok()?;
                (IpFamily::from_address(ip) == family && ip != IpAddr::V4(Ipv4Addr::UNSPECIFIED))
                    .then_some(ip)
            })
        };
        of_kind(InternalIp).or_else(|| of_kind(ExternalIp))
    }

    /// Returns true if `shown`, from the cloud or as sent to it, is this node unchanged. It
    /// compares one address per family, the one that a load balancer uses, although a node may have
    /// several. A part that `shown` lacks is not a difference: a cloud shows only the addresses
    /// that it uses, and not always the provider ID.
    pub fn is_shown_as(&self, shown: &Self) -> bool {
        let same_id = shown.provider_id.is_none() || shown.provider_id == self.provider_id;
        let is_same = |family| {
            let uses = shown.address(family);
            uses.is_none() || uses == self.address(family)
        };
        same_id && IpFamily::ALL.into_iter().all(is_same)
    }

    /// Returns true if this node has an address of a family that `other` lacks.
    pub fn has_more_families_than(&self, other: &Self) -> bool {
        let gains = |family| other.address(family).is_none() && self.address(family).is_some();
        IpFamily::ALL.into_iter().any(gains)
    }
}

/// Returns true if a cloud shows exactly these members, all unchanged. Both lists are sorted by
/// node.
pub fn are_shown_as<'a>(
    members: &[Member],
    shown: impl IntoIterator<Item = &'a Member, IntoIter: ExactSizeIterator>,
) -> bool {
    let shown = shown.into_iter();
    members.len() == shown.len()
        && members
            .iter()
            .zip(shown)
            .all(|(own, it)| own == it || own.node == it.node && own.is_shown_as(it))
}

/// A change of a load balancer's members, as the state after it.
///
/// A member that is named in neither list stays as it is, so that a controller with an incomplete
/// view of the nodes does not remove members by mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The members after the change: all members that the controller knows. A member that lacks
    /// what members need ([`LoadBalancerTraits`](crate::LoadBalancerTraits)) stays as it is. A
    /// member whose labels the provider does not select is removed.
    pub present: Arc<[Member]>,
    /// The members to remove. A provider never removes the last member of a load balancer.
    pub absent: Arc<[Member]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddressKind;

    fn member(id: Option<&str>, addresses: &[(AddressKind, &str)]) -> Member {
        Member {
            node: "a".to_owned(),
            provider_id: id.map(|id| ProviderId::parse(id).unwrap()),
            addresses: addresses.iter().map(|(kind, ip)| NodeAddress::new(*kind, *ip)).collect(),
            labels: Arc::default(),
        }
    }

    #[test]
    fn what_a_cloud_does_not_show_is_no_difference() {
        use AddressKind::{ExternalIp, Hostname, InternalIp};
        let node = member(
            Some("sim://1"),
            &[
                (Hostname, "a"),
                (ExternalIp, "192.0.2.1"),
                (InternalIp, "10.0.0.1"),
                (InternalIp, "10.0.0.2"),
                (ExternalIp, "2001:db8::1"),
            ],
        );
        for (id, addresses, expect) in [
            (None, &[][..], true),
            (None, &[(InternalIp, "10.0.0.1")], true),
            (Some("sim://1"), &[(InternalIp, "10.0.0.1"), (InternalIp, "2001:db8::1")], true),
            (Some("sim://2"), &[(InternalIp, "10.0.0.1")], false),
            (None, &[(InternalIp, "10.0.0.2")], false),
            (None, &[(ExternalIp, "192.0.2.1")], false),
            (None, &[(InternalIp, "nonsense"), (InternalIp, "0.0.0.0")], true),
            (None, &[(InternalIp, "fd00::1")], false),
        ] {
            assert_eq!(node.is_shown_as(&member(id, addresses)), expect, "{id:?} {addresses:?}");
        }
        assert!(node.is_shown_as(&node), "whatever addresses it has");
        let one = member(None, &[(InternalIp, "10.0.0.1")]);
        assert!(node.has_more_families_than(&one) && !one.has_more_families_than(&node));
    }
}
