//! The layers and how they are merged.

use std::{collections::BTreeMap, path::Path};

use config::{Config, FileFormat, Map, Source as _, Value, ValueKind};

use crate::{
    Catalogue, Origin, Problems, RawSettings, RawValue,
    catalogue::NameTarget,
    setting::{VARIABLE_PREFIX, key_of, variable_of},
    unreadable,
    yaml::check_yaml,
};

/// The flags and environment variables. They do not change while the process runs and are
/// kept for reloads of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// By key.
    pub(crate) flags: BTreeMap<String, String>,
    /// All variables of the process; Quartet's are filtered out later.
    pub(crate) environment: BTreeMap<String, String>,
}

impl Given {
    /// Returns the path of the configuration file. Only a flag or a variable can name it.
    pub(crate) fn config_path(&self) -> Option<&str> {
        let flag = self.flags.get("config");
        flag.or_else(|| self.environment.get(&variable_of("config")))
            .map(String::as_str)
            .filter(|path| !path.is_empty())
    }

    /// Returns the setting that names the configuration file, as the user gave it.
    pub(crate) fn describe_config(&self) -> String {
        let path = self.config_path().unwrap_or_default();
        if self.flags.contains_key("config") {
            format!("--config={path} (flag)")
        } else {
            format!("{}={path} (environment)", variable_of("config"))
        }
    }
}

/// Merges defaults, the file's text, the environment and the flags.
pub(crate) fn merge(
    catalogue: &Catalogue,
    given: &Given,
    file: Option<&str>,
    problems: &mut Problems,
) -> RawSettings {
    let defaults =
        catalogue.entries().iter().map(|entry| (entry.setting.key(), entry.default.to_string()));
    let path = given.config_path().unwrap_or_default();
    let file = match file {
        Some(text) => file_values(catalogue, given, path, text, problems),
        None => BTreeMap::new(),
    };
    let environment = environment_values(catalogue, &given.environment, problems);
    let mut raw = RawSettings::default();
    for (origin, layer) in [
        (Origin::Default, defaults.collect()),
        (Origin::File(path.to_owned()), file),
        (Origin::Environment, environment),
        (Origin::Flag, given.flags.clone()),
    ] {
        for (key, text) in layer {
            raw.insert(
                key,
                RawValue { text: text.trim().to_owned().into(), origin: origin.clone() },
            );
        }
    }
    raw
}

/// Returns a file's keys and values, or nothing if it cannot be read.
fn parsed(
    given: &Given,
    path: &str,
    text: &str,
    problems: &mut Problems,
) -> Option<Map<String, Value>> {
    let Some(format) = format_of(path) else {
        problems.add(
            given.describe_config(),
            "must be a file that ends in .yaml, .yml, .json or .toml",
        );
        return None;
    };
    // Some editors put a byte order mark before the first key.
    let text = text.trim_start_matches('\u{feff}');
    if format == FileFormat::Yaml
        && let Err(error) = check_yaml(text)
    {
        problems.push(unreadable::yaml(path, &error));
        return None;
    }
    let read = Config::builder().add_source(config::File::from_str(text, format)).build();
    let values = read.and_then(|read| read.collect());
    values.inspect_err(|error| problems.push(unreadable::problem(path, &error.to_string()))).ok()
}

/// Returns the settings in a file's text, by key. Keys may have hyphens.
fn file_values(
    catalogue: &Catalogue,
    given: &Given,
    path: &str,
    text: &str,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let Some(values) = parsed(given, path, text, problems) else { return BTreeMap::new() };
    if values.is_empty() {
        // An empty file is more likely a mistake than an intention, and the defaults would remove
        // every protection in it.
        problems
            .add(path, "must hold at least one setting; to use the defaults, leave out --config");
    }
    let mut known = BTreeMap::new();
    // The keys are sorted, so that messages come in a stable order.
    for (key, value) in values.into_iter().collect::<BTreeMap<_, _>>() {
        match catalogue.find(&key) {
            _ if key_of(&key) == "config" => {
                problems.add(format!("{key} ({path})"), "must be given as flag --config");
            }
            Some(NameTarget::Setting(_)) => match text_of(&value) {
                Some(text) => {
                    if known.insert(key_of(&key), text).is_some() {
                        problems.add(format!("{key} ({path})"), "must be given once");
                    }
                }
                // A file that was cut is more likely than the wish for a default.
                None if matches!(value.kind, ValueKind::Nil) => problems.add(
                    format!("{key} ({path})"),
                    "must have a value; to use the default, leave the key out",
                ),
                None => problems.add(format!("{key} ({path})"), "must be a single value or a list"),
            },
            Some(NameTarget::Foreign(foreign)) => {
                problems.warn(format!("{key} ({path}) has no effect here: {}", foreign.why));
            }
            None => problems.add(format!("{key} ({path})"), unknown(catalogue, &key, key_of)),
        }
    }
    known
}

/// Returns the message for an unknown name; `spelt` formats the suggested key.
fn unknown(catalogue: &Catalogue, key: &str, spelt: impl Fn(&str) -> String) -> String {
    match catalogue.nearest_setting(key) {
        Some(near) => format!("unknown setting; did you mean {}?", spelt(near)),
        None => "unknown setting; --help shows the known ones".to_owned(),
    }
}

/// Returns the settings in the environment, by key.
fn environment_values(
    catalogue: &Catalogue,
    environment: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for (variable, text) in environment {
        let Some(key) = variable.strip_prefix(VARIABLE_PREFIX).map(str::to_lowercase) else {
            continue;
        };
        match catalogue.find(&key) {
            Some(NameTarget::Setting(_)) => {
                known.insert(key, text.clone());
            }
            Some(NameTarget::Foreign(foreign)) => {
                problems
                    .warn(format!("{variable} (environment) has no effect here: {}", foreign.why));
            }
            None => {
                let hint = unknown(catalogue, &key, variable_of);
                problems.add(format!("{variable} (environment)"), hint);
            }
        }
    }
    known
}

/// Returns the format that the file's extension indicates.
fn format_of(path: &str) -> Option<FileFormat> {
    let ending = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "yaml" | "yml" => Some(FileFormat::Yaml),
        "json" => Some(FileFormat::Json),
        "toml" => Some(FileFormat::Toml),
        _ => None,
    }
}

/// Returns a single value or a list of them as text.
fn text_of(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Nil | ValueKind::Table(_) => None,
        ValueKind::Array(items) => {
            let single = |item: &Value| match item.kind {
                ValueKind::Array(_) => None,
                _ => text_of(item),
            };
            let items: Option<Vec<String>> = items.iter().map(single).collect();
            items.map(|items| items.join(","))
        }
        single => Some(single.to_string()),
    }
}
