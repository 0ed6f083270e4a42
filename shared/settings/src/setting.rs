//! The description of a setting as data. Its flag, environment variable, file key, `--help`
//! and the reference page follow from it.

use strum::IntoStaticStr;

/// The kind of value of a setting. Its text is the placeholder for the value in `--help` and in the
/// table of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ValueKind {
    /// `true` or `false`; the flag may omit the value.
    #[strum(serialize = "true|false")]
    Switch,
    /// A whole number.
    Count,
    /// A number, fractions allowed.
    Number,
    /// A number or a percentage of what may be done; 0 is an emergency stop. A stop that
    /// disappears from the file stays in force until the file names another value.
    #[strum(serialize = "count|percentage")]
    Limit,
    /// A duration in Go's format: `5m0s`, `1h30m`, `250ms`.
    Duration,
    /// Any text.
    Text,
    /// Texts separated by commas; in a file also a list.
    List,
    /// Text under a key that may be given several times.
    #[strum(serialize = "text, repeatable")]
    Repeated,
    /// Text that no message and no page shows.
    Secret,
    /// The path of a file.
    #[strum(serialize = "file")]
    Path,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag without hyphens in front, for instance `concurrent-node-syncs`.
    pub flag: &'static str,
    /// The kind of its value.
    pub kind: ValueKind,
    /// The default, as on the command line; empty if there is no default.
    pub default: &'static str,
    /// Its meaning, with the unit, and the reason for the default.
    pub meaning: &'static str,
    /// True if a change in the configuration file takes effect without a restart.
    pub live: bool,
}

impl Setting {
    /// Returns a setting that changes only with a restart.
    pub const fn fixed(
        kind: ValueKind,
        flag: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        // A doc comment begins with a space.
        Self { flag, kind, default, meaning: meaning.trim_ascii_start(), live: false }
    }

    /// Returns a setting that can change while the process runs.
    pub const fn live(
        kind: ValueKind,
        flag: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self { live: true, ..Self::fixed(kind, flag, default, meaning) }
    }

    /// Returns the key in a configuration file.
    pub fn key(&self) -> String {
        key_of(self.flag)
    }

    /// Returns the environment variable.
    pub fn variable(&self) -> String {
        variable_of(self.flag)
    }
}

/// Returns `kube-api-qps` as a key: `kube_api_qps`.
pub(crate) fn key_of(flag: &str) -> String {
    flag.replace('-', "_")
}

/// Returns `kube_api_qps` as a flag: `kube-api-qps`.
pub(crate) fn flag_of(key: &str) -> String {
    key.replace('_', "-")
}

/// Returns `kube-api-qps` as an environment variable: `CCM__KUBE_API_QPS`.
pub(crate) fn variable_of(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key_of(flag).to_uppercase())
}

/// The prefix of Quartet's environment variables.
pub(crate) const VARIABLE_PREFIX: &str = "CCM__";
