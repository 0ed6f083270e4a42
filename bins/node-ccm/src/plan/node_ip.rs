//! The annotation `alpha.kubernetes.io/provided-node-ip`: the addresses passed to kubelet with
//! `--node-ip`.

use std::net::IpAddr;

use ccm_objects::{Address, parse_ip};

use super::text::list;

/// Why the annotation cannot be satisfied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeIpError {
    /// A part of the annotation is not an IP address.
    #[error("could not parse {0:?}: it must be an IP address without blanks")]
    Unparsable(String),
    /// Three or more addresses, or two of one family.
    #[error("{0:?} must contain either a single IP or a dual-stack pair of IPs")]
    NeitherSingleNorPair(String),
    /// A pair with an unspecified address.
    #[error("{0:?}: dual-stack node IP cannot include '0.0.0.0' or '::'")]
    UnspecifiedInPair(String),
    /// The instance has no such address.
    #[error("failed to get node address from cloud provider that matches ip: {wanted}; the cloud's addresses are {}", list(.known))]
    UnknownToCloud {
        /// The address that the annotation asks for.
        wanted: IpAddr,
        /// The addresses that the cloud knows.
        known: Vec<Address>,
    },
}

/// Parses the annotation: one address, or one of each family. Strict: no blanks, no names, no
/// networks. Leading zeros in IPv4 octets are decimal, as in kubelet.
pub fn parse(text: &str) -> Result<Vec<IpAddr>, NodeIpError> {
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|part| parse_ip(part).ok_or_else(|| NodeIpError::Unparsable(part.to_owned())))
        .collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [first, second] if first.is_ipv4() != second.is_ipv4() => {
            if first.is_unspecified() || second.is_unspecified() {
                return Err(NodeIpError::UnspecifiedInPair(text.to_owned()));
            }
            Ok(ips)
        }
        _ => Err(NodeIpError::NeitherSingleNorPair(text.to_owned())),
    }
}

/// Selects from the cloud's addresses: for each wanted IP the entries equal to it, then all
/// entries of the kinds that no wanted IP has matched.
///
/// A wanted InternalIP therefore drops the other InternalIPs and keeps names and ExternalIPs.
/// Entries keep the cloud's spelling and relative order.
pub fn select(addresses: &[Address], wanted: &[IpAddr]) -> Result<Vec<Address>, NodeIpError> {
    let mut chosen: Vec<Address> = Vec::new();
    for ip in wanted {
        let mut matching = addresses.iter().filter(|entry| entry.ip() == Some(*ip)).peekable();
        if matching.peek().is_none() {
            return Err(NodeIpError::UnknownToCloud { wanted: *ip, known: addresses.to_vec() });
        }
        chosen.extend(matching.cloned());
    }
    let rest: Vec<Address> = addresses
        .iter()
        .filter(|entry| !chosen.iter().any(|taken| taken.kind == entry.kind))
        .cloned()
        .collect();
    chosen.extend(rest);
    Ok(chosen)
}

#[cfg(test)]
mod tests;
