//! The annotation [`PROVIDED_NODE_IP`](crate::node_keys::PROVIDED_NODE_IP): the addresses passed to
//! kubelet with `--node-ip`.

use std::net::IpAddr;

use crate::parse_ip;

/// Parses the annotation: one address, or one of each family. Strict: no blanks, no names, no
/// networks. Leading zeros in IPv4 octets are decimal, as in kubelet.
///
/// # Errors
///
/// The part that is invalid, and the reason.
pub fn parse(text: &str) -> Result<Vec<IpAddr>, String> {
    let unparsable =
        |part| format!("could not parse {part:?}: it must be an IP address without blanks");
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|part| parse_ip(part).ok_or_else(|| unparsable(part)))
        .collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [first, second] if first.is_ipv4() != second.is_ipv4() => {
            if first.is_unspecified() || second.is_unspecified() {
                return Err(format!(
                    "{text:?}: dual-stack node IP cannot include '0.0.0.0' or '::'"
                ));
            }
            Ok(ips)
        }
        _ => Err(format!("{text:?} must contain either a single IP or a dual-stack pair of IPs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parsed addresses, or the start of the error message.
    #[test]
    fn annotations_are_read_strictly() {
        let unparsable = Err("could not parse");
        let neither = Err("must contain either a single IP or a dual-stack pair");
        let unspecified = Err("dual-stack node IP cannot include");
        for (number, text, expect) in [
            (61, "", unparsable),
            (62, " ", unparsable),
            (63, "word", unparsable),
            (64, "1.2.3.4", Ok("1.2.3.4")),
            (65, " 1.2.3.4 ", unparsable),
            (66, "01.2.3.004", Ok("1.2.3.4")),
            (67, "1.2.3", unparsable),
            (68, "1.2.3.0/24", unparsable),
            (69, "0.0.0.0", Ok("0.0.0.0")),
            (70, "1.2.3.4,word", unparsable),
            (71, "abcd::ef01", Ok("abcd::ef01")),
            (72, "abcd:0abc:0:0:0:0:0:ef01", Ok("abcd:abc::ef01")),
            (73, "1.2.3.4,abcd::ef01", Ok("1.2.3.4,abcd::ef01")),
            (74, "abcd::ef01 , 1.2.3.4", unparsable),
            (75, "1.2.3.4,5.6.7.8", neither),
            (76, "abcd::1,abcd::2", neither),
            (77, "1.2.3.4,::", unspecified),
            (78, "0.0.0.0,abcd::1", unspecified),
            (79, "1.2.3.4,abcd::ef01,garbage", unparsable),
            (80, "1.2.3.4,abcd::ef01,5.6.7.8", neither),
            (0, "1.2.3.4,::ffff:5.6.7.8", neither),
            (0, "256.2.3.4", unparsable),
            (0, "0256.2.3.4", unparsable),
            (0, "0000000001.2.3.4", Ok("1.2.3.4")),
            (0, "1.2.3.4.5", unparsable),
            (0, "1..3.4", unparsable),
            (0, "+1.2.3.4", unparsable),
            (0, "fe80::1%eth0", unparsable),
            (0, "1.2.3.4,", unparsable),
        ] {
            let join = |ips: Vec<IpAddr>| {
                ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            let got = parse(text).map(join);
            match (&got, expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "scenario {number}: {text:?}"),
                (Err(got), Err(expect)) => {
                    assert!(got.contains(expect), "scenario {number}: {text:?}: {got}");
                }
                _ => panic!("scenario {number}: {text:?} is {got:?}, not {expect:?}"),
            }
        }
    }
}
