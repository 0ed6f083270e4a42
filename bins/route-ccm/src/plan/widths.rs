//! How wide the pod CIDR of a node may be. A kubelet names the pod CIDR of its own Node when it registers, and a wide one
//! would draw the traffic of many nodes to its machine.

use std::{collections::BTreeMap, fmt, str::FromStr};

use ccm_cloud::IpFamily;
use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::{node_view::NodeView, problem::Problem};
use crate::ipam::{Config, is_inside};

/// Fewer pod CIDRs show no usual size.
const FEW: usize = 4;

/// `--max-pod-cidr`: the shortest prefixes that pod CIDRs may have. 0 allows each size. `None` allows the usual size, which
/// most nodes have, and smaller ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxPodCidr {
    v4: Option<u8>,
    v6: Option<u8>,
}

/// Describes the form of a [`MaxPodCidr`].
const RULE: &str = "must be a prefix length of IPv4, or one of IPv4 and one of IPv6, such as 22 or 22,64, or one of IPv6 if --cluster-cidr has no IPv4 network; 0 allows each size";

impl MaxPodCidr {
    /// The lengths in a cluster without IPv4 networks: a single one is of IPv6.
    #[must_use]
    pub fn of_ipv6(self) -> Self {
        Self { v4: None, v6: self.v6.or(self.v4) }
    }

    /// Returns true if this is a single length that only IPv6 has.
    pub const fn is_only_of_ipv6(self) -> bool {
        self.v4.is_none() && self.v6.is_some()
    }
}

impl FromStr for MaxPodCidr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let length = |text: &str, most: u8| {
            let text = text.trim();
            let length = text.strip_prefix('/').unwrap_or(text).parse().ok();
            length.filter(|length| *length <= most).ok_or(RULE)
        };
        match text.split_once(',') {
            Some((v4, v6)) => Ok(Self { v4: Some(length(v4, 32)?), v6: Some(length(v6, 128)?) }),
            None => match length(text, 128)? {
                v4 @ ..=32 => Ok(Self { v4: Some(v4), v6: None }),
                v6 => Ok(Self { v4: None, v6: Some(v6) }),
            },
        }
    }
}

impl fmt::Display for MaxPodCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<_> = self.v4.iter().chain(&self.v6).map(ToString::to_string).collect();
        f.write_str(&lengths.join(","))
    }
}

impl Serialize for MaxPodCidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How wide the pod CIDRs of nodes may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Widths {
    /// The blocks, if this program gives nodes their pod CIDRs.
    pub blocks: Option<Config>,
    /// `--max-pod-cidr`.
    pub most: MaxPodCidr,
}

/// How many pod CIDRs of each family have which prefix length.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual(BTreeMap<(IpFamily, u8), usize>);

impl Usual {
    /// The pod CIDRs of these nodes.
    pub(super) fn of(nodes: &[NodeView], cluster_cidrs: &[IpNet]) -> Self {
        let served = nodes.iter().filter(|view| view.left_out.is_none());
        let mut counts = BTreeMap::new();
        for cidr in
            served.flat_map(NodeView::pod_cidrs).filter(|one| is_inside(*one, cluster_cidrs))
        {
            *counts.entry(key(cidr)).or_default() += 1;
        }
        Self(counts)
    }

    /// The longest prefix length that most pod CIDRs of the family have, or a longer one.
    fn prefix_len(&self, family: IpFamily) -> Option<u8> {
        let lengths = || self.0.range((family, 0)..=(family, u8::MAX)).rev();
        let total: usize = lengths().map(|(_, count)| count).sum();
        let mut seen = 0;
        let mut most = lengths().skip_while(|(_, count)| {
            seen += **count;
            2 * seen <= total
        });
        most.next().filter(|_| total >= FEW).map(|((_, length), _)| *length)
    }
}

fn key(cidr: IpNet) -> (IpFamily, u8) {
    (IpFamily::of(cidr.addr()), cidr.prefix_len())
}

impl Widths {
    /// Returns why the node gets no route to this pod CIDR, if it is too wide. A person may approve one that is wider than
    /// usual.
    pub(super) fn problem(&self, node: &Node, cidr: IpNet, usual: &Usual) -> Option<Problem> {
        let (family, length) = key(cidr);
        let blocks = self.blocks.as_ref();
        if let Some(most) = blocks.and_then(|blocks| blocks.too_wide(node, cidr)) {
            return Some(Problem::TooWide { cidr, most, flag: "node-cidr-mask-size" });
        }
        let is_block =
            |blocks: &Config| blocks.gives(cidr) && blocks.wider_than_block(cidr).is_none();
        let most = match family {
            IpFamily::V4 => self.most.v4,
            IpFamily::V6 => self.most.v6,
        };
        match most {
            _ if blocks.is_some_and(is_block) => None,
            Some(most) => {
                (length < most).then_some(Problem::TooWide { cidr, most, flag: "max-pod-cidr" })
            }
            None => {
                let usual = usual.prefix_len(family).filter(|usual| length < *usual)?;
                Some(Problem::WiderThanMost { cidr, usual })
            }
        }
    }
}

#[cfg(test)]
mod tests;
