//! The identity of a node, and which provider owns it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::NodeAddress;

/// The maximum length of a provider ID in bytes. A node keeps its ID for life, and each lookup
/// sends it.
const LONGEST_ID: usize = 1024;

/// A provider ID: `<scheme>://<rest>`, as in `Node.spec.providerID`.
///
/// The scheme names the kind of provider; the format after `://` is the provider's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId {
    text: Box<str>,
    scheme: usize,
}

/// Why a text is not a provider ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("provider ID {text:?} does not have {}", ProviderId::FORM)]
pub struct ProviderIdError {
    /// The original text.
    pub text: String,
}

impl ProviderId {
    /// The form of all provider IDs, in words.
    pub const FORM: &str = "the form <scheme>://<id>, with a lower-case scheme, at most 1024 bytes and no control characters";

    /// Parses `<scheme>://<rest>`. Both parts must be non-empty; the scheme holds
    /// lower-case letters, digits, `+`, `-` and `.` and starts with a letter. The whole text has
    /// at most 1024 bytes, and no control characters or line breaks.
    pub fn parse(text: &str) -> Result<Self, ProviderIdError> {
        let wrong = || ProviderIdError { text: text.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let legal =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
        let starts_well = scheme.starts_with(|c: char| c.is_ascii_lowercase());
        // A space is legal: a region of OpenStack may have one.
        let odd = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
        if !starts_well
            || !scheme.chars().all(legal)
            || rest.is_empty()
            || rest.contains(odd)
            || text.len() > LONGEST_ID
        {
            return Err(wrong());
        }
        Ok(Self { text: text.into(), scheme: scheme.len() })
    }

    /// Returns the part before `://`.
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme).unwrap_or_default()
    }

    /// Returns the part after `://`, which only the provider can interpret.
    pub fn rest(&self) -> &str {
        self.text.get(self.scheme + "://".len()..).unwrap_or_default()
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for ProviderId {
    type Error = ProviderIdError;
    fn try_from(text: String) -> Result<Self, ProviderIdError> {
        Self::parse(&text)
    }
}

impl From<ProviderId> for String {
    fn from(id: ProviderId) -> Self {
        id.text.into()
    }
}

/// A node's identity: everything that a provider may use to find its instance.
///
/// Providers try the provider ID first, then the system UUID, then the exact name.
/// More than one match is an error ([`crate::ErrorKind::Conflict`]), never a guess.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// The Node object's name.
    pub name: String,
    /// `spec.providerID`, unmodified; it may be malformed.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID` (SMBIOS), as kubelet reported it.
    pub system_uuid: Option<String>,
    /// `metadata.uid`, if the provider [wants](crate::Wants) it.
    pub uid: Option<String>,
    /// `metadata.labels`, under the same condition; otherwise empty.
    pub labels: BTreeMap<String, String>,
    /// `status.addresses`, under the same condition; otherwise empty.
    pub addresses: Vec<NodeAddress>,
}

impl NodeIdentity {
    /// Returns an identity with only a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// The owner of a node, by its provider ID alone and without a cloud call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// The provider ID's scheme is this provider's.
    Ours,
    /// The provider ID belongs to another provider: the node is counted, never written.
    Foreign,
    /// The node has no provider ID yet; only a lookup can decide.
    Unclaimed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_keep_scheme_and_rest() {
        for (text, expect) in [
            ("sim://i-1", Some(("sim", "i-1"))),
            ("openstack:///uuid", Some(("openstack", "/uuid"))),
            ("openstack://region-1/uuid", Some(("openstack", "region-1/uuid"))),
            ("aws://12345", Some(("aws", "12345"))),
            ("node0.aws.12345", None),
            ("://x", None),
            ("sim://", None),
            ("Sim://x", None),
            ("1sim://x", None),
            ("", None),
            ("sim://a b", Some(("sim", "a b"))),
            ("sim://a\u{2028}", None),
            ("sim://a\n", None),
            ("sim://a\u{1b}[31m", None),
        ] {
            let got = ProviderId::parse(text);
            let parts = got.as_ref().ok().map(|id| (id.scheme(), id.rest()));
            assert_eq!(parts, expect, "{text}");
        }
        let long = |length| ProviderId::parse(&format!("sim://{}", "x".repeat(length)));
        assert!(long(LONGEST_ID - 6).is_ok() && long(LONGEST_ID - 5).is_err());
        assert!(ProviderId::FORM.contains(&format!("at most {LONGEST_ID} bytes")));
    }
}
