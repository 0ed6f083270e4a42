//! Loads all layers, and reloads the file.

use std::{collections::BTreeMap, ffi::OsString, fmt, ops::Deref, path::Path};

use ccm_base::Files;
use serde::Serialize;
use serde_json::json;

use crate::{
    Action, Catalogue, Origin, Problems, RawSettings, RawValue, Setting, UsageError, ValueKind,
    catalogue::NameTarget,
    layers::{Given, merge},
    parse, redact,
    yaml::LARGEST,
};

/// The arguments and environment of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
}

impl Invocation {
    /// Returns the arguments and the environment of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            arguments: std::env::args_os().skip(1).collect(),
            environment: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// Returns these arguments and an empty environment.
    pub fn with_arguments<I: Into<OsString>>(arguments: impl IntoIterator<Item = I>) -> Self {
        Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: BTreeMap::new(),
        }
    }
}

/// The reason why the settings could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// Settings are invalid.
    #[error("{0}")]
    Problems(#[from] Problems),
}

/// Converts the merged layers. Records every problem.
type Convert<T> = Box<dyn Fn(&RawSettings, &mut Problems) -> Option<T> + Send + Sync>;

/// The settings of a process: all layers merged, and the typed value.
pub struct Loaded<T> {
    typed: T,
    /// The raw values.
    pub raw: RawSettings,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The text of the configuration file.
    pub file: Option<String>,
    given: Given,
    catalogue: Catalogue,
    convert: Convert<T>,
}

/// The typed settings.
impl<T> Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.typed
    }
}

impl<T> fmt::Debug for Loaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// The effect of a new version of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The keys that changed.
    pub changed: Vec<String>,
    /// The keys that changed in the file, but take effect only after a restart.
    pub restart: Vec<String>,
    /// The limits that stay 0 although they have disappeared from the file.
    pub stops: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Reads configuration files, unless one is larger than a configuration can be.
pub fn configuration_files() -> Files {
    Files::of_at_most(LARGEST)
}

/// Loads all layers: the command line, the environment and the file.
pub fn load<T>(
    catalogue: Catalogue,
    invocation: &Invocation,
    convert: impl Fn(&RawSettings, &mut Problems) -> Option<T> + Send + Sync + 'static,
) -> Result<Loaded<T>, LoadError> {
    let command = parse(&catalogue, &invocation.arguments)?;
    if !matches!(
        command.action,
        Action::Run | Action::CheckConfig | Action::PrintConfig | Action::PrintRights
    ) {
        let text = "the command line only prints a text and loads no settings".to_owned();
        return Err(UsageError(text).into());
    }
    let given = Given { flags: command.flags, environment: invocation.environment.clone() };
    let file = match given.config_path() {
        None => None,
        Some(path) => {
            let text = configuration_files().text(Path::new(path));
            Some(text.map_err(|error| unreadable(&given, &error))?)
        }
    };
    let mut problems = Problems::default();
    let raw = merge(&catalogue, &given, file.as_deref(), &mut problems);
    let convert: Convert<T> = Box::new(convert);
    let typed = typed(&convert, &raw, &mut problems)?;
    let warnings = [&command.warnings, problems.warnings()].concat();
    Ok(Loaded { typed, raw, warnings, file, given, catalogue, convert })
}

fn unreadable(given: &Given, error: &str) -> Problems {
    let mut problems = Problems::default();
    problems.add(given.describe_config(), format!("must be a readable file: {error}"));
    problems
}

/// Converts merged layers and adds to the problems found so far.
fn typed<T>(
    convert: &Convert<T>,
    raw: &RawSettings,
    problems: &mut Problems,
) -> Result<T, Problems> {
    match convert(raw, problems) {
        Some(typed) if problems.is_empty() => return Ok(typed),
        // If a program returned `None` without a problem, the user would not learn the reason.
        _ if problems.is_empty() => {
            problems.add("settings", "is invalid");
        }
        _ => {}
    }
    Err(std::mem::take(problems))
}

impl<T> Loaded<T> {
    /// Returns the path of the configuration file.
    pub fn config_path(&self) -> Option<&str> {
        self.given.config_path()
    }

    /// Applies a new text of the configuration file, as far as possible without a restart. The
    /// whole text must be valid, including settings that need a restart: otherwise the mistake
    /// would surface only at the next start.
    pub fn take(&mut self, content: Result<String, String>) -> Result<Changes, Problems> {
        let text = content.map_err(|error| unreadable(&self.given, &error))?;
        let mut problems = Problems::default();
        let merged = merge(&self.catalogue, &self.given, Some(&text), &mut problems);
        typed(&self.convert, &merged, &mut problems)?;
        let (raw, mut changes) = self.effective(&merged);
        changes.warnings.extend_from_slice(problems.warnings());
        self.typed = typed(&self.convert, &raw, &mut Problems::default())?;
        (self.raw, self.file) = (raw, Some(text));
        Ok(changes)
    }

    /// Returns the new values of live settings, the old values of all others and of emergency stops
    /// that have disappeared.
    fn effective(&self, new: &RawSettings) -> (RawSettings, Changes) {
        let mut changes = Changes::default();
        let mut effective = RawSettings::default();
        for (key, value) in new.iter() {
            let kept = match (self.catalogue.find(key), self.raw.value(key)) {
                (Some(NameTarget::Setting(entry)), Some(old)) => {
                    let fate = Fate::decide(&entry.setting, old, value);
                    changes.note(fate, key, old, value);
                    if matches!(fate, Fate::Restart | Fate::Stop) { old } else { value }
                }
                _ => value,
            };
            effective.insert(key.to_owned(), kept.clone());
        }
        (effective, changes)
    }
}

/// The effect of a new version of the file on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Same,
    Changed,
    /// It has disappeared, so the default is used.
    Default,
    /// It has disappeared, but was an emergency stop, so it stays.
    Stop,
    /// It stays until a restart.
    Restart,
}

impl Fate {
    fn decide(setting: &Setting, old: &RawValue, new: &RawValue) -> Self {
        let has_gone = matches!(old.origin, Origin::File(_)) && new.origin == Origin::Default;
        let is_stop = || old.text.trim_end_matches('%').trim().parse() == Ok(0_u32);
        if old.text == new.text {
            Self::Same
        } else if has_gone && setting.kind == ValueKind::Limit && is_stop() {
            Self::Stop
        } else if !setting.live {
            Self::Restart
        } else if has_gone {
            Self::Default
        } else {
            Self::Changed
        }
    }
}

impl Changes {
    fn note(&mut self, fate: Fate, key: &str, old: &RawValue, new: &RawValue) {
        let gone = format!("{key} is no longer in {}", old.origin);
        let (before, after) = (redact(&old.text), redact(&new.text));
        match fate {
            Fate::Same => {}
            Fate::Changed => self.changed.push(key.to_owned()),
            Fate::Default => {
                self.changed.push(key.to_owned());
                self.warnings
                    .push(format!("{gone}: the default {after:?} takes the place of {before:?}"));
            }
            Fate::Stop => {
                self.stops.push(key.to_owned());
                self.warnings.push(format!(
                    "{gone}: it was an emergency stop, so {before:?} stays in force until the file names another value \
                     (the default is {after:?})"
                ));
            }
            Fate::Restart => self.restart.push(key.to_owned()),
        }
    }
}

impl<T: Serialize> Loaded<T> {
    /// Returns the page `/configz`: each setting with its origin, and the typed settings. Passwords
    /// in URLs are redacted; other secrets are in files, never in settings.
    pub fn configz(&self) -> String {
        let setting = |(key, value): (_, &RawValue)| {
            (key, json!({"value": redact(&value.text), "origin": value.origin.to_string()}))
        };
        let settings: BTreeMap<&str, serde_json::Value> = self.raw.iter().map(setting).collect();
        let about = self.catalogue.about();
        let page = json!({
            about.binary: {"version": about.version, "commit": about.commit, "settings": settings, "effective": self.typed}
        });
        format!("{page:#}\n")
    }
}
