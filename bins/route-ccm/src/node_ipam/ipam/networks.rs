//! The holders of networks. Two networks overlap only if one contains the other.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::IpFamily;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::networks::family;

/// The UID of a node.
pub(super) type Uid = Arc<str>;

/// The networks of all holders. One network may have several holders, and networks may overlap.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Networks {
    held: BTreeSet<(IpNet, Uid)>,
    /// The lengths of prefixes that have occurred, to find the networks that contain another one.
    lengths: BTreeSet<(IpFamily, u8)>,
}

impl Networks {
    pub(super) fn insert(&mut self, network: IpNet, holder: &Uid) {
        self.lengths.insert((family(network), network.prefix_len()));
        self.held.insert((network, Arc::clone(holder)));
    }

    pub(super) fn remove(&mut self, network: IpNet, holder: &Uid) {
        self.held.remove(&(network, Arc::clone(holder)));
    }

    /// Returns all networks that overlap this one, with their holders.
    pub(super) fn overlapping(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &Uid)> {
        let family = family(network);
        let shorter = self.lengths.range((family, 0)..(family, network.prefix_len()));
        let containing = shorter
            .filter_map(move |(_, length)| Some(IpNet::new(network.addr(), *length).ok()?.trunc()));
        let containing = containing
            .flat_map(|wider| self.starting_at(wider).take_while(move |(held, _)| *held == wider));
        // The network itself is followed by the networks in it, then by those behind it.
        let within = self.starting_at(network).take_while(move |(held, _)| network.contains(held));
        containing.chain(within)
    }

    fn starting_at(&self, network: IpNet) -> impl Iterator<Item = (IpNet, &Uid)> {
        self.held.range((network, Arc::from(""))..).map(|(network, uid)| (*network, uid))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn any_network() -> impl Strategy<Value = IpNet> {
        let v6 = |bits: u32, length: u8| {
            let address = std::net::Ipv6Addr::from(u128::from(bits) << 96);
            IpNet::new(address.into(), length).unwrap().trunc()
        };
        (any::<u32>(), 24..=32_u8, any::<bool>()).prop_map(move |(bits, length, four)| {
            // The test uses few networks, so that many overlap.
            let bits = (bits & 0xff) | 0x0a00_0000;
            match four {
                true => IpNet::new(Ipv4Addr::from(bits).into(), length).unwrap().trunc(),
                false => v6(bits, length),
            }
        })
    }

    proptest! {
        #[test]
        fn overlapping_networks_are_found(
            held in prop::collection::vec((any_network(), 0..3_u8), 0..40),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            asked in any_network(),
        ) {
            let (mut networks, mut model) = (Networks::default(), BTreeSet::new());
            for (network, holder) in &held {
                let holder: Uid = holder.to_string().into();
                networks.insert(*network, &holder);
                model.insert((*network, holder));
            }
            for index in gone.iter().filter(|_| !held.is_empty()) {
                let (network, holder) = held[index.index(held.len())];
                let holder: Uid = holder.to_string().into();
                networks.remove(network, &holder);
                model.remove(&(network, holder));
            }
            model.retain(|(network, _)| {
                let (first, last) = (network.network(), network.broadcast());
                family(*network) == family(asked) && first <= asked.broadcast() && asked.network() <= last
            });
            let found: Vec<_> =
                networks.overlapping(asked).map(|(network, uid)| (network, Arc::clone(uid))).collect();
            prop_assert_eq!(found.len(), model.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), model);
        }
    }
}
