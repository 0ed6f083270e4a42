//! Every key of `cloud.conf`, as data: what the reader accepts and what the reference
//! page shows are the same table.

mod page;
mod table;

pub use page::markdown;
pub use table::{ENVIRONMENT, IGNORED_SECTIONS, SETTINGS};

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that no log and no error shows.
    Secret,
    /// A path; relative ones begin at the file's folder, `~/` at the home folder.
    File,
    /// An `http` or `https` URL.
    Url,
    /// `true`, `yes`, `on`, `1`, or `false`, `no`, `off`, `0`; without `=` it is true.
    Flag,
    /// A text of which exactly `true` counts.
    ExactlyTrue,
    /// A length of time as in Go (`1m30s`), or a whole number of seconds.
    Duration,
    /// A whole number from 0.
    Count,
    /// A text that may be given several times.
    Texts,
    /// Network prefixes (`10.0.0.0/8`), separated by commas.
    Networks,
    /// Keys of metadata, separated by commas; one with `*` at its end is a beginning.
    Patterns,
    /// One of these; anything else is refused.
    OneOf(&'static [&'static str]),
    /// One of these; anything else is passed on with a warning.
    Usually(&'static [&'static str]),
    /// One or two of these, separated by a comma.
    Order(&'static [&'static str]),
}

impl Kind {
    /// The word for it in the reference.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Secret => "secret",
            Self::File => "file",
            Self::Url => "URL",
            Self::Flag => "flag",
            Self::ExactlyTrue => "true",
            Self::Duration => "duration",
            Self::Count => "count",
            Self::Texts => "list",
            Self::Networks => "networks",
            Self::Patterns => "patterns",
            Self::OneOf(_) | Self::Usually(_) => "choice",
            Self::Order(_) => "order",
        }
    }
}

/// One key of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The section's name, without brackets.
    pub section: &'static str,
    /// The key, in lower case.
    pub key: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it; empty for nothing.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

/// The section whose headings bear a name of their own.
pub const CLASSES: &str = "LoadBalancerClass";

/// The names of all sections that have keys, in the table's order.
pub(super) fn sections() -> Vec<&'static str> {
    let mut names: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
    names.dedup();
    names
}

/// The section as it is spelt here, whatever its case there.
pub(super) fn section(name: &str) -> Option<&'static str> {
    sections().into_iter().find(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a section of this name is passed over in silence.
pub(super) fn is_ignored(section: &str) -> bool {
    IGNORED_SECTIONS.iter().any(|known| known.eq_ignore_ascii_case(section))
}

/// The key of the section, whatever its case.
pub(super) fn setting(section: &str, key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        setting.section.eq_ignore_ascii_case(section) && setting.key.eq_ignore_ascii_case(key)
    })
}
