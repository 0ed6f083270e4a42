//! Replaces the IP addresses of a cluster.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Blocks with a special meaning: the first address, and the length of the prefix. An address
/// inside a block stays inside, and no other address moves in. The prefix is not replaced.
const MEANINGS: [(&str, u32); 19] = [
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.2.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 3),
    ("::", 127),
    ("::ffff:0:0", 96),
    ("2001:db8::", 32),
    ("64:ff9b::", 96),
    ("fc00::", 7),
    ("fe80::", 10),
    ("ff00::", 8),
];
/// Addresses of these blocks are the same everywhere and are not replaced.
const PLAIN: [(&str, u32); 7] = [
    ("0.0.0.0", 8),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("224.0.0.0", 3),
    ("::", 127),
    ("fe80::", 10),
    ("ff00::", 8),
];

/// Replaces addresses. Two addresses have as many first bits in common as their replacements. So an
/// address inside a network stays inside it, and one outside stays outside.
pub(super) struct Addresses {
    salt: RandomState,
    meanings: [Vec<Network>; 2],
    plain: [Vec<Network>; 2],
}

/// The bits of the first address, and the length of the prefix.
type Network = (u128, u32);

impl Default for Addresses {
    fn default() -> Self {
        let of = |networks: &[(&str, u32)]| [true, false].map(|is_ipv4| parsed(networks, is_ipv4));
        Self { salt: RandomState::new(), meanings: of(&MEANINGS), plain: of(&PLAIN) }
    }
}

/// Returns the networks of a family.
fn parsed(networks: &[(&str, u32)], is_ipv4: bool) -> Vec<Network> {
    let all = networks.iter().filter_map(|(first, length)| Some((first.parse().ok()?, *length)));
    let same = all.filter(|(first, _): &(IpAddr, u32)| first.is_ipv4() == is_ipv4);
    same.map(|(first, length)| (bits(first).0, length)).collect()
}

fn of_family(families: &[Vec<Network>; 2], address: IpAddr) -> &[Network] {
    let [v4, v6] = families;
    if address.is_ipv4() { v4 } else { v6 }
}

/// Returns the bits of an address, aligned to the upper end, and their number.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

fn of_bits(bits: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap_or_default()).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

/// The bits before the IPv4 address that an IPv6 address contains.
const EMBEDDED: u32 = 96;

/// Returns the IPv4 address inside a mapped or a NAT64 (RFC 6052) IPv6 address.
fn inner(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let is_nat64 = matches!(v6.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _]);
    let low = u32::try_from(v6.to_bits() & u128::from(u32::MAX)).unwrap_or_default();
    let is_mapped = v6.to_ipv4_mapped().is_some();
    (is_nat64 || is_mapped).then(|| Ipv4Addr::from_bits(low).into())
}

/// Returns the first bits of these; the others are zero.
fn first(bits: u128, length: u32) -> u128 {
    if length == 0 { 0 } else { bits & (u128::MAX << (128 - length)) }
}

impl Addresses {
    pub(super) fn replaced(&self, address: IpAddr) -> IpAddr {
        let (old, length) = bits(address);
        // An IPv6 address that contains an IPv4 address is replaced like that one.
        if let Some(inner) = inner(address) {
            let new = bits(self.replaced(inner)).0 >> 96;
            return of_bits(first(old, EMBEDDED) | new, address);
        }
        let mut new = old;
        let meanings = of_family(&self.meanings, address);
        if self.is_plain(address) {
            return address;
        }
        for at in 0..length {
            let before = first(old, at);
            // The bits on the way to such a block stay, so that no other address moves into it.
            let leads = |(block, length): &Network| at < *length && first(*block, at) == before;
            let flips = self.salt.hash_one((at, before, address.is_ipv4())) & 1 == 1;
            if flips && !meanings.iter().any(leads) {
                new ^= 1 << (127 - at);
            }
        }
        of_bits(new, address)
    }

    /// Returns the replacement of this network. Bits behind the prefix that are zero stay zero.
    pub(super) fn replaced_network(&self, address: IpAddr, prefix: u8) -> IpAddr {
        let (new, old) = (self.replaced(address), bits(address).0);
        match first(old, prefix.into()) == old {
            true => of_bits(first(bits(new).0, prefix.into()), address),
            false => new,
        }
    }

    /// Returns true if nothing of this address is replaced.
    pub(super) fn is_plain(&self, address: IpAddr) -> bool {
        let is_in = |(block, length): &Network| first(bits(address).0, *length) == *block;
        of_family(&self.plain, address).iter().any(is_in)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn common(a: IpAddr, b: IpAddr) -> u32 {
        (bits(a).0 ^ bits(b).0).leading_zeros()
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
            any::<u16>().prop_map(|bits| Ipv4Addr::from_bits(0x0a00_0000 + u32::from(bits)).into()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
            any::<u8>().prop_map(|bits| Ipv6Addr::from_bits(bits.into()).into()),
            any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).to_ipv6_mapped().into()),
            any::<u32>().prop_map(|bits| {
                Ipv6Addr::from_bits((0x64_ff9b << 96) | u128::from(bits)).into()
            }),
        ]
    }

    proptest! {
        #[test]
        fn networks_stay_networks(a in address(), b in address(), prefix in 0..=32u8) {
            let addresses = Addresses::default();
            let (new, other) = (addresses.replaced(a), addresses.replaced(b));
            prop_assert_eq!(new.is_ipv4(), a.is_ipv4());
            if a.is_ipv4() == b.is_ipv4() {
                prop_assert_eq!(common(a, b), common(new, other));
            }
            let network = of_bits(first(bits(a).0, prefix.into()), a);
            let new_network = addresses.replaced_network(network, prefix);
            prop_assert!(common(new_network, new) >= prefix.into());
            for (block, length) in parsed(&MEANINGS, a.is_ipv4()) {
                let inside = |of: IpAddr| first(bits(of).0, length) == block;
                prop_assert_eq!(inside(a), inside(new), "{} {}", a, new);
            }
        }
    }

    #[test]
    fn addresses_of_a_cluster_become_others() {
        let addresses = Addresses::default();
        let kept = (0..=255)
            .map(|host| IpAddr::from([10, 1, 2, host]))
            .filter(|address| addresses.replaced(*address) == *address);
        assert!(kept.count() < 3);
        let inner: IpAddr = [10, 1, 2, 3].into();
        for (text, embedded) in [("::ffff:10.1.2.3", "::ffff:"), ("64:ff9b::a01:203", "64:ff9b::")]
        {
            let new = addresses.replaced(text.parse().unwrap());
            let like = format!("{embedded}{}", addresses.replaced(inner));
            assert_eq!(new, like.parse::<IpAddr>().unwrap(), "{text}");
        }
        for plain in ["127.0.0.1", "0.0.0.0", "169.254.169.254", "::", "::1", "fe80::1"] {
            let plain: IpAddr = plain.parse().unwrap();
            assert_eq!(addresses.replaced(plain), plain);
        }
    }
}
