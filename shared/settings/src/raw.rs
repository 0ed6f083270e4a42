//! The merged layers: each value with its origin.

use std::{collections::BTreeMap, fmt};

use zeroize::Zeroizing;

use crate::{
    Problems, Setting, ValueKind,
    setting::{flag_of, key_of, variable_of},
    value::{may_hold_secret, redact},
};

/// The longest value of a provider's file that a problem shows, in characters.
const MOST_SHOWN: usize = 80;

/// The layer that a value came from. Later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// No layer sets it.
    Default,
    /// The configuration file.
    File(String),
    /// An environment variable.
    Environment,
    /// The command line.
    Flag,
    /// A place in a file with its own keys, in the words that its problems begin with.
    Place(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) | Self::Place(path) => f.write_str(path),
            Self::Environment => f.write_str("environment"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// One raw value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawValue {
    /// Its text; a list is joined with commas, the values of a repeated key with line breaks. It may be
    /// a secret, so its memory is wiped when it is dropped.
    pub text: Zeroizing<String>,
    /// Its layer.
    pub origin: Origin,
}

impl RawValue {
    /// Returns a value of a file with its own keys. Its problems show it, unless it is or may hold
    /// a secret, or is long.
    pub fn at(place: impl fmt::Display, kind: ValueKind, text: impl Into<String>) -> Self {
        let text = text.into();
        let is_hidden = kind == ValueKind::Secret || may_hold_secret(&text);
        let place = match text.chars().count() {
            1..=MOST_SHOWN if !is_hidden => format!("{place} = {text:?}"),
            _ => place.to_string(),
        };
        Self { text: text.into(), origin: Origin::Place(place) }
    }
}

/// All settings of a program, merged. Settings are named by their flag (`kube-api-qps`) or
/// their key (`kube_api_qps`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawSettings {
    values: BTreeMap<String, RawValue>,
}

impl RawSettings {
    /// Merges a file with its own keys over the defaults of this table. `find` returns the value of
    /// a setting if it is set, or the rule that it breaks. Problems with settings that are not set
    /// begin with `heading` and the key.
    pub fn of_file<'a>(
        heading: &str,
        table: impl IntoIterator<Item = &'a Setting>,
        find: impl Fn(&Setting) -> Result<Option<RawValue>, String>,
        problems: &mut Problems,
    ) -> Self {
        let mut raw = Self::default();
        for setting in table {
            let place = format!("{heading}{}", setting.flag);
            match find(setting) {
                Ok(value) => {
                    let default = || RawValue {
                        text: setting.default.to_owned().into(),
                        origin: Origin::Place(place),
                    };
                    raw.insert(setting.key(), value.unwrap_or_else(default));
                }
                Err(rule) => problems.add(place, rule),
            }
        }
        raw
    }

    /// Returns every setting, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the value of this setting.
    pub fn value(&self, name: &str) -> Option<&RawValue> {
        self.values.get(&key_of(name))
    }

    /// Replaces the value of a setting.
    pub(crate) fn insert(&mut self, key: String, value: RawValue) {
        self.values.insert(key, value);
    }

    /// Parses a setting. Records a problem and returns `None` if `reader` fails; its error is the
    /// rule that the value breaks. Also returns `None` for a setting whose problem is already
    /// recorded.
    pub fn read<T>(
        &self,
        name: &str,
        reader: impl FnOnce(&str) -> Result<T, String>,
        problems: &mut Problems,
    ) -> Option<T> {
        let value = self.value(name)?;
        reader(&value.text).map_err(|rule| problems.add(self.describe(name), rule)).ok()
    }

    /// Records a problem with a setting that could be parsed.
    pub fn reject(&self, name: &str, rule: impl Into<String>, problems: &mut Problems) {
        problems.add(self.describe(name), rule);
    }

    /// Records a warning about a setting that counts as it is.
    pub fn warn(&self, name: &str, what: impl fmt::Display, problems: &mut Problems) {
        problems.warn(format!("{}: {what}", self.describe(name)));
    }

    /// Returns the setting as the user gave it, with its origin: `--concurrent-node-syncs=0
    /// (flag)`.
    pub fn describe(&self, name: &str) -> String {
        let flag = flag_of(name);
        let Some(RawValue { text, origin }) = self.value(name) else { return format!("--{flag}") };
        let text = redact(text);
        match origin {
            Origin::Default | Origin::Flag => format!("--{flag}={text} ({origin})"),
            Origin::Environment => format!("{}={text} ({origin})", variable_of(&flag)),
            Origin::File(_) => format!("{}: {text} ({origin})", key_of(name)),
            Origin::Place(place) => place.clone(),
        }
    }
}
