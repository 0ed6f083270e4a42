//! Everything that may be set: the common settings, the program's own, and flags that
//! are accepted without effect.

use std::{borrow::Cow, collections::BTreeMap};

use ccm_base::nearest;

use super::foreign::{self, Foreign};
use crate::{
    program::{Identity, Program},
    settings::{SECTIONS, SettingDoc, flag_of, key_of},
};

/// A setting of this program, with the default that holds for it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) doc: SettingDoc,
    pub(crate) default: Cow<'static, str>,
    pub(crate) section: &'static str,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    Setting(&'a Entry),
    Foreign(&'static Foreign),
}

/// All names of a program.
#[derive(Clone, Debug)]
pub(crate) struct Catalogue {
    identity: Identity,
    entries: Vec<Entry>,
    by_flag: BTreeMap<&'static str, usize>,
    providers: Vec<String>,
}

impl Catalogue {
    /// The catalogue of this program.
    pub(crate) fn of<P: Program>() -> Self {
        Self::new(P::IDENTITY, P::documentation())
    }

    /// The catalogue of a program with these settings of its own, which come first.
    pub(crate) fn new(identity: Identity, own: &'static [SettingDoc]) -> Self {
        let own = std::iter::once((identity.binary, own));
        let mut entries = Vec::new();
        let mut by_flag = BTreeMap::new();
        for (section, doc) in own
            .chain(SECTIONS)
            .flat_map(|(section, docs)| docs.iter().map(move |doc| (section, doc)))
        {
            // On a clash the first one wins, which is the program's own.
            if !by_flag.contains_key(doc.flag) {
                by_flag.insert(doc.flag, entries.len());
                entries.push(Entry { doc: *doc, default: default_of(doc, &identity), section });
            }
        }
        Self { identity, entries, by_flag, providers: Vec::new() }
    }

    /// The same for a process with these cloud providers.
    pub(crate) fn with_providers(mut self, names: Vec<String>) -> Self {
        self.providers = names;
        self
    }

    /// The cloud providers there are; none when any name will do.
    pub(crate) fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Whose it is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All settings, section by section.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The flags without effect, except those that are settings of this program.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &'static Foreign> {
        foreign::all().filter(|foreign| !self.by_flag.contains_key(foreign.flag))
    }

    /// What a flag or key stands for.
    pub(crate) fn find(&self, name: &str) -> Option<Known<'_>> {
        let flag = flag_of(name);
        if let Some(entry) = self.by_flag.get(flag.as_str()).and_then(|at| self.entries.get(*at)) {
            return Some(Known::Setting(entry));
        }
        foreign::all().find(|foreign| foreign.flag == flag).map(Known::Foreign)
    }

    /// The flag that a misspelt flag or key was probably meant to be.
    pub(crate) fn nearest(&self, name: &str) -> Option<&'static str> {
        let foreign = self.foreign().map(|foreign| foreign.flag);
        let special = super::SPECIAL.iter().map(|(flag, _)| *flag);
        let known: Vec<_> = self.by_flag.keys().copied().chain(foreign).chain(special).collect();
        nearest(&flag_of(name), &known)
    }

    /// The key that a misspelt key was probably meant to be.
    pub(crate) fn nearest_key(&self, name: &str) -> Option<String> {
        let known: Vec<_> = self.by_flag.keys().copied().collect();
        nearest(&flag_of(name), &known).map(key_of)
    }
}

/// The default of a setting; two of them are the program's own.
fn default_of(doc: &SettingDoc, identity: &Identity) -> Cow<'static, str> {
    match doc.flag {
        "secure-port" => Cow::Owned(identity.port.to_string()),
        "leader-elect-resource-name" => Cow::Borrowed(identity.lease),
        _ => Cow::Borrowed(doc.default),
    }
}
