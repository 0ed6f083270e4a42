//! The layers and how they are merged.

use std::collections::BTreeMap;

use serde_yaml_ng::Value;

use crate::{
    Catalogue, Origin, Problems, RawSettings, RawValue,
    catalogue::Known,
    file::Format,
    setting::{VARIABLE_PREFIX, key_of, variable_of},
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
    /// The path of the configuration file. Only a flag or a variable can name it.
    pub(crate) fn config_path(&self) -> Option<&str> {
        let flag = self.flags.get("config");
        flag.or_else(|| self.environment.get(&variable_of("config")))
            .map(String::as_str)
            .filter(|path| !path.is_empty())
    }

    /// The setting that names the configuration file, as the user gave it.
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
            raw.insert(key, RawValue { text: text.trim().to_owned(), origin: origin.clone() });
        }
    }
    raw
}

/// The settings in a file's text, by key. Keys may have hyphens.
fn file_values(
    catalogue: &Catalogue,
    given: &Given,
    path: &str,
    text: &str,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let Some(format) = Format::of(path) else {
        problems.add(
            given.describe_config(),
            "must be a file that ends in .yaml, .yml, .json or .toml",
        );
        return BTreeMap::new();
    };
    let values = match format.read(path, text) {
        Ok(values) => values,
        Err(problem) => {
            problems.push(problem);
            return BTreeMap::new();
        }
    };
    let mut known = BTreeMap::new();
    for (key, value) in &values {
        let key = text_of_one(key).unwrap_or_default();
        match catalogue.find(&key) {
            _ if key_of(&key) == "config" => {
                problems.add(format!("{key} ({path})"), "must be given as flag --config");
            }
            Some(Known::Setting(_)) => match text_of(value) {
                Some(text) => {
                    if known.insert(key_of(&key), text).is_some() {
                        problems.add(format!("{key} ({path})"), "must be given once");
                    }
                }
                None if value.is_null() => {}
                None => problems.add(format!("{key} ({path})"), "must be a single value or a list"),
            },
            Some(Known::Foreign(foreign)) => {
                problems.warn(format!("{key} ({path}) has no effect here: {}", foreign.why));
            }
            None => problems.add(format!("{key} ({path})"), unknown(catalogue, &key, key_of)),
        }
    }
    known
}

/// The message for an unknown name; `spelt` formats the suggested key.
fn unknown(catalogue: &Catalogue, key: &str, spelt: impl Fn(&str) -> String) -> String {
    match catalogue.nearest_setting(key) {
        Some(near) => format!("unknown setting; did you mean {}?", spelt(near)),
        None => "unknown setting; --help shows the known ones".to_owned(),
    }
}

/// The settings in the environment, by key.
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
            Some(Known::Setting(_)) => {
                known.insert(key, text.clone());
            }
            Some(Known::Foreign(foreign)) => {
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

/// A single value or a list of them as text.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Sequence(items) => {
            let items: Option<Vec<String>> = items.iter().map(text_of_one).collect();
            items.map(|items| items.join(","))
        }
        single => text_of_one(single),
    }
}

fn text_of_one(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(switch) => Some(switch.to_string()),
        // A whole number may be written as a fraction: 5.0.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|f| f.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
