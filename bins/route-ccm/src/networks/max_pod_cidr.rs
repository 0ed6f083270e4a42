//! `--max-pod-cidr`.

use std::{fmt, str::FromStr};

use ccm_cloud::IpFamily;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `--max-pod-cidr`: the shortest prefixes that pod CIDRs may have. 0 allows each size. `None` allows the usual size, which
/// most nodes have, and smaller ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxPodCidr {
    v4: Option<u8>,
    v6: Option<u8>,
}

/// Describes the form of a [`MaxPodCidr`].
const RULE: &str = "must be a prefix length of IPv4, or one of IPv4 and one of IPv6, such as 22 or 22,64, or one of IPv6 if --cluster-cidr has no IPv4 network; 0 allows each size";

impl MaxPodCidr {
    /// Returns the shortest prefix of this family.
    pub const fn for_family(self, family: IpFamily) -> Option<u8> {
        match family {
            IpFamily::V4 => self.v4,
            IpFamily::V6 => self.v6,
        }
    }

    /// Returns the lengths in a cluster without IPv4 networks: a single one is of IPv6.
    #[must_use]
    pub fn of_ipv6(self) -> Self {
        Self { v4: None, v6: self.v6.or(self.v4) }
    }

    /// Returns true if this is a single length that only IPv6 has.
    pub const fn is_only_of_ipv6(self) -> bool {
        self.v4.is_none() && self.v6.is_some()
    }
}

impl FromStr for MaxPodCidr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let length = |text: &str, most: u8| {
            let text = text.trim();
            let length = text.strip_prefix('/').unwrap_or(text).parse().ok();
            length.filter(|length| *length <= most).ok_or(RULE)
        };
        match text.split_once(',') {
            Some((v4, v6)) => Ok(Self { v4: Some(length(v4, 32)?), v6: Some(length(v6, 128)?) }),
            None => match length(text, 128)? {
                v4 @ ..=32 => Ok(Self { v4: Some(v4), v6: None }),
                v6 => Ok(Self { v4: None, v6: Some(v6) }),
            },
        }
    }
}

impl fmt::Display for MaxPodCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<_> = self.v4.iter().chain(&self.v6).map(ToString::to_string).collect();
        f.write_str(&lengths.join(","))
    }
}

impl Serialize for MaxPodCidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MaxPodCidr {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read() {
        let lengths = |v4, v6| Ok(MaxPodCidr { v4, v6 });
        for (text, expect) in [
            ("", lengths(None, None)),
            ("22", lengths(Some(22), None)),
            ("/22, /64", lengths(Some(22), Some(64))),
            ("0,64", lengths(Some(0), Some(64))),
            ("32", lengths(Some(32), None)),
            ("/64", lengths(None, Some(64))),
            ("129", Err(RULE)),
            ("64,64", Err(RULE)),
            ("22,129", Err(RULE)),
            ("22,", Err(RULE)),
            ("10.0.0.0/22", Err(RULE)),
            ("22,64,64", Err(RULE)),
            ("-1", Err(RULE)),
        ] {
            assert_eq!(text.parse(), expect, "{text:?}");
        }
        let shown = |text: &str| text.parse::<MaxPodCidr>().unwrap().to_string();
        assert_eq!(
            (shown(""), shown("/22"), shown("22, 64"), shown("64")),
            (String::new(), "22".into(), "22,64".into(), "64".into())
        );
    }
}
