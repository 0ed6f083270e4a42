//! The description of a setting, as data: the one place from which its flag, its
//! environment variable, its key in the file, `--help` and the reference page come.

/// What kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; as a flag also without a value.
    Switch,
    /// A whole number.
    Count,
    /// A number, fractions allowed.
    Number,
    /// A length of time as Go writes it: `5m0s`, `1h30m`, `250ms`.
    Duration,
    /// Any text.
    Text,
    /// Texts separated by commas; in a file also a list.
    List,
    /// The path of a file.
    Path,
}

impl Kind {
    /// The word that stands for the value in `--help` and in the table of options.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Switch => "true|false",
            Self::Count => "count",
            Self::Number => "number",
            Self::Duration => "duration",
            Self::Text => "text",
            Self::List => "list",
            Self::Path => "file",
        }
    }
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag without hyphens in front, for instance `concurrent-node-syncs`.
    pub flag: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The default as one would write it on the command line; empty for "none".
    pub default: &'static str,
    /// What it means, with the unit, and why the default is what it is.
    pub meaning: &'static str,
    /// Whether a change in the configuration file takes effect while the process runs.
    pub live: bool,
}

impl Setting {
    /// One that keeps its value until the next start.
    pub const fn fixed(
        kind: Kind,
        flag: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        // A doc comment begins with a blank.
        Self { flag, kind, default, meaning: meaning.trim_ascii_start(), live: false }
    }

    /// One that changes while the process runs.
    pub const fn live(
        kind: Kind,
        flag: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self { live: true, ..Self::fixed(kind, flag, default, meaning) }
    }

    /// The key in a configuration file.
    pub fn key(&self) -> String {
        key_of(self.flag)
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        variable_of(self.flag)
    }
}

/// `kube-api-qps` as a key: `kube_api_qps`.
pub(crate) fn key_of(flag: &str) -> String {
    flag.replace('-', "_")
}

/// `kube_api_qps` as a flag: `kube-api-qps`.
pub(crate) fn flag_of(key: &str) -> String {
    key.replace('_', "-")
}

/// `kube-api-qps` as an environment variable: `CCM__KUBE_API_QPS`.
pub(crate) fn variable_of(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key_of(flag).to_uppercase())
}

/// What every environment variable of Quartet starts with.
pub(crate) const VARIABLE_PREFIX: &str = "CCM__";
