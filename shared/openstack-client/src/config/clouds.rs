//! Reads `clouds.yaml`, with `secure.yaml` above it and the profiles of `clouds-public.yaml` below
//! it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ccm_base::{Files, message::escaped, nearest};
use ccm_settings::{Problems, RawValue, ValueKind, Yaml, YamlError, quoted, settings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Given, TABLES, environment::Environment, values::flag};

settings! {
    /// The part of `clouds.yaml` that `[Global]` asks for, if any.
    #[derive(Default)]
    pub struct CloudsFile {
        /// Take values that are not set here from clouds.yaml.
        pub use_clouds: bool = fixed(Switch, "use-clouds", "false"), flag;
        /// Path of clouds.yaml. If this is not set, OS_CLIENT_CONFIG_FILE is used, otherwise
        /// clouds.yaml or clouds.yml in the working folder, ~/.config/openstack or /etc/openstack.
        pub file: Option<PathBuf> = fixed(Path, "clouds-file", "");
        /// The entry of clouds.yaml. If unset: OS_CLOUD, then the only entry.
        pub cloud: Option<String> = fixed(Text, "cloud", "");
    }
}

/// One entry of `clouds`. Texts may be written as numbers.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct CloudEntry {
    auth: Option<Auth>,
    region_name: Option<String>,
    /// It takes precedence over `interface`, which is its newer name.
    endpoint_type: Option<String>,
    interface: Option<String>,
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    profile: Option<String>,
    cloud: Option<String>,
    verify: Option<String>,
}

/// The `auth` of an entry. Its fields are read as texts, even if YAML sees a number.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Auth {
    #[serde(rename = "auth_url")]
    url: Option<String>,
    username: Option<String>,
    user_id: Option<String>,
    password: Option<String>,
    project_id: Option<String>,
    project_name: Option<String>,
    domain_id: Option<String>,
    domain_name: Option<String>,
    project_domain_id: Option<String>,
    project_domain_name: Option<String>,
    user_domain_id: Option<String>,
    user_domain_name: Option<String>,
    default_domain: Option<String>,
    application_credential_id: Option<String>,
    application_credential_name: Option<String>,
    application_credential_secret: Option<String>,
    token: Option<String>,
}

type Clouds = BTreeMap<String, Option<CloudEntry>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    clouds: Option<Clouds>,
    #[serde(rename = "public-clouds")]
    public_clouds: Option<Clouds>,
}

/// The texts of an entry that are not empty, by their names, including the ones in `auth`.
type Texts = BTreeMap<String, String>;

/// Finds and reads the entry and returns what it gives for `[Global]`. Every problem is recorded.
/// `is_insecure` says that `[Global]` asks for what `verify: false` means.
/// `files` gets every file that was read, and every one that would have been if it were there.
pub fn read(
    wanted: &CloudsFile,
    is_insecure: bool,
    environment: &Environment,
    files: &mut Files,
    problems: &mut Problems,
) -> Option<Given> {
    let mut reader = Reader { environment, problems, files };
    let file = reader.find_clouds(wanted)?;
    let (name, mut texts) = reader.entry(&file, wanted)?;
    fill_domains(&mut texts);
    let is_false = |text: &String| text.eq_ignore_ascii_case("false");
    if !is_insecure && texts.get("verify").is_some_and(is_false) {
        reader.problems.warn(format!(
            "{}: verify of the entry {name:?} is not read; set tls-insecure = true in [Global]",
            escaped(&file)
        ));
    }
    Some(given(&file, &texts, environment))
}

struct Reader<'a> {
    environment: &'a Environment,
    problems: &'a mut Problems,
    files: &'a mut Files,
}

impl Reader<'_> {
    /// Returns the folders that are looked in, in their order.
    fn folders(&self) -> Vec<PathBuf> {
        let own = self.environment.home.as_ref().map(|home| home.join(".config/openstack"));
        let system = self.environment.system_folder.clone();
        self.environment.working_folder.clone().into_iter().chain(own).chain([system]).collect()
    }

    fn find(&mut self, folders: &[PathBuf], stem: &str) -> Option<PathBuf> {
        let names = [format!("{stem}.yaml"), format!("{stem}.yml")];
        let mut places =
            folders.iter().flat_map(|folder| names.each_ref().map(|name| folder.join(name)));
        places.find(|path| {
            self.files.notice(path);
            path.exists()
        })
    }

    fn find_clouds(&mut self, wanted: &CloudsFile) -> Option<PathBuf> {
        let named = || {
            let text = self.environment.variable("OS_CLIENT_CONFIG_FILE")?;
            let folder = self.environment.working_folder.clone().unwrap_or_default();
            Some(self.environment.resolved(text, &folder))
        };
        let folders = self.folders();
        let found = wanted.file.clone().or_else(named).or_else(|| self.find(&folders, "clouds"));
        if found.is_none() {
            let looked: Vec<_> =
                folders.iter().map(|folder| folder.display().to_string()).collect();
            let what = format!("no clouds.yaml in {}; set clouds-file", looked.join(", "));
            self.problems.add("[Global] use-clouds", what);
        }
        found
    }

    /// Returns the chosen entry with what the other files add to it.
    fn entry(&mut self, file: &Path, wanted: &CloudsFile) -> Option<(String, Texts)> {
        let mut clouds = self.document(file)?.clouds.unwrap_or_default();
        let names: Vec<_> = clouds.keys().map(String::as_str).collect();
        let name = choice(&names, wanted, self.environment)
            .map_err(|what| self.problems.add(escaped(file), what))
            .ok()?;
        let mut texts = texts(clouds.remove(&name).flatten());
        let beside = file.parent().map(Path::to_owned);
        let folders: Vec<_> = beside.into_iter().chain(self.folders()).collect();
        if let Some(path) = self.find(&folders, "secure") {
            let mut clouds = self.document(&path)?.clouds.unwrap_or_default();
            texts.extend(self::texts(clouds.remove(&name).flatten()));
        }
        if let Some(profile) = texts.remove("profile").or_else(|| texts.remove("cloud")) {
            let mut below = self.profile(file, &folders, &profile)?;
            below.extend(texts);
            texts = below;
        }
        Some((name, texts))
    }

    fn profile(&mut self, file: &Path, folders: &[PathBuf], name: &str) -> Option<Texts> {
        let found = match self.find(folders, "clouds-public") {
            Some(path) => self.document(&path)?.public_clouds.unwrap_or_default().remove(name),
            None => None,
        };
        if found.is_none() {
            let what = format!(
                "the entry's profile {name:?} is not among public-clouds of a clouds-public.yaml"
            );
            self.problems.add(escaped(file), what);
        }
        found.map(texts)
    }

    /// Reads a file. Its parser's messages may hold values, so they are omitted.
    fn document(&mut self, path: &Path) -> Option<Document> {
        let document = self.files.text(path).and_then(|text| parse(&text));
        document.map_err(|why| self.problems.add(escaped(path), why)).ok()
    }
}

/// Returns the name of the entry, or the reason why the file has no entry.
fn choice(
    names: &[&str],
    wanted: &CloudsFile,
    environment: &Environment,
) -> Result<String, String> {
    let known = names.join(", ");
    let by_key = wanted.cloud.as_deref().map(|name| ("[Global] cloud", name));
    let by_variable = || Some(("OS_CLOUD", environment.variable("OS_CLOUD")?));
    match (by_key.or_else(by_variable), names) {
        (_, []) => Err("has no entry under clouds".to_owned()),
        (Some((_, name)), names) if names.contains(&name) => Ok(name.to_owned()),
        (Some((by, name)), names) => {
            let near = nearest(name, names).map(|near| format!("did you mean {near}?"));
            let hint = near.unwrap_or_else(|| format!("known are {known}"));
            Err(format!("has no entry {}, which {by} asks for; {hint}", quoted(name)))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => {
            Err(format!("has several entries; choose one by [Global] cloud or OS_CLOUD: {known}"))
        }
    }
}

/// Returns the names and texts of an entry. `endpoint_type` takes precedence over its newer name
/// `interface`, as in gophercloud.
fn texts(entry: Option<CloudEntry>) -> Texts {
    let entry = serde_json::to_value(entry).unwrap_or_default();
    let mappings = [&entry["auth"], &entry].into_iter().filter_map(Value::as_object);
    let texts = mappings.flatten().filter_map(|(name, value)| {
        let text = value.as_str().filter(|text| !text.is_empty())?;
        Some((name.to_owned(), text.to_owned()))
    });
    let mut texts: Texts = texts.collect();
    if let Some(text) = texts.remove("endpoint_type") {
        texts.insert("interface".to_owned(), text);
    }
    texts
}

/// Fills in `default_domain`, the ID of the domain of user and project if no other domain is given.
fn fill_domains(texts: &mut Texts) {
    let Some(domain) = texts.remove("default_domain") else { return };
    for whose in ["user_", "project_"] {
        let is_given = |of: &str, by: &str| texts.contains_key(&format!("{of}domain_{by}"));
        if !["", whose].iter().any(|of| is_given(of, "id") || is_given(of, "name")) {
            texts.insert(format!("{whose}domain_id"), domain.clone());
        }
    }
}

/// Returns the texts of an entry of this file by the keys of `[Global]`.
fn given(file: &Path, texts: &Texts, environment: &Environment) -> Given {
    let folder = file.parent().unwrap_or(Path::new(""));
    let value = |(name, text): (&String, &String)| {
        let key = match name.as_str() {
            "region_name" => "region".to_owned(),
            "interface" => "os-endpoint-type".to_owned(),
            "cacert" => "ca-file".to_owned(),
            "cert" | "key" => format!("{name}-file"),
            name => name.replace("project", "tenant").replace('_', "-"),
        };
        let setting = TABLES.iter().copied().flatten().find(|setting| setting.flag == key)?;
        let text = match setting.kind {
            ValueKind::Path => environment.resolved(text, folder).display().to_string(),
            // Older tools wrote publicURL.
            _ if name == "interface" => text.strip_suffix("URL").unwrap_or(text).to_owned(),
            _ => text.clone(),
        };
        let place = format!("{}: {name}", escaped(file));
        Some((setting.flag, RawValue::at(place, setting.kind, text)))
    };
    texts.iter().filter_map(value).collect()
}

fn parse(text: &str) -> Result<Document, String> {
    let yaml = Yaml::read(text).map_err(|error| match error {
        YamlError::Invalid { line, .. } => format!("line {line}: not valid YAML"),
        YamlError::OutOfBounds { .. } => error.to_string(),
    })?;
    if yaml == Yaml::Null {
        return Ok(Document::default());
    }
    let shape = "not the shape of a clouds.yaml: a mapping clouds of entries, each with a mapping \
                 auth, and texts as their values";
    serde_json::from_value(as_texts(yaml)).map_err(|_| shape.to_owned())
}

/// Returns the values with all scalars as texts: a number may be meant as one, such as a password
/// 0123.
fn as_texts(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Plain(text) | Yaml::Text(text) => Value::String(text),
        Yaml::List(all) => all.into_iter().map(as_texts).collect(),
        Yaml::Map(all) => all.into_iter().map(|(key, value)| (key, as_texts(value))).collect(),
    }
}
