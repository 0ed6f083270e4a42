//! All names of a program: its settings, and flags that are accepted without effect.

use std::{borrow::Cow, collections::BTreeMap};

use ccm_base::nearest;

use crate::{Setting, setting::flag_of};

/// Flags that are not settings, with their help text.
pub(crate) const SPECIAL: [(&str, &str); 7] = [
    ("help", "Print this help."),
    ("version", "Print the version; --version=json for programs."),
    (
        "check-config",
        "Read and check all settings, the kubeconfig, the certificate and the provider's configuration, report every \
         problem, and end.",
    ),
    (
        "print-config",
        "Print the settings in force, each with its origin, as JSON: the page /configz.",
    ),
    ("print-options-markdown", "Print all settings as a table."),
    ("print-metrics", "Print one sample of each metric."),
    ("print-rights", "Print what is needed of the API server, as JSON."),
];

/// The program as help and reference pages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AboutProgram {
    /// The binary's name, for instance `node-ccm`.
    pub binary: &'static str,
    /// A short description: the first line of `--help`.
    pub summary: String,
    /// Its version.
    pub version: &'static str,
    /// The commit that it is built from.
    pub commit: &'static str,
}

/// A flag that is accepted with a warning and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The flag without hyphens in front.
    pub flag: &'static str,
    /// True if the flag may be given without a value.
    pub switch: bool,
    /// The reason why it has no effect here.
    pub why: &'static str,
}

impl Foreign {
    /// Returns a flag that takes a value.
    pub const fn value(flag: &'static str, why: &'static str) -> Self {
        Self { flag, switch: false, why }
    }

    /// Returns a flag that needs no value.
    pub const fn switch(flag: &'static str, why: &'static str) -> Self {
        Self { flag, switch: true, why }
    }
}

/// A setting of this program, with the default that applies to it.
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    /// The declared setting.
    pub setting: Setting,
    /// Its default in this program.
    pub default: Cow<'static, str>,
    /// The heading above it.
    pub section: &'static str,
}

/// The target of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameTarget<'a> {
    Setting(&'a CatalogueEntry),
    Foreign(&'static Foreign),
}

/// All names of a program.
#[derive(Clone, Debug)]
pub struct Catalogue {
    about: AboutProgram,
    entries: Vec<CatalogueEntry>,
    by_flag: BTreeMap<&'static str, usize>,
    foreign: Vec<&'static Foreign>,
}

impl Catalogue {
    /// Creates the catalogue of a program with these settings, each section with its heading. If
    /// two settings have the same flag, the first wins.
    pub fn new(
        about: AboutProgram,
        sections: impl IntoIterator<Item = (&'static str, &'static [Setting])>,
        foreign: impl IntoIterator<Item = &'static Foreign>,
    ) -> Self {
        let foreign = foreign.into_iter().collect();
        let mut this = Self { about, entries: Vec::new(), by_flag: BTreeMap::new(), foreign };
        for (section, table) in sections {
            for setting in table {
                if !this.by_flag.contains_key(setting.flag) {
                    this.by_flag.insert(setting.flag, this.entries.len());
                    let (setting, default) = (*setting, setting.default.into());
                    this.entries.push(CatalogueEntry { setting, default, section });
                }
            }
        }
        this
    }

    /// Returns the catalogue with another default for this flag.
    #[must_use]
    pub fn with_default(mut self, flag: &str, default: impl Into<Cow<'static, str>>) -> Self {
        if let Some(entry) = self.by_flag.get(flag).and_then(|at| self.entries.get_mut(*at)) {
            entry.default = default.into();
        }
        self
    }

    /// Returns the program that the catalogue belongs to.
    pub(crate) fn about(&self) -> &AboutProgram {
        &self.about
    }

    /// Returns all settings, section by section.
    pub fn entries(&self) -> &[CatalogueEntry] {
        &self.entries
    }

    /// Returns the flags without effect, except those that are settings of this program.
    pub fn foreign(&self) -> impl Iterator<Item = &'static Foreign> {
        self.foreign.iter().copied().filter(|foreign| !self.by_flag.contains_key(foreign.flag))
    }

    /// Finds a flag or key.
    pub(crate) fn find(&self, name: &str) -> Option<NameTarget<'_>> {
        let flag = flag_of(name);
        if let Some(entry) = self.by_flag.get(flag.as_str()).and_then(|at| self.entries.get(*at)) {
            return Some(NameTarget::Setting(entry));
        }
        self.foreign.iter().copied().find(|foreign| foreign.flag == flag).map(NameTarget::Foreign)
    }

    /// Returns the flag that a misspelt flag or key most likely means.
    pub(crate) fn nearest(&self, name: &str) -> Option<&'static str> {
        let foreign = self.foreign().map(|foreign| foreign.flag);
        let special = SPECIAL.iter().map(|(flag, _)| *flag);
        let known: Vec<_> = self.by_flag.keys().copied().chain(foreign).chain(special).collect();
        nearest(&flag_of(name), &known)
    }

    /// Returns the setting that a misspelt flag or key most likely means.
    pub(crate) fn nearest_setting(&self, name: &str) -> Option<&'static str> {
        let known: Vec<_> = self.by_flag.keys().copied().collect();
        nearest(&flag_of(name), &known)
    }
}
