//! Loopback hosts.

use std::net::IpAddr;

/// Returns true if a URL's host is this machine: such requests do not cross a network and do not
/// need a proxy. An IPv6 address may be in brackets.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_machine() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "localhost.example.com", "10.0.0.1", "[fd00::1]", "::", "0.0.0.0"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
