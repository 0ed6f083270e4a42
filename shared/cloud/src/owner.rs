//! The owner of an object in the cloud, and the configuration that it was made from.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId {
    /// `--cluster-name`. Several clusters may have the same name, so it proves nothing.
    pub name: String,
    /// The UID of the namespace `kube-system`, or `--cluster-uid`.
    pub uid: String,
}

/// The Kubernetes object for which an object in the cloud exists. A provider stores it with
/// every object that it creates, and finds its objects by it. `cluster.uid` and `uid` identify;
/// the names are for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The UID of the object, for instance of a Service.
    pub uid: String,
    /// Its namespace; empty for a Node.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Owner {
    /// Returns true if both are the same object of the same cluster.
    pub fn is(&self, other: &Self) -> bool {
        self.cluster.uid == other.cluster.uid && self.uid == other.uid
    }
}

/// `namespace/name`, or the name of an object without a namespace, for messages.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// The digest of a configuration. A provider stores it with the configured object if it can, and
/// returns it in lists: equal digests mean that there is nothing to do.
///
/// Digests of different versions cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    /// The version of the rules by which the configuration was written down and hashed.
    pub version: u32,
    /// The hash.
    pub hash: u128,
}

/// A text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest: expected <version>-<32 hexadecimal digits>")]
pub struct DigestError(String);

/// The number of hexadecimal digits of the hash.
const DIGITS: usize = 32;

impl Digest {
    /// Returns true if this digest shows that `applied` was made from another configuration. A
    /// digest that is absent or of another version does not show anything.
    pub fn differs_from(self, applied: Option<Self>) -> bool {
        applied.is_some_and(|applied| applied.version == self.version && applied.hash != self.hash)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:0DIGITS$x}", self.version, self.hash)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let read = || {
            let (version, hash) = text.split_once('-')?;
            let digits = |text: &str, radix: u32| text.chars().all(|c| c.is_digit(radix));
            if hash.len() != DIGITS || !digits(hash, 16) || !digits(version, 10) {
                return None;
            }
            let hash = u128::from_str_radix(hash, 16).ok()?;
            Some(Self { version: version.parse().ok()?, hash })
        };
        read().ok_or_else(|| DigestError(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        for digest in [
            Digest { version: 1, hash: 0 },
            Digest { version: 12, hash: u128::MAX },
            Digest { version: 0, hash: 0xabc },
        ] {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        let zeros = "0".repeat(DIGITS);
        for text in [
            "",
            "1",
            "1-",
            "1-abc",
            &zeros,
            &format!("-{zeros}"),
            &format!("1-+{zeros}"),
            &format!("+1-{zeros}"),
            &format!("1-{zeros}0"),
            &format!("99999999999-{zeros}"),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_a_digest_of_the_same_version_shows_a_difference() {
        let digest = Digest { version: 2, hash: 7 };
        assert!(digest.differs_from(Some(Digest { version: 2, hash: 8 })));
        for applied in [None, Some(digest), Some(Digest { version: 1, hash: 8 })] {
            assert!(!digest.differs_from(applied), "{applied:?}");
        }
    }

    #[test]
    fn an_owner_is_known_by_its_uids_alone() {
        let owner = |cluster: &str, uid: &str, name: &str| Owner {
            cluster: ClusterId { name: name.to_owned(), uid: cluster.to_owned() },
            uid: uid.to_owned(),
            namespace: name.to_owned(),
            name: name.to_owned(),
        };
        assert!(owner("c", "s", "a").is(&owner("c", "s", "b")));
        assert!(!owner("c", "s", "a").is(&owner("d", "s", "a")));
        assert!(!owner("c", "s", "a").is(&owner("c", "t", "a")));
    }
}
