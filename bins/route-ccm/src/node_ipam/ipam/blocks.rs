//! The blocks of one cluster CIDR: the taken ones, and the next one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::intervals::Intervals;
use crate::networks::{ClusterRange, family, overlap};

/// A free block, and how many places were looked at to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) block: IpNet,
    pub(super) tries: u32,
}

/// The blocks of a cluster CIDR, by their number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pool {
    pub(super) range: ClusterRange,
    taken: Intervals,
    used: u128,
    /// Where the search begins: after the block that was given last.
    next: u128,
    /// Blocks that became taken, and free again, since the process began.
    pub(super) allocations: u64,
    pub(super) releases: u64,
}

impl Pool {
    pub(super) fn new(range: ClusterRange) -> Self {
        let taken = Intervals::default();
        Self { range, taken, used: 0, next: 0, allocations: 0, releases: 0 }
    }

    fn bits(&self) -> u32 {
        u32::from(self.range.mask - self.range.network.prefix_len())
    }

    /// Returns the number of the last block.
    fn last(&self) -> u128 {
        1_u128.checked_shl(self.bits()).map_or(u128::MAX, |blocks| blocks - 1)
    }

    pub(super) fn capacity(&self) -> u128 {
        self.last().saturating_add(1)
    }

    pub(super) const fn used(&self) -> u128 {
        self.used
    }

    /// Returns the next free block, without taking it.
    pub(super) fn find(&self) -> Option<Found> {
        let within = |number: &u128| *number <= self.last();
        let behind = self.taken.next_absent(self.next).filter(within);
        let tries = if behind == Some(self.next) { 1 } else { 2 };
        let number = behind.map(|number| (number, tries));
        let number = number.or_else(|| Some((self.taken.next_absent(0).filter(within)?, 3)));
        number.map(|(number, tries)| Found { block: self.block(number), tries })
    }

    /// Takes a block that was found. The next search begins behind it.
    pub(super) fn take(&mut self, block: IpNet) {
        self.mark(block);
        if let Some((_, number)) = self.touched(block) {
            self.next = if number == self.last() { 0 } else { number + 1 };
        }
    }

    /// Marks all blocks that the network touches.
    pub(super) fn mark(&mut self, network: IpNet) {
        let Some((first, last)) = self.touched(network) else { return };
        let new = self.taken.insert(first, last);
        self.used = self.used.saturating_add(new);
        self.allocations = self.allocations.saturating_add(short(new));
    }

    /// Marks all blocks that the network touches again, by what still holds a part of them.
    pub(super) fn refresh(&mut self, network: IpNet, held: impl Iterator<Item = IpNet>) {
        let Some((first, last)) = self.touched(network) else { return };
        let held: Vec<_> = held.filter_map(|one| self.touched(one)).collect();
        let before = self.taken.remove(first, last);
        let mut after = 0;
        for (low, high) in held {
            if low <= last && first <= high {
                after += self.taken.insert(low.max(first), high.min(last));
            }
        }
        self.used = self.used.saturating_sub(before).saturating_add(after);
        self.releases = self.releases.saturating_add(short(before.saturating_sub(after)));
        self.allocations = self.allocations.saturating_add(short(after.saturating_sub(before)));
    }

    /// Returns the network with all blocks that it touches; `None` if it does not touch any.
    pub(super) fn span(&self, network: IpNet) -> Option<IpNet> {
        let range = self.range;
        if !overlap(network, range.network) {
            return None;
        }
        let length = network.prefix_len().clamp(range.network.prefix_len(), range.mask);
        let address = if network.contains(&range.network) { range.network } else { network };
        Some(IpNet::new(address.addr(), length).ok()?.trunc())
    }

    /// Returns true if the network contains all blocks, and there is more than one. No node needs
    /// all blocks: with such a network in its spec, one kubelet could take the blocks of all nodes.
    /// So a network like this takes no block.
    pub(super) fn is_all(&self, network: IpNet) -> bool {
        self.bits() > 0 && network.contains(&self.range.network)
    }

    /// Returns how many blocks the network touches.
    pub(super) fn blocks_of(&self, network: IpNet) -> u128 {
        self.touched(network).map_or(0, |(first, last)| (last - first).saturating_add(1))
    }

    /// Returns true if the network lies in one block.
    pub(super) fn is_within_block(&self, network: IpNet) -> bool {
        self.range.network.contains(&network) && network.prefix_len() >= self.range.mask
    }

    /// Returns the numbers of the first and the last block that the network touches.
    fn touched(&self, network: IpNet) -> Option<(u128, u128)> {
        let span = self.span(network)?;
        let base = number(self.range.network.network());
        let shift = u32::from(self.range.network.max_prefix_len() - self.range.mask);
        let index = |address| (number(address) - base).checked_shr(shift).unwrap_or(0);
        Some((index(span.network()), index(span.broadcast())))
    }

    fn block(&self, index: u128) -> IpNet {
        let shift = u32::from(self.range.network.max_prefix_len() - self.range.mask);
        let offset = index.checked_shl(shift).unwrap_or(0);
        let address = address(self.range.network, number(self.range.network.network()) + offset);
        IpNet::new(address, self.range.mask).unwrap_or(self.range.network)
    }
}

fn short(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the address with this number, of the family of a network.
fn address(like: IpNet, number: u128) -> IpAddr {
    match family(like) {
        ccm_cloud::IpFamily::V4 => {
            Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into()
        }
        ccm_cloud::IpFamily::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests;
