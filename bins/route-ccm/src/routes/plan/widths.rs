//! Limits the width of the pod CIDR of a node. A kubelet may name the pod CIDR of its own Node when
//! it registers, and a wide one would attract the traffic of many nodes to its machine.

use std::collections::BTreeMap;

use ccm_cloud::IpFamily;
use ccm_objects::Node;
use ipnet::IpNet;

use super::{View, node_view::NodeView, problem::Problem};
use crate::networks::{Config, is_inside};

/// Fewer pod CIDRs do not show a usual size.
const FEW: usize = 4;

/// How many pod CIDRs of each family have which prefix length.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual(BTreeMap<(IpFamily, u8), usize>);

impl Usual {
    /// Returns the pod CIDRs of these nodes.
    pub(super) fn new(nodes: &[NodeView], cluster_cidrs: &[IpNet]) -> Self {
        let served = nodes.iter().filter(|view| view.left_out.is_none());
        let mut counts = BTreeMap::new();
        for cidr in
            served.flat_map(NodeView::pod_cidrs).filter(|one| is_inside(*one, cluster_cidrs))
        {
            *counts.entry(key(cidr)).or_default() += 1;
        }
        Self(counts)
    }

    /// Returns the longest prefix length that most pod CIDRs of the family have, or a longer one.
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
    (IpFamily::from_address(cidr.addr()), cidr.prefix_len())
}

impl View<'_> {
    /// Returns why the node gets no route to this pod CIDR, if it is too wide. A person may approve one that is wider than
    /// usual.
    pub(super) fn too_wide(&self, node: &Node, cidr: IpNet, usual: &Usual) -> Option<Problem> {
        let (family, length) = key(cidr);
        let blocks = self.blocks;
        if let Some(most) = blocks.and_then(|blocks| blocks.too_wide(node, cidr)) {
            return Some(Problem::TooWide { cidr, most, flag: "node-cidr-mask-size" });
        }
        let is_block =
            |blocks: &Config| blocks.gives(cidr) && blocks.wider_than_block(cidr).is_none();
        let most = self.parameters.max_pod_cidr.for_family(family);
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
