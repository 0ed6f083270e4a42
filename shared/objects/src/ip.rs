//! IP addresses as Kubernetes reads them.

use std::net::{IpAddr, Ipv4Addr};

/// Parses an IP address. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is IPv4. Leading zeros
/// in IPv4 octets are decimal, as in kubelet.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().ok().or_else(|| parse_padded_ipv4(text).map(IpAddr::V4))?;
    Some(ip.to_canonical())
}

/// Parses four decimal octets with leading zeros allowed.
fn parse_padded_ipv4(text: &str) -> Option<Ipv4Addr> {
    let octets: Vec<u8> = text
        .split('.')
        .map(|octet| {
            let digits = !octet.is_empty() && octet.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| octet.trim_start_matches('0'))
                .and_then(|rest| if rest.is_empty() { Some(0) } else { rest.parse().ok() })
        })
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kubernetes_reads_them() {
        let v4 = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        for (text, expect) in [
            ("10.0.0.1", v4),
            ("010.000.0.01", v4),
            ("::ffff:10.0.0.1", v4),
            ("fd00::1", Some(IpAddr::V6("fd00::1".parse().unwrap()))),
            ("10.0.0.256", None),
            ("10.0.0", None),
            ("10.0.0.", None),
            (" 10.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(parse_ip(text), expect, "{text:?}");
        }
    }
}
