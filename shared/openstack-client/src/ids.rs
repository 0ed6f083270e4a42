//! The IDs of servers.

use std::fmt;

/// The ID of a server: a UUID in lower case with its dashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Box<str>);

impl ServerId {
    /// Parses a UUID of either case in its usual form, 8-4-4-4-12 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let groups = || text.split('-');
        let right = groups().map(str::len).eq([8, 4, 4, 4, 12])
            && groups().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
        right.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Returns the UUID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
