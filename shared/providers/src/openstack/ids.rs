//! The spellings of a provider ID.

use std::fmt;

/// The ID of a server: a UUID in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId(Box<str>);

impl ServerId {
    /// Reads a UUID in its usual form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let groups: Vec<_> = text.split('-').collect();
        let fits = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
            && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
        fits.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The UUID as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a provider ID says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A server of this region.
    Ours(ServerId),
    /// A server of the region of this name.
    AnotherRegion(String),
    /// Nothing: here is why.
    Malformed(String),
}

/// Reads a provider ID.
pub(crate) fn parse(text: &str, own_region: Option<&str>) -> Parsed {
    let rest = text.strip_prefix("openstack://").unwrap_or(text);
    let Some((region, id)) = rest.split_once('/') else {
        return Parsed::Malformed(format!("provider ID {text:?} didn't match expected format"));
    };
    match ServerId::parse(id) {
        _ if !region.is_empty() && Some(region) != own_region => {
            Parsed::AnotherRegion(region.to_owned())
        }
        Some(id) => Parsed::Ours(id),
        None => Parsed::Malformed(format!("provider ID {text:?} didn't match expected format")),
    }
}

/// Spells a provider ID.
pub(crate) fn format(regional: bool, region: Option<&str>, id: &ServerId) -> String {
    let region = region.filter(|_| regional).unwrap_or_default();
    format!("openstack://{region}/{id}")
}
