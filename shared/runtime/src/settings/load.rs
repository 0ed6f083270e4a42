//! One reading of all layers.

use std::{collections::BTreeMap, ffi::OsString, fmt, sync::Arc};

use ccm_cloud::ProviderRegistry;
use serde_json::json;

use super::{
    CommonSettings, Problems, RawSettings,
    common::common,
    layers::{Given, merge},
    value::redact,
};
use crate::{
    options::{self, Action, Catalogue, CommandLine, UsageError},
    program::{Program, VERSION},
};

/// What a process was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// The arguments, the program's name not among them.
    pub arguments: Vec<OsString>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
}

impl Invocation {
    /// Of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            arguments: std::env::args_os().skip(1).collect(),
            environment: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// With these arguments and an empty environment.
    pub fn with_arguments<I: Into<OsString>>(arguments: impl IntoIterator<Item = I>) -> Self {
        Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: BTreeMap::new(),
        }
    }
}

/// Why the settings cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The command line cannot be understood.
    #[error("{0}")]
    Usage(#[from] UsageError),
    /// Settings are wrong.
    #[error("{0}")]
    Problems(#[from] Problems),
}

/// The settings of a program, read once.
pub struct Loaded<P: Program> {
    /// What every program has.
    pub common: Arc<CommonSettings>,
    /// The program's own.
    pub own: Arc<P::Settings>,
    /// The values as they were given.
    pub raw: RawSettings,
    /// What a person should know about them.
    pub warnings: Vec<String>,
    /// The text of the configuration file.
    pub(crate) file: Option<String>,
    pub(crate) given: Given,
    pub(crate) catalogue: Catalogue,
}

impl<P: Program> fmt::Debug for Loaded<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("common", &self.common)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

/// Reads the command line; of the settings only what is given there.
pub(crate) fn command_line<P: Program>(invocation: &Invocation) -> Result<CommandLine, UsageError> {
    options::parse(&Catalogue::of::<P>(), &invocation.arguments)
}

/// Reads all layers: the command line, the environment and the file. Any name of a
/// cloud provider will do.
pub fn load<P: Program>(invocation: &Invocation) -> Result<Loaded<P>, LoadError> {
    load_with(Catalogue::of::<P>(), invocation)
}

/// Reads all layers for a process with these cloud providers.
pub(crate) fn load_for<P: Program>(
    invocation: &Invocation,
    providers: &ProviderRegistry,
) -> Result<Loaded<P>, LoadError> {
    load_with(Catalogue::of::<P>().with_providers(providers.names()), invocation)
}

fn load_with<P: Program>(
    catalogue: Catalogue,
    invocation: &Invocation,
) -> Result<Loaded<P>, LoadError> {
    let command = command_line::<P>(invocation)?;
    if !matches!(command.action, Action::Run | Action::CheckConfig | Action::PrintRights) {
        return Err(
            UsageError("the command line asks for a text, not for settings".to_owned()).into()
        );
    }
    let given = Given { flags: command.flags, environment: invocation.environment.clone() };
    let file = match given.config_path() {
        None => None,
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
            let mut problems = Problems::new();
            problems.add(given.describe_config(), format!("must be a readable file: {error}"));
            problems
        })?),
    };
    let mut loaded = convert::<P>(catalogue, given, file)?;
    loaded.warnings.splice(0..0, command.warnings);
    Ok(loaded)
}

/// Merges and converts. All problems are found at once.
fn convert<P: Program>(
    catalogue: Catalogue,
    given: Given,
    file: Option<String>,
) -> Result<Loaded<P>, Problems> {
    let mut problems = Problems::new();
    let merged = merge(&catalogue, &given, file.as_deref(), &mut problems);
    let (common, own) = typed::<P>(&catalogue, &merged.raw, problems)?;
    Ok(Loaded { common, own, raw: merged.raw, warnings: merged.warnings, file, given, catalogue })
}

/// Converts merged layers, on top of the problems found so far.
pub(crate) fn typed<P: Program>(
    catalogue: &Catalogue,
    raw: &RawSettings,
    mut problems: Problems,
) -> Result<(Arc<CommonSettings>, Arc<P::Settings>), Problems> {
    let common = common(raw, catalogue, &mut problems);
    let own = P::settings(raw, &mut problems);
    match (common, own) {
        (Some(common), Some(own)) if problems.is_empty() => {
            return Ok((Arc::new(common), Arc::new(own)));
        }
        // A program that answers `None` without a word would leave a person without one.
        _ if problems.is_empty() => {
            problems.add("settings", "cannot be used, and the program does not say why");
        }
        _ => {}
    }
    Err(problems)
}

/// `/configz`: each setting with where it came from, and what was made of them.
/// Passwords in URLs are taken out; other secrets live in files, never in settings.
pub(crate) fn configz<P: Program>(
    raw: &RawSettings,
    common: &CommonSettings,
    own: &P::Settings,
) -> String {
    let settings: BTreeMap<&str, serde_json::Value> = raw
        .iter()
        .map(|(key, value)| {
            (key, json!({"value": redact(&value.text), "origin": value.origin.to_string()}))
        })
        .collect();
    let page = json!({
        P::IDENTITY.binary: {
            "version": VERSION,
            "settings": settings,
            "effective": {"common": common, "program": own},
        }
    });
    format!("{page:#}\n")
}
