//! The file's sections, held against the table of settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use ccm_base::nearest;
use ipnet::IpNet;

use super::{
    environment::{Environment, resolved},
    ini::{self, Entry, Section},
    notes::Notes,
    options::{self, CLASSES, Kind, Setting},
    values::{self, Verdict},
};

/// The longest value that an error shows.
const MAX_SHOWN: usize = 80;

/// Where a key stands: its section, the section's own name, the key.
type Place = (&'static str, String, &'static str);

/// What the file gives; typed by the getters. A value that is wrong has been noted as
/// a problem, and reads as not given.
pub(super) struct Settings {
    given: BTreeMap<Place, Vec<String>>,
    refused: BTreeSet<Place>,
    classes: Vec<String>,
    folder: PathBuf,
}

impl Settings {
    /// Reads the text of the file at `path`.
    pub(super) fn read(path: &Path, text: &str, notes: &mut Notes) -> Self {
        let (sections, unreadable) = ini::parse(text);
        for line in unreadable {
            notes.problem(format!("line {}: {}", line.line, line.why));
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut settings =
            Self { given: BTreeMap::new(), refused: BTreeSet::new(), classes: Vec::new(), folder };
        for section in sections.iter().filter(|section| !options::is_ignored(&section.name)) {
            settings.section(section, notes);
        }
        settings
    }

    fn section(&mut self, section: &Section, notes: &mut Notes) {
        let line = section.line;
        let Some(name) = options::section(&section.name) else {
            let hint = nearest(&section.name, &options::sections())
                .map_or_else(String::new, |near| format!("; did you mean [{near}]?"));
            notes.warning(format!("line {line}: [{}]: unknown section{hint}", section.name));
            return;
        };
        let sub = match (name == CLASSES, &section.sub) {
            (true, Some(class)) => class,
            (false, None) => "",
            (true, None) => {
                notes.warning(format!(
                    "line {line}: [{name}]: not used, it has no name; write [{name} \"name\"]"
                ));
                return;
            }
            (false, Some(sub)) => {
                notes.warning(format!(
                    "line {line}: [{name} {sub:?}]: unknown section; did you mean [{name}]?"
                ));
                return;
            }
        };
        if name == CLASSES && !self.classes.iter().any(|class| class == sub) {
            self.classes.push(sub.to_owned());
        }
        for entry in &section.entries {
            match options::setting(name, &entry.key) {
                Some(setting) => self.entry(setting, sub, entry, notes),
                None => notes.warning(unknown(name, entry)),
            }
        }
    }

    fn entry(&mut self, setting: &Setting, sub: &str, entry: &Entry, notes: &mut Notes) {
        let place = format!("line {}: [{}] {}", entry.line, setting.section, setting.key);
        let values = self.given.entry((setting.section, sub.to_owned(), setting.key)).or_default();
        let is_list = setting.kind == Kind::Texts;
        if !is_list && !values.is_empty() {
            notes.warning(format!("{place}: given before; the last one counts"));
            values.clear();
        }
        let text = match (&entry.value, setting.kind) {
            (Some(text), _) => text,
            (None, Kind::Flag) => "true",
            (None, Kind::Texts) => {
                values.clear();
                return;
            }
            (None, _) => {
                let key = setting.key;
                notes.problem(format!("{place}: has no value; must be {key} = value"));
                return;
            }
        };
        match values::verdict(setting.kind, text) {
            Verdict::Good => {}
            Verdict::Odd(what) => notes.warning(format!("{place}: {}{what}", shown(text))),
            Verdict::Wrong(what) => {
                notes.problem(format!("{place}: {}{what}", shown(text)));
                self.refused.insert((setting.section, sub.to_owned(), setting.key));
                return;
            }
        }
        if !text.is_empty() {
            values.push(text.to_owned());
        }
    }

    fn values(&self, section: &'static str, sub: &str, key: &'static str) -> &[String] {
        debug_assert!(options::setting(section, key).is_some(), "[{section}] {key} has no row");
        self.given.get(&(section, sub.to_owned(), key)).map_or(&[], Vec::as_slice)
    }

    /// Whether the key is given with a value that cannot be used.
    pub(super) fn is_refused(&self, section: &'static str, key: &'static str) -> bool {
        self.refused.contains(&(section, String::new(), key))
    }

    /// The names of the load balancer classes, in the file's order.
    pub(super) fn classes(&self) -> &[String] {
        &self.classes
    }

    /// A key of a load balancer class.
    pub(super) fn of_class(&self, class: &str, key: &'static str) -> Option<String> {
        self.values(CLASSES, class, key).last().cloned()
    }

    /// A text as given; none when empty.
    pub(super) fn given(&self, section: &'static str, key: &'static str) -> Option<String> {
        self.values(section, "", key).last().cloned()
    }

    /// A text, or its default.
    pub(super) fn text(&self, section: &'static str, key: &'static str) -> String {
        let default = options::setting(section, key).map_or("", |setting| setting.default);
        self.given(section, key).unwrap_or_else(|| default.to_owned())
    }

    /// All texts of a list.
    pub(super) fn texts(&self, section: &'static str, key: &'static str) -> Vec<String> {
        self.values(section, "", key).to_vec()
    }

    /// Yes or no.
    pub(super) fn flag(&self, section: &'static str, key: &'static str) -> bool {
        values::flag(&self.text(section, key)).unwrap_or_default()
    }

    /// A length of time.
    pub(super) fn duration(&self, section: &'static str, key: &'static str) -> Duration {
        values::duration(&self.text(section, key)).unwrap_or_default()
    }

    /// A number.
    pub(super) fn count(&self, section: &'static str, key: &'static str) -> u32 {
        values::count(&self.text(section, key)).unwrap_or_default()
    }

    /// Network prefixes.
    pub(super) fn networks(&self, section: &'static str, key: &'static str) -> Vec<IpNet> {
        values::networks(&self.text(section, key)).0
    }

    /// Keys, or beginnings of keys with `*`.
    pub(super) fn patterns(&self, section: &'static str, key: &'static str) -> Vec<String> {
        values::patterns(&self.text(section, key)).0
    }

    /// A path.
    pub(super) fn file(
        &self,
        section: &'static str,
        key: &'static str,
        environment: &dyn Environment,
    ) -> Option<PathBuf> {
        self.given(section, key).map(|text| resolved(&text, &self.folder, environment))
    }
}

/// The value in quotes and a blank, unless it is empty, long, or may hold a password.
fn shown(text: &str) -> String {
    match text {
        "" => String::new(),
        text if text.contains('@') || text.chars().count() > MAX_SHOWN => "the value ".to_owned(),
        text => format!("{text:?} "),
    }
}

fn unknown(section: &str, entry: &Entry) -> String {
    let known = |setting: &&Setting| setting.section == section;
    let here: Vec<_> = options::SETTINGS.iter().filter(known).map(|known| known.key).collect();
    let elsewhere =
        || options::SETTINGS.iter().find(|known| known.key.eq_ignore_ascii_case(&entry.key));
    let hint = match (nearest(&entry.key, &here), elsewhere()) {
        (_, Some(known)) => format!("; it belongs in [{}]", known.section),
        (Some(near), None) => format!("; did you mean {near}?"),
        // The second line of a broken password looks like a key without a value.
        (None, None) if entry.value.is_none() => {
            return format!("line {}: [{section}]: unknown key without a value", entry.line);
        }
        (None, None) => String::new(),
    };
    format!("line {}: [{section}] {}: unknown key{hint}", entry.line, entry.key)
}
