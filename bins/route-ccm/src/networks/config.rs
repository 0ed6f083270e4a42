//! From flags to the networks that nodes get their blocks from.

use ccm_base::At;
use ccm_cloud::IpFamily;
use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{family, network, overlap};

const CLUSTER: &str = "cluster-cidr";
const SERVICES: &str = "service-cluster-ip-range";
const MASKS: [&str; 3] =
    ["node-cidr-mask-size", "node-cidr-mask-size-ipv4", "node-cidr-mask-size-ipv6"];

/// `--cidr-allocator-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocatorType {
    /// Blocks of the cluster CIDRs.
    #[default]
    RangeAllocator,
    /// The pod CIDRs that the cloud has assigned to the instance.
    CloudAllocator,
}

impl AllocatorType {
    /// All of them, by the value of the flag.
    pub const ALL: [(&str, Self); 2] =
        [("RangeAllocator", Self::RangeAllocator), ("CloudAllocator", Self::CloudAllocator)];
}

/// The values of the flags. A mask size of 0 is one that is not set.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--cidr-allocator-type`.
    pub allocator: AllocatorType,
    /// `--cluster-cidr`.
    pub cluster_cidrs: Vec<String>,
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<String>,
    /// `--node-cidr-mask-size`.
    pub mask: usize,
    /// `--node-cidr-mask-size-ipv4`.
    pub mask_v4: usize,
    /// `--node-cidr-mask-size-ipv6`.
    pub mask_v6: usize,
}

/// A cluster CIDR, and the size of the block that each node gets of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRange {
    /// The cluster CIDR, without host bits.
    pub network: IpNet,
    /// The prefix length of a node's block. Without meaning for [`AllocatorType::CloudAllocator`].
    pub mask: u8,
}

/// Since when nodes have got blocks of these prefix lengths, or longer ones. A leader leaves this
/// to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSizes {
    v4: Option<u8>,
    v6: Option<u8>,
    since: At,
}

/// The flags, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The allocator, which decides on the blocks.
    pub allocator: AllocatorType,
    /// The cluster CIDRs, at most one of each family. They have the order of `spec.podCIDRs`.
    pub ranges: Vec<ClusterRange>,
    /// The networks of Services. Nodes do not get blocks that overlap one of them.
    pub services: Vec<IpNet>,
    /// Nodes that were created earlier may have wider pod CIDRs than the blocks are now. Without
    /// it, all nodes may.
    pub since: Option<At>,
}

/// A remark about the value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The mistake, or what is tolerated, in one line.
    pub what: String,
}

impl Remark {
    fn new(flag: &'static str, what: impl Into<String>) -> Self {
        Self { flag, what: what.into() }
    }
}

/// The networks of a flag without host bits, at most one of each family, in their order, with
/// remarks about tolerated mistakes.
type Listed = (Vec<IpNet>, Vec<Remark>);

/// Returns the networks of `--cluster-cidr`.
///
/// # Errors
///
/// The mistakes, one remark each.
pub fn cluster_networks(values: &[String]) -> Result<Listed, Vec<Remark>> {
    listed(CLUSTER, "10.244.0.0/16", values)
}

fn listed(flag: &'static str, example: &str, values: &[String]) -> Result<Listed, Vec<Remark>> {
    let (mut found, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for text in values {
        let Some(network) = network(text.trim()) else {
            errors.push(Remark::new(flag, format!(
                "{text:?} is not a network: expected an address and the length of its prefix, such as {example}"
            )));
            continue;
        };
        if network != network.trunc() {
            let taken = network.trunc();
            let what = format!("{network} has host bits and is taken as {taken}");
            warnings.push(Remark::new(flag, what));
        }
        let network = network.trunc();
        if network.prefix_len() == 0 {
            errors.push(Remark::new(
                flag,
                format!(
                    "{network} has all {} addresses: expected a smaller network, such as {example}",
                    family(network)
                ),
            ));
            continue;
        }
        if let Some(other) = found.iter().find(|one| family(**one) == family(network)) {
            errors.push(Remark::new(flag, format!(
                "{other} and {network} are both {}: at most one network of each family is possible",
                family(network)
            )));
            continue;
        }
        found.push(network);
    }
    if errors.is_empty() { Ok((found, warnings)) } else { Err(errors) }
}

impl Flags {
    /// Checks the flags. With the configuration comes what is tolerated.
    ///
    /// # Errors
    ///
    /// The mistakes, one remark each.
    pub fn check(&self) -> Result<(Config, Vec<Remark>), Vec<Remark>> {
        let clusters = cluster_networks(&self.cluster_cidrs);
        let services = listed(SERVICES, "10.96.0.0/16", &self.service_ranges);
        let ((clusters, mut warnings), services) = match (clusters, services) {
            (Ok(clusters), Ok(services)) => (clusters, services),
            (clusters, services) => {
                let errors = [clusters.err(), services.err()];
                return Err(errors.into_iter().flatten().flatten().collect());
            }
        };
        warnings.extend(services.1);
        let mut errors = Vec::new();
        let mut config =
            Config { allocator: self.allocator, services: services.0, ..Config::default() };
        match self.allocator {
            AllocatorType::RangeAllocator => {
                errors.extend(self.wrong_masks(&clusters));
                for network in &clusters {
                    match self.range(*network) {
                        Ok(range) => config.ranges.push(range),
                        Err(error) => errors.push(error),
                    }
                }
                config.check_services(&mut errors, &mut warnings);
            }
            AllocatorType::CloudAllocator => {
                let unused = self.masks().into_iter().filter(|(_, mask)| *mask > 0);
                warnings.extend(unused.map(|(flag, _)| {
                    let what =
                        "no effect with --cidr-allocator-type=CloudAllocator: the cloud decides";
                    Remark::new(flag, what)
                }));
                let ranges = clusters.iter();
                let ranges =
                    ranges.map(|one| ClusterRange { network: *one, mask: one.prefix_len() });
                config.ranges = ranges.collect();
            }
        }
        if errors.is_empty() { Ok((config, warnings)) } else { Err(errors) }
    }

    fn masks(&self) -> [(&'static str, usize); 3] {
        let [both, v4, v6] = MASKS;
        [(both, self.mask), (v4, self.mask_v4), (v6, self.mask_v6)]
    }

    /// Returns the mistakes in the choice of mask sizes.
    fn wrong_masks(&self, clusters: &[IpNet]) -> Vec<Remark> {
        let mut wrong = Vec::new();
        if clusters.is_empty() {
            let what = "it is empty, but --allocate-node-cidrs needs it: set it to the network of all pods, such as 10.244.0.0/16";
            wrong.push(Remark::new(CLUSTER, what));
            return wrong;
        }
        let [(both, mask), v4, v6] = self.masks();
        for (network, (flag, size)) in [(IpFamily::V4, v4), (IpFamily::V6, v6)] {
            if size > 0 && mask > 0 {
                let what = format!("--{flag} is set as well: use one of them");
                wrong.push(Remark::new(both, what));
            } else if size > 0 && !clusters.iter().any(|one| family(*one) == network) {
                let what = format!(
                    "--{CLUSTER} has no {network} network: remove the flag, or add the network"
                );
                wrong.push(Remark::new(flag, what));
            }
        }
        if mask > 0 && clusters.len() > 1 {
            let what = format!(
                "it is for clusters of one family, and --{CLUSTER} has two: use --{} and --{}",
                v4.0, v6.0
            );
            wrong.push(Remark::new(both, what));
        }
        wrong
    }

    /// Returns the blocks of a cluster CIDR.
    fn range(&self, network: IpNet) -> Result<ClusterRange, Remark> {
        let [both, v4, v6] = self.masks();
        let (default, own) = match family(network) {
            IpFamily::V4 => (24, v4),
            IpFamily::V6 => (64, v6),
        };
        let (flag, size) = match (both.1, own.1) {
            (0, 0) => (own.0, default),
            (0, _) => own,
            _ => both,
        };
        let most = network.max_prefix_len();
        let mask = u8::try_from(size).ok().filter(|mask| *mask <= most).ok_or_else(|| {
            let family = family(network);
            Remark::new(flag, format!("{size} is too long for {family}: use {most} or less"))
        })?;
        if network.prefix_len() > mask {
            return Err(Remark::new(
                CLUSTER,
                format!(
                    "{network} is smaller than the block of one node, /{mask}: use a larger network, or set --{flag} to {} or more",
                    network.prefix_len()
                ),
            ));
        }
        Ok(ClusterRange { network, mask })
    }
}

impl Config {
    /// Returns since when the blocks have had their sizes, if a leader left this at its end. If
    /// the blocks have become smaller, their time restarts: older nodes have larger blocks.
    pub fn sizes(&self, left: Option<BlockSizes>, now: At) -> BlockSizes {
        let mask = |of: IpFamily| {
            let mut ranges = self.ranges.iter();
            ranges.find(|range| family(range.network) == of).map(|range| range.mask)
        };
        let (v4, v6) = (mask(IpFamily::V4), mask(IpFamily::V6));
        let is_kept = |before: Option<u8>, now: Option<u8>| now.is_none() || now <= before;
        let left = left.filter(|left| is_kept(left.v4, v4) && is_kept(left.v6, v6));
        BlockSizes { v4, v6, since: left.map_or(now, |left| left.since) }
    }

    /// Returns the same configuration, with blocks of these sizes.
    #[must_use]
    pub fn with_sizes(self, sizes: BlockSizes) -> Self {
        Self { since: Some(sizes.since), ..self }
    }

    /// Returns true if the node may have had its pod CIDRs before the blocks had their sizes.
    pub fn is_older(&self, node: &Node) -> bool {
        let is_before = |since: &At| node.created.is_none_or(|created| At::from(created) <= *since);
        self.since.as_ref().is_none_or(is_before)
    }

    /// Returns true if nodes get blocks of a network that contains this one.
    pub fn gives(&self, cidr: IpNet) -> bool {
        let is_range = self.allocator == AllocatorType::RangeAllocator;
        is_range && self.ranges.iter().any(|range| range.network.contains(&cidr))
    }

    /// Returns the prefix length of the blocks, if the pod CIDR is wider than one.
    pub fn wider_than_block(&self, cidr: IpNet) -> Option<u8> {
        if self.allocator == AllocatorType::CloudAllocator {
            return None;
        }
        let mut ranges = self.ranges.iter().filter(|range| overlap(range.network, cidr));
        ranges.next().map(|range| range.mask).filter(|mask| cidr.prefix_len() < *mask)
    }

    /// Returns the prefix length if the pod CIDR is too wide, unless the node may have it all the
    /// same.
    pub fn too_wide(&self, node: &Node, cidr: IpNet) -> Option<u8> {
        self.wider_than_block(cidr).filter(|_| !self.is_older(node))
    }

    /// Blocks that overlap a network of Services are not used. Some blocks must remain.
    fn check_services(&self, errors: &mut Vec<Remark>, warnings: &mut Vec<Remark>) {
        for range in &self.ranges {
            let network = range.network;
            for service in self.services.iter().filter(|one| overlap(**one, network)) {
                let is_all = service.contains(&network) || network.prefix_len() == range.mask;
                if is_all {
                    errors.push(Remark::new(SERVICES, format!(
                        "{service} does not leave blocks of --{CLUSTER} {network} for nodes: use networks that do not overlap"
                    )));
                } else {
                    warnings.push(Remark::new(
                        SERVICES,
                        format!(
                            "{service} is within --{CLUSTER} {network}: nodes do not get blocks of it"
                        ),
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
