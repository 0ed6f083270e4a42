//! The reason why a node does not get the route of a pod CIDR.

use std::fmt;

use ccm_cloud::{ClusterId, IpFamily, ProviderId, RouteTarget};
use ccm_objects::Shared;
use ipnet::IpNet;
use serde::Serialize;

/// The reason why a node does not get the route of a pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Problem {
    /// It is not a CIDR.
    Unreadable(Box<str>),
    /// It is not inside `--cluster-cidr`.
    Outside(IpNet),
    /// An older node has it, or a part of it.
    Overlaps {
        /// The pod CIDR.
        cidr: IpNet,
        /// The other node's pod CIDR.
        other: IpNet,
        /// The other node.
        node: Shared,
    },
    /// It is wider than a flag allows.
    TooWide {
        /// The pod CIDR.
        cidr: IpNet,
        /// The shortest prefix that the flag allows.
        most: u8,
        /// The flag, without dashes.
        flag: &'static str,
    },
    /// It is wider than the pod CIDRs of most nodes, and nobody has approved it.
    WiderThanMost {
        /// The pod CIDR.
        cidr: IpNet,
        /// The prefix length that is usual.
        usual: u8,
    },
    /// Another node has the provider ID or the address, and a better claim to it.
    SameTarget {
        /// The provider ID, or the address.
        target: RouteTarget,
        /// The other node.
        node: Shared,
    },
    /// The cloud has no routes of this family.
    Family(IpNet),
    /// The cloud needs the node's provider ID.
    NoProviderId,
    /// The cloud needs the node's provider ID, but the node has this text instead.
    UnreadableId(Shared),
    /// The cloud needs an address of the pod CIDR's family.
    NoAddress(IpNet),
    /// Its route exists, and was made under the UID of this cluster.
    Lent {
        /// The pod CIDR.
        cidr: IpNet,
        /// The cluster of that UID.
        cluster: ClusterId,
    },
}

impl Problem {
    /// Returns true if it is about this pod CIDR of its node, or about all of them.
    pub fn concerns(&self, destination: IpNet) -> bool {
        match self {
            Self::Unreadable(_) => false,
            Self::Outside(cidr) | Self::Family(cidr) | Self::NoAddress(cidr) => {
                *cidr == destination
            }
            Self::Overlaps { cidr, .. }
            | Self::TooWide { cidr, .. }
            | Self::WiderThanMost { cidr, .. }
            | Self::Lent { cidr, .. } => *cidr == destination,
            Self::SameTarget { target: RouteTarget::Address(address), .. } => {
                IpFamily::from_address(*address) == IpFamily::from_address(destination.addr())
            }
            Self::SameTarget { .. } | Self::NoProviderId | Self::UnreadableId(_) => true,
        }
    }

    /// Returns the problem in words.
    pub fn cause(&self) -> String {
        match self {
            Self::Unreadable(text) => {
                format!("spec.podCIDRs has {text:?}, which is not a CIDR such as 10.244.1.0/24")
            }
            Self::Outside(cidr) => {
                format!("pod CIDR {cidr} is not inside --cluster-cidr, so it does not get a route")
            }
            Self::Overlaps { cidr, other, node } => {
                let how = match cidr == other {
                    true => format!("also belongs to node {node}"),
                    false => format!("overlaps {other} of node {node}"),
                };
                format!("pod CIDR {cidr} {how}, which is older and gets the route")
            }
            Self::TooWide { cidr, most, flag } => {
                format!(
                    "pod CIDR {cidr} is wider than /{most} of --{flag}, so it does not get a route"
                )
            }
            Self::WiderThanMost { cidr, usual } => format!(
                "pod CIDR {cidr} is wider than on most nodes (/{usual}), so it does not get a route until a person approves it"
            ),
            Self::SameTarget { target, node } => {
                let is_address = matches!(target, RouteTarget::Address(_));
                let what = if is_address { "InternalIP" } else { "provider ID" };
                format!(
                    "it has the same {what} {target} as node {node}, which is initialised, ready or older, so it does not get a route to that"
                )
            }
            Self::Family(cidr) => {
                let family = IpFamily::from_address(cidr.addr());
                format!("the cloud has no {family} routes, so pod CIDR {cidr} does not get a route")
            }
            Self::NoProviderId => {
                "the node has no provider ID yet, which its routes need".to_owned()
            }
            Self::UnreadableId(text) => {
                let begin: String = text.chars().take(LONGEST_ID).collect();
                format!("provider ID {begin:?} does not have {}", ProviderId::FORM)
            }
            Self::Lent { cidr, cluster: ClusterId { name, uid } } => format!(
                "the route of {cidr} was made by cluster {name} (UID {uid}): it serves this node and stays, but would not be created again or deleted"
            ),
            Self::NoAddress(cidr) => {
                let family = IpFamily::from_address(cidr.addr());
                format!(
                    "the node has no InternalIP of family {family}, which the route of {cidr} needs"
                )
            }
        }
    }

    /// Returns the fix, for a person.
    pub fn fix(&self) -> String {
        let fix = match self {
            // The pod CIDRs of a node cannot be changed.
            Self::Unreadable(_) | Self::Overlaps { .. } | Self::TooWide { .. } => {
                "delete this Node, so that it registers again and gets another pod CIDR"
            }
            Self::Outside(_) => "extend --cluster-cidr, or recreate the node with another pod CIDR",
            Self::WiderThanMost { .. } => {
                "set --max-pod-cidr, or annotation quartet.dev/approved-selector of the Lease"
            }
            Self::SameTarget { target: RouteTarget::Address(_), .. } => {
                "correct status.addresses of the Node whose machine does not have it, or delete that Node"
            }
            Self::SameTarget { .. } => "delete the Node to which the machine does not belong",
            Self::Family(cidr) => {
                return format!(
                    "use a cluster without {} pod CIDRs",
                    IpFamily::from_address(cidr.addr())
                );
            }
            Self::NoProviderId => "node-ccm sets spec.providerID",
            Self::UnreadableId(_) => {
                "delete this Node, so that it registers again with another provider ID"
            }
            Self::Lent { .. } => {
                "check --cluster-uid, or remove the route, so that this cluster makes its own"
            }
            Self::NoAddress(_) => "node-ccm sets the addresses that the cloud has",
        };
        fix.to_owned()
    }

    /// Returns true if a route could be made, and what its node says of itself is not believed.
    pub const fn is_of_its_node(&self) -> bool {
        matches!(self, Self::TooWide { .. } | Self::WiderThanMost { .. } | Self::SameTarget { .. })
    }
}

/// The advice for a node without pod CIDRs, if this program does not assign pod CIDRs.
pub const ASSIGN: &str = "set --allocate-node-cidrs=true in one program, in kube-controller-manager or here, or see why that program does not assign them";

/// At most this many characters of an unreadable provider ID are shown.
pub const LONGEST_ID: usize = 100;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if matches!(self, Self::WiderThanMost { .. }) { ':' } else { ';' };
        write!(f, "{}{mark} {}", self.cause(), self.fix())
    }
}
