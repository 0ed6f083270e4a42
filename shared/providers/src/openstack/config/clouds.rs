//! `clouds.yaml`, with `secure.yaml` over it and the profiles of `clouds-public.yaml`
//! under it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ccm_base::nearest;
use serde::Deserialize;
use serde_yaml_ng::Value;

use super::{
    credentials::Given,
    environment::{Environment, resolved},
    files,
    notes::Notes,
};

/// One entry of `clouds`. Texts may be written as numbers.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<Given>,
    region_name: Option<String>,
    interface: Option<String>,
    endpoint_type: Option<String>,
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    profile: Option<String>,
    cloud: Option<String>,
    verify: Option<Value>,
}

type Entries = BTreeMap<String, Option<Entry>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    clouds: Option<Entries>,
    #[serde(rename = "public-clouds")]
    public_clouds: Option<Entries>,
}

/// What the chosen entry says.
#[derive(Default)]
pub(super) struct Cloud {
    pub given: Given,
    pub region: Option<String>,
    /// As in a catalog: `public`, `internal` or `admin`; something else is kept.
    pub interface: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// The file that the entry is in.
    pub file: PathBuf,
}

/// What is asked for by `[Global]`.
pub(super) struct Wanted {
    pub file: Option<PathBuf>,
    pub cloud: Option<String>,
}

/// Finds and reads the entry. What is wrong is noted as a problem. `files` gets every
/// file that was read, and every one that would have been if it were there.
pub(super) fn read(
    wanted: &Wanted,
    environment: &dyn Environment,
    notes: &mut Notes,
    files: &mut Vec<PathBuf>,
) -> Option<Cloud> {
    let mut reader = Reader { environment, notes, files };
    let file = reader.find_clouds(wanted)?;
    reader.cloud(file, wanted)
}

struct Reader<'a> {
    environment: &'a dyn Environment,
    notes: &'a mut Notes,
    files: &'a mut Vec<PathBuf>,
}

impl Reader<'_> {
    /// The folders that are looked in, in their order.
    fn folders(&self) -> Vec<PathBuf> {
        let own = self.environment.home().map(|home| home.join(".config/openstack"));
        let system = self.environment.system_folder();
        self.environment.working_folder().into_iter().chain(own).chain([system]).collect()
    }

    fn find(&mut self, folders: &[PathBuf], stem: &str) -> Option<PathBuf> {
        let names = [format!("{stem}.yaml"), format!("{stem}.yml")];
        let mut places =
            folders.iter().flat_map(|folder| names.each_ref().map(|name| folder.join(name)));
        places.find(|path| {
            self.counts(path);
            path.exists()
        })
    }

    /// What is in this file, or that there is none, makes a difference.
    fn counts(&mut self, path: &Path) {
        if !self.files.iter().any(|known| known == path) {
            self.files.push(path.to_owned());
        }
    }

    fn find_clouds(&mut self, wanted: &Wanted) -> Option<PathBuf> {
        let named = || {
            let text = self.environment.variable("OS_CLIENT_CONFIG_FILE")?;
            let folder = self.environment.working_folder().unwrap_or_default();
            Some(resolved(&text, &folder, self.environment))
        };
        let folders = self.folders();
        let found = wanted.file.clone().or_else(named).or_else(|| self.find(&folders, "clouds"));
        if found.is_none() {
            let looked: Vec<_> =
                folders.iter().map(|folder| folder.display().to_string()).collect();
            self.notes.problem(format!(
                "[Global] use-clouds: no clouds.yaml in {}; set clouds-file",
                looked.join(", ")
            ));
        }
        found
    }

    fn cloud(&mut self, file: PathBuf, wanted: &Wanted) -> Option<Cloud> {
        let before = self.notes.about(&file);
        let cloud =
            self.entry(&file, wanted).map(|(name, entry)| self.understood(&file, &name, entry));
        self.notes.about(Path::new(&before));
        cloud
    }

    /// The chosen entry with what the other files add to it.
    fn entry(&mut self, file: &Path, wanted: &Wanted) -> Option<(String, Entry)> {
        let mut clouds = self.document(file)?.clouds.unwrap_or_default();
        let name = self.choice(&clouds, wanted)?;
        let mut entry = clouds.remove(&name).flatten().unwrap_or_default().renamed();
        let beside = file.parent().map(Path::to_owned);
        let folders: Vec<_> = beside.into_iter().chain(self.folders()).collect();
        if let Some(path) = self.find(&folders, "secure") {
            let mut clouds = self.document(&path)?.clouds.unwrap_or_default();
            let mut secure = clouds.remove(&name).flatten().unwrap_or_default().renamed();
            secure.fill(entry);
            entry = secure;
        }
        if let Some(profile) = entry.profile.clone().or(entry.cloud.clone()) {
            entry.fill(self.profile(&folders, &profile)?.renamed());
        }
        Some((name, entry))
    }

    fn choice(&mut self, clouds: &Entries, wanted: &Wanted) -> Option<String> {
        let names: Vec<_> = clouds.keys().map(String::as_str).collect();
        let known = names.join(", ");
        let by_variable = || self.environment.variable("OS_CLOUD").map(|name| ("OS_CLOUD", name));
        let asked = wanted.cloud.clone().map(|name| ("[Global] cloud", name)).or_else(by_variable);
        match (asked, names.as_slice()) {
            (_, []) => self.notes.problem("has no entry under clouds".to_owned()),
            (Some((_, name)), names) if names.contains(&name.as_str()) => return Some(name),
            (Some((by, name)), names) => {
                let hint = nearest(&name, names).map_or_else(
                    || format!("known are {known}"),
                    |near| format!("did you mean {near}?"),
                );
                self.notes.problem(format!("has no entry {name:?}, which {by} asks for; {hint}"));
            }
            (None, [only]) => return Some((*only).to_owned()),
            (None, _) => self.notes.problem(format!(
                "has several entries; choose one by [Global] cloud or OS_CLOUD: {known}"
            )),
        }
        None
    }

    fn profile(&mut self, folders: &[PathBuf], name: &str) -> Option<Entry> {
        let found = match self.find(folders, "clouds-public") {
            Some(path) => self.document(&path)?.public_clouds.unwrap_or_default().remove(name),
            None => None,
        };
        if found.is_none() {
            self.notes.problem(format!(
                "the entry's profile {name:?} is not among public-clouds of a clouds-public.yaml"
            ));
        }
        found.map(Option::unwrap_or_default)
    }

    /// Reads a file. Its parser's messages may hold values, so only their place is told.
    fn document(&mut self, path: &Path) -> Option<Document> {
        self.counts(path);
        let before = self.notes.about(path);
        let document = files::read(path).and_then(|text| parse(&text));
        let document = document.map_err(|why| self.notes.problem(why)).ok();
        self.notes.about(Path::new(&before));
        document
    }

    fn understood(&mut self, file: &Path, name: &str, entry: Entry) -> Cloud {
        if entry.verify == Some(Value::Bool(false)) {
            self.notes.warning(format!(
                "verify of the entry {name:?} is not read; set tls-insecure = true in [Global]"
            ));
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        let path = |text: Option<String>| {
            text.filter(|text| !text.is_empty())
                .map(|text| resolved(&text, folder, self.environment))
        };
        let interface = entry.interface;
        Cloud {
            given: entry.auth.unwrap_or_default(),
            region: entry.region_name.filter(|text| !text.is_empty()),
            // Older tools wrote publicURL.
            interface: interface
                .map(|text| text.strip_suffix("URL").map_or(text.clone(), str::to_owned)),
            ca_file: path(entry.cacert),
            cert_file: path(entry.cert),
            key_file: path(entry.key),
            file: file.to_owned(),
        }
    }
}

fn parse(text: &str) -> Result<Document, String> {
    let wrong = |what: &str, error: &serde_yaml_ng::Error| match error.location() {
        Some(place) => format!("line {} column {}: {what}", place.line(), place.column()),
        None => what.to_owned(),
    };
    let is_yaml = |error| wrong("not valid YAML", &error);
    let mut value: Value = serde_yaml_ng::from_str(text).map_err(is_yaml)?;
    if value.is_null() {
        return Ok(Document::default());
    }
    // Read as text again, because only that keeps a number that is meant as a text
    // (a password such as 0123) as it is written.
    let merged = text
        .contains("<<")
        .then(|| value.apply_merge().and_then(|()| serde_yaml_ng::to_string(&value)));
    let merged = merged.transpose().map_err(is_yaml)?;
    let shape = "not the shape of a clouds.yaml: a mapping clouds of entries, each with a mapping \
                 auth, and texts as their values";
    serde_yaml_ng::from_str(merged.as_deref().unwrap_or(text)).map_err(|error| wrong(shape, &error))
}

impl Entry {
    /// The older name of a key counts where the newer one is not there.
    fn renamed(mut self) -> Self {
        let older = self.endpoint_type.take();
        self.interface = self.interface.filter(|text| !text.is_empty()).or(older);
        self
    }

    /// Takes from `other` what is empty here. Both are [renamed](Self::renamed).
    fn fill(&mut self, other: Self) {
        if let Some(theirs) = other.auth {
            self.auth.get_or_insert_default().fill(theirs);
        }
        for (own, theirs) in [
            (&mut self.region_name, other.region_name),
            (&mut self.interface, other.interface),
            (&mut self.cacert, other.cacert),
            (&mut self.cert, other.cert),
            (&mut self.key, other.key),
            (&mut self.profile, other.profile),
            (&mut self.cloud, other.cloud),
        ] {
            if own.as_deref().is_none_or(str::is_empty) {
                *own = theirs;
            }
        }
        self.verify = self.verify.take().or(other.verify);
    }
}
