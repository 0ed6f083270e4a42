//! Addresses of instances and nodes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString};

/// The kinds of node address that Kubernetes knows. Their texts are the spelling of its API.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, AsRefStr, Display, EnumString,
)]
pub enum AddressKind {
    /// An address reachable inside the cluster's network.
    #[serde(rename = "InternalIP")]
    #[strum(serialize = "InternalIP")]
    InternalIp,
    /// An address reachable from outside.
    #[serde(rename = "ExternalIP")]
    #[strum(serialize = "ExternalIP")]
    ExternalIp,
    /// The host name that the machine reports.
    Hostname,
    /// A DNS name that resolves to an internal address.
    #[serde(rename = "InternalDNS")]
    #[strum(serialize = "InternalDNS")]
    InternalDns,
    /// A DNS name that resolves to an external address.
    #[serde(rename = "ExternalDNS")]
    #[strum(serialize = "ExternalDNS")]
    ExternalDns,
}

/// One address of an instance. Order matters: the first of a kind is the primary one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    /// The kind of the address.
    pub kind: AddressKind,
    /// The address in the cloud's own spelling.
    pub address: String,
}

impl NodeAddress {
    /// Creates an address of this kind.
    pub fn new(kind: AddressKind, address: impl Into<String>) -> Self {
        Self { kind, address: address.into() }
    }

    /// Appends `more` to `list`, leaving out entries that are in it already.
    pub fn append_new(list: &mut Vec<Self>, more: impl IntoIterator<Item = Self>) {
        for address in more {
            if !list.contains(&address) {
                list.push(address);
            }
        }
    }
}

/// Returns true if the text is a host name as the status of a Service may show it: a DNS name in lower
/// case (RFC 1123), and no IP address.
pub fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.len() <= 63
            && label.starts_with(legal)
            && label.ends_with(legal)
            && label.chars().all(|c| legal(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_a_dns_name_in_lower_case() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for name in ["web", "lb-1.example.com", "203.0.113.5.nip.io", "1", &longest] {
            assert!(is_host_name(name), "{name}");
        }
        for text in [
            "",
            "Web",
            "web.",
            ".web",
            "-web",
            "web-",
            "a..b",
            "a_b",
            "a b",
            "web\nX",
            "<b>",
            "192.0.2.1",
            "2001:db8::1",
            "Kéy.example",
            &longer,
            &["a"; 200].join("."),
        ] {
            assert!(!is_host_name(text), "{text:?}");
        }
    }
}
