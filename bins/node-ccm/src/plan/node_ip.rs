//! The annotation `alpha.kubernetes.io/provided-node-ip`: the addresses passed to kubelet with
//! `--node-ip`.

use std::net::IpAddr;

use ccm_objects::Address;

use super::text::list;

/// Why the annotation cannot be satisfied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeIpError {
    /// It is neither one address nor one address of each family.
    #[error("{0}")]
    Invalid(String),
    /// The instance has no such address.
    #[error("failed to get node address from cloud provider that matches ip: {wanted}; the cloud's addresses are {}", list(.known))]
    UnknownToCloud {
        /// The address that the annotation asks for.
        wanted: IpAddr,
        /// The addresses that the cloud knows.
        known: Vec<Address>,
    },
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
