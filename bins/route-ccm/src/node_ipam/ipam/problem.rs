//! The problems of a node's pod CIDRs, and the reasons why a node does not get any.

use std::{fmt, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::Display;

use super::rival::Rival;
use crate::networks::{family, join};

/// A problem with the pod CIDRs of a node. All pod CIDRs except [those that are too
/// wide](Self::Wide) are respected, and other nodes are not affected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Problem {
    /// It is not a network.
    Unreadable {
        /// The text.
        text: Box<str>,
    },
    /// It is outside the cluster CIDRs, or contains one.
    Outside {
        /// The pod CIDR.
        cidr: IpNet,
        /// The cluster CIDRs.
        clusters: Vec<IpNet>,
    },
    /// It has another size than the blocks that we give.
    Size {
        /// The pod CIDR.
        cidr: IpNet,
        /// The prefix length of our blocks.
        mask: u8,
    },
    /// It is wider than the blocks that we give, and the node is younger than they are. It is not respected.
    Wide {
        /// The pod CIDR.
        cidr: IpNet,
        /// The prefix length of our blocks.
        mask: u8,
    },
    /// It overlaps a network of Services.
    Services {
        /// The pod CIDR.
        cidr: IpNet,
        /// The network of Services.
        services: IpNet,
    },
    /// It overlaps a pod CIDR of another node.
    Shared {
        /// The pod CIDR.
        cidr: IpNet,
        /// The other node.
        other: Arc<str>,
        /// Its pod CIDR.
        others: IpNet,
    },
}

impl Problem {
    /// Returns the problem in words and its fix. The fix is empty if the problem does not affect
    /// other nodes.
    pub fn parts(&self) -> (String, Option<&'static str>) {
        match self {
            Self::Unreadable { text } => (
                format!("pod CIDR {text:?} is not a network"),
                Some("delete the node, so that it registers again"),
            ),
            Self::Outside { cidr, clusters } => (
                format!("pod CIDR {cidr} is not in --cluster-cidr {}", join(clusters)),
                Some("add its network, or delete the node, so that it registers again"),
            ),
            Self::Size { cidr, mask } => (
                format!(
                    "pod CIDR {cidr} is not a block of /{mask} as --node-cidr-mask-size says: it stays, and its addresses are not given to another node"
                ),
                None,
            ),
            Self::Wide { cidr, mask } => (
                format!(
                    "pod CIDR {cidr} is wider than a block of /{mask}, and this program has not assigned it: it does not get a route, and its addresses are given to other nodes"
                ),
                Some("delete this Node, so that it registers again and gets another pod CIDR"),
            ),
            Self::Services { cidr, services } => (
                format!("pod CIDR {cidr} overlaps --service-cluster-ip-range {services}"),
                Some("correct the flag, or delete the node, so that it registers again"),
            ),
            Self::Shared { cidr, other, others } => (
                format!("pod CIDR {cidr} overlaps {others} of node {other}"),
                Some("delete one of the nodes, so that it registers again"),
            ),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.parts()) {
            (_, (what, None)) => f.write_str(&what),
            (Self::Wide { .. }, (what, Some(fix))) => write!(f, "{what}; {fix}"),
            (_, (what, Some(fix))) => write!(f, "{what}: {fix}"),
        }
    }
}

/// A cluster CIDR without a free block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhausted {
    /// The cluster CIDR.
    pub cluster: IpNet,
    /// The prefix length of its blocks.
    pub mask: u8,
    /// The number of its blocks.
    pub capacity: u128,
    /// How many nodes are gone and still hold their blocks.
    pub held: usize,
    /// The node with the widest pod CIDR that covers more than one block, and the number of these
    /// blocks.
    pub widest: Option<(Arc<str>, IpNet, u128)>,
}

impl Exhausted {
    /// The fix, for a person.
    pub const MEND: &str =
        "remove nodes, or set --cluster-cidr to a larger network that contains it";

    /// Says which blocks are taken, and by which nodes.
    pub fn cause(&self) -> String {
        let Self { cluster, mask, capacity, held, widest } = self;
        let gone = match held {
            0 => String::new(),
            1 => ", also by 1 node that is gone and whose blocks become free later".to_owned(),
            _ => format!(", also by {held} nodes that are gone and whose blocks become free later"),
        };
        let widest = widest.as_ref().map(|(node, cidr, blocks)| {
            format!("; pod CIDR {cidr} of node {node} covers {blocks} of them")
        });
        let widest = widest.unwrap_or_default();
        let family = family(*cluster);
        format!(
            "{cluster} has no free {family} block of /{mask}: all {capacity} are taken{gone}{widest}"
        )
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause(), Self::MEND)
    }
}

/// The reason why a node does not get blocks now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
pub enum Refusal {
    /// Another allocator is at work.
    #[strum(to_string = "{0}")]
    Stopped(Rival),
    /// The routes in the cloud are not known yet.
    #[strum(to_string = "the cloud's routes are not known yet")]
    RoutesUnknown,
    /// A family has no free block. Nothing was taken of the other one.
    #[strum(to_string = "{0}")]
    Exhausted(Exhausted),
    /// The node has pod CIDRs.
    #[strum(to_string = "the node has pod CIDRs")]
    Assigned,
    /// The node is being deleted.
    #[strum(to_string = "the node is being deleted")]
    Deleting,
    /// Another node has the network that should be given.
    #[strum(to_string = "{0}")]
    Taken(Problem),
}
