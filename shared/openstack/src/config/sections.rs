//! Reads the sections of `cloud.conf`: their keys, and the values that the file gives.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use ccm_base::nearest;
use ccm_openstack_client::config::{GLOBAL, Given, TABLES, is_run_together};
use ccm_settings::{Problems, RawSettings, RawValue, Schema, Setting, ValueKind};

use super::{
    CLASSES, Labels, Metadata, Networking, Route,
    balancer::{LoadBalancer, LoadBalancerClass},
    foreign_words,
    ini::{self, KeyLine, Section},
};

/// The key whose values have their own rule.
const AUTH_URL: &str = "auth-url";
/// The key whose values are of the form key=value.
const SELECTOR: &str = "node-selector";
/// Sections that belong to other programs and are ignored silently.
pub const IGNORED: [&str; 2] = ["BlockStorage", "KeyManager"];

/// All sections with their keys.
pub const SECTIONS: [(&str, &[&[Setting]]); 7] = [
    (GLOBAL, &TABLES),
    ("Networking", &[Networking::TABLE]),
    ("Labels", &[Labels::TABLE]),
    ("Route", &[Route::TABLE]),
    ("Metadata", &[Metadata::TABLE]),
    ("LoadBalancer", &[LoadBalancer::TABLE, LoadBalancerClass::TABLE]),
    (CLASSES, &[LoadBalancerClass::TABLE]),
];

/// Returns the settings of a section.
pub fn keys(section: &str) -> impl Iterator<Item = &'static Setting> {
    let tables = SECTIONS.iter().filter(move |(name, _)| *name == section);
    tables.flat_map(|(_, tables)| *tables).copied().flatten()
}

/// Returns the values of `section`, merged over the defaults.
pub fn merged(section: &str, given: &Given, problems: &mut Problems) -> RawSettings {
    let find = |setting: &Setting| Ok(given.get(setting.flag).cloned());
    RawSettings::of_file(&format!("[{section}] "), keys(section), find, problems)
}

/// The file's contents, by the names of the section and of the class.
#[derive(Default)]
pub struct Sections {
    given: BTreeMap<(&'static str, String), Given>,
}

impl Sections {
    /// Reads the file's text. `resolve` makes the file's paths absolute.
    pub fn read(text: &str, resolve: &dyn Fn(&str) -> PathBuf, problems: &mut Problems) -> Self {
        let (sections, unreadable) = ini::parse(text);
        for line in unreadable {
            problems.add(format!("line {}", line.line), line.why);
        }
        let mut this = Self::default();
        for section in sections {
            if IGNORED.iter().any(|name| name.eq_ignore_ascii_case(&section.name)) {
                continue;
            }
            match place(&section) {
                Ok((name, class)) => {
                    let given = this.given.entry((name, class)).or_default();
                    for entry in &section.entries {
                        take(given, name, entry, resolve, problems);
                    }
                }
                Err(what) => problems.warn(format!("line {}: {what}", section.line)),
            }
        }
        this
    }

    /// Returns the values of a section.
    pub fn given(&self, section: &'static str) -> Given {
        self.given.get(&(section, String::new())).cloned().unwrap_or_default()
    }

    /// Returns a section as its typed value, or a part of it.
    pub fn typed<T: Schema>(&self, section: &'static str, problems: &mut Problems) -> Option<T> {
        T::read(&merged(section, &self.given(section), problems), problems)
    }

    /// Returns the names of the classes, each with what is set in it.
    pub fn classes(&self) -> impl Iterator<Item = (&str, &Given)> {
        let classes = self.given.iter().filter(|((section, _), _)| *section == CLASSES);
        classes.map(|((_, class), given)| (class.as_str(), given))
    }
}

/// Returns the known section and class that a heading means, or what is odd about it.
fn place(section: &Section) -> Result<(&'static str, String), String> {
    let names = SECTIONS.map(|(name, _)| name);
    let Some(name) = names.into_iter().find(|name| name.eq_ignore_ascii_case(&section.name)) else {
        let near = foreign_words::section(&section.name).or_else(|| nearest(&section.name, &names));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean [{near}]?"));
        return Err(format!("[{}]: unknown section{hint}", section.name));
    };
    match (&section.sub, name == CLASSES) {
        (Some(class), true) => Ok((name, class.clone())),
        (None, false) => Ok((name, String::new())),
        (None, true) => Err(format!("[{name}]: not used, it has no name; write [{name} \"name\"]")),
        (Some(sub), false) => {
            Err(format!("[{name} {sub:?}]: unknown section; did you mean [{name}]?"))
        }
    }
}

/// Adds one key to what its section gives.
fn take(
    given: &mut Given,
    section: &str,
    entry: &KeyLine,
    resolve: &dyn Fn(&str) -> PathBuf,
    problems: &mut Problems,
) {
    let found = keys(section).find(|setting| setting.flag.eq_ignore_ascii_case(&entry.key));
    let Some(&Setting { flag, kind, .. }) = found else {
        problems.warn(format!("line {}: {}", entry.line, unknown(section, entry)));
        return;
    };
    let place = format!("line {}: [{section}] {flag}", entry.line);
    if kind == ValueKind::Secret
        && let Some(trap) = entry.trap
    {
        problems.warn(format!("{place}: {}", trap.words()));
    }
    if kind != ValueKind::Secret
        && let Some(secret) = entry.value.as_deref().and_then(|text| run_in(flag, text))
    {
        problems.add(place, format!("holds {secret} = as well: is a line break missing?"));
        return;
    }
    let before = given.remove(flag);
    if before.is_some() && kind != ValueKind::Repeated {
        problems.warn(format!("{place}: given before; the last one counts"));
    }
    let text = match (entry.value.as_deref(), kind, before) {
        (None, ValueKind::Repeated, _) => return,
        (None, ValueKind::Switch, _) => "true".to_owned(),
        (None, ..) => {
            problems.add(place, format!("has no value; must be {flag} = value"));
            return;
        }
        (Some(text), ValueKind::Path, _) if !text.is_empty() => resolve(text).display().to_string(),
        (Some(text), ValueKind::Repeated, Some(before)) => format!("{}\n{text}", *before.text),
        (Some(text), ..) => text.to_owned(),
    };
    // Without a value, the default is used if the option is not a text.
    let is_text =
        matches!(kind, ValueKind::Text | ValueKind::Secret | ValueKind::Path | ValueKind::Repeated);
    if !text.is_empty() || !is_text {
        let shown = if is_hidden(flag, &text) { ValueKind::Secret } else { kind };
        given.insert(flag, RawValue::at(place, shown, text));
    }
}

/// Returns the key of a secret that this value holds together with its `=`, because the line break
/// before it is missing. It would be shown wherever the value is: in the messages of requests, for
/// example.
fn run_in(flag: &str, text: &str) -> Option<&'static str> {
    if flag == AUTH_URL {
        return None;
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.split('=').rev().skip(1).find_map(|before| {
        let before = before.trim_end();
        let key = before.rsplit(|c| !fits(c)).next()?;
        let is_apart = before.strip_suffix(key)?.ends_with(char::is_whitespace);
        if flag == SELECTOR && !is_apart {
            return None;
        }
        let key = key.to_ascii_lowercase().replace('_', "-");
        let found = secrets().filter(|secret| key.ends_with(secret));
        // The text "password" is also the end of "trustee-password".
        found.max_by_key(|secret| secret.len())
    })
}

/// Returns the keys of secrets.
fn secrets() -> impl Iterator<Item = &'static str> {
    let secrets = keys(GLOBAL).filter(|setting| setting.kind == ValueKind::Secret);
    secrets.map(|setting| setting.flag)
}

/// Returns true if problems with this value must not show it.
fn is_hidden(flag: &str, text: &str) -> bool {
    flag == AUTH_URL && is_run_together(text)
}

/// Returns true if this can be a key that a person has written. Otherwise it may be the second line
/// of a secret that was broken in two, such as `c2VjcmV0==`, and is not shown.
fn is_key(KeyLine { key, value, .. }: &KeyLine) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    let has_value = value.as_ref().is_some_and(|value| !value.trim_start_matches('=').is_empty());
    has_value && key.starts_with(|c: char| c.is_ascii_lowercase()) && key.chars().all(fits)
}

/// Returns the message about a key that its section does not have.
fn unknown(section: &str, entry: &KeyLine) -> String {
    let key = &entry.key;
    if let Some(why) = foreign_words::retired(section, entry) {
        return format!("[{section}] {key}: {why}");
    }
    let elsewhere = SECTIONS
        .iter()
        .find(|(name, _)| keys(name).any(|setting| setting.flag.eq_ignore_ascii_case(key)));
    let here: Vec<_> = keys(section).map(|setting| setting.flag).collect();
    let named = foreign_words::key(section, key);
    let hint = match (elsewhere, nearest(key, &here)) {
        _ if let Some(name) = named => format!("; its name here is {name}"),
        (Some((name, _)), _) => format!("; it belongs in [{name}]"),
        (None, Some(near)) => format!("; did you mean {near}?"),
        (None, None) if !is_key(entry) => {
            let why = "not shown because it may be a part of a value";
            return format!("[{section}]: unknown key, {why}");
        }
        (None, None) => String::new(),
    };
    format!("[{section}] {key}: unknown key{hint}")
}

/// Returns the keys of all sections, as tables for the reference page.
pub fn reference() -> String {
    let mut page = String::new();
    for (section, _) in SECTIONS {
        let name = if section == CLASSES { " \"name\"" } else { "" };
        let table = ccm_settings::keys(keys(section));
        // Writing to a String cannot fail.
        write!(page, "### `[{section}{name}]`\n\n{table}\n").unwrap_or_default();
    }
    let ignored = IGNORED.map(|name| format!("`[{name}]`")).join(" and ");
    page + &ignored + " belong to other programs and are ignored silently.\n"
}
