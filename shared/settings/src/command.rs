//! Parses the command line.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use serde_json::json;

use crate::{
    AboutProgram, Catalogue, ValueKind,
    catalogue::{CatalogueEntry, NameTarget, SPECIAL},
    setting::key_of,
};

/// The action that the command line requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the program.
    Run,
    /// Print this text to stdout and exit: `--help`, `--version`.
    Print(String),
    /// `--check-config`: read and check everything, then exit.
    CheckConfig,
    /// `--print-config`: the settings in force, as JSON.
    PrintConfig,
    /// `--print-options-markdown`: the table of all settings.
    PrintOptions,
    /// `--print-metrics`: one sample of each metric, as `/metrics` shows it.
    PrintMetrics,
    /// `--print-rights`: what is needed of the API server with these settings, as JSON.
    PrintRights,
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The requested action.
    pub action: Action,
    /// The settings given as flags, by key.
    pub flags: BTreeMap<String, String>,
    /// Warnings about flags that have no effect.
    pub warnings: Vec<String>,
}

/// An invalid command line: one line for stderr, exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The other spellings of a setting, and what "live" means: the end of `--help`.
const RULE: &str = "The flag --a-b is the key a_b in the file of --config and the environment variable CCM__A_B. A live setting \
                    changes while the program runs when the file changes.";

/// Parses the arguments, without the program's name.
pub fn parse(catalogue: &Catalogue, arguments: &[OsString]) -> Result<CommandLine, UsageError> {
    let mut texts = vec![catalogue.about().binary.to_owned()];
    for argument in arguments {
        let text = argument.to_str().ok_or_else(|| {
            UsageError(format!(
                "argument {} is not UTF-8",
                argument.to_string_lossy().escape_debug()
            ))
        })?;
        texts.push(hyphenated(text));
    }
    let matches = match command(catalogue).try_get_matches_from(texts) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let action = Action::Print(error.render().to_string());
            return Ok(CommandLine { action, flags: BTreeMap::new(), warnings: Vec::new() });
        }
        Err(error) => return Err(explain(catalogue, &error)),
    };
    let given = |flag: &str| {
        let values = matches.get_many::<String>(flag)?.map(String::as_str).collect::<Vec<_>>();
        Some(values.join(","))
    };
    let flags = catalogue
        .entries()
        .iter()
        .filter_map(|entry| Some((key_of(entry.setting.flag), given(entry.setting.flag)?)))
        .collect();
    let warnings = catalogue
        .foreign()
        .filter(|foreign| matches.contains_id(foreign.flag))
        .map(|foreign| format!("--{} has no effect here: {}", foreign.flag, foreign.why))
        .collect();
    Ok(CommandLine { action: action(catalogue, &matches), flags, warnings })
}

fn action(catalogue: &Catalogue, matches: &ArgMatches) -> Action {
    let AboutProgram { binary, version, commit, .. } = catalogue.about();
    if let Some(form) = matches.get_one::<String>("version") {
        Action::Print(match form.as_str() {
            "json" => {
                format!("{:#}\n", json!({"program": binary, "version": version, "commit": commit}))
            }
            _ => format!("{binary} {version} (commit {commit})\n"),
        })
    } else if matches.get_flag("print-config") {
        Action::PrintConfig
    } else if matches.get_flag("print-options-markdown") {
        Action::PrintOptions
    } else if matches.get_flag("print-metrics") {
        Action::PrintMetrics
    } else if matches.get_flag("print-rights") {
        Action::PrintRights
    } else if matches.get_flag("check-config") {
        Action::CheckConfig
    } else {
        Action::Run
    }
}

/// Returns `--kube_api_qps=5` as `--kube-api-qps=5`.
fn hyphenated(argument: &str) -> String {
    let Some(flag) = argument.strip_prefix("--") else { return argument.to_owned() };
    let (name, value) = flag.split_at(flag.find('=').unwrap_or(flag.len()));
    format!("--{}{value}", name.replace('_', "-"))
}

fn command(catalogue: &Catalogue) -> Command {
    let special = |at: usize| {
        let (flag, help) = SPECIAL[at];
        Arg::new(flag).long(flag).help(help)
    };
    let mut command = Command::new(catalogue.about().binary)
        .about(catalogue.about().summary.clone())
        .after_help(RULE)
        .args_override_self(true)
        .disable_help_flag(true)
        .arg(special(0).short('h').action(ArgAction::Help))
        .arg(special(1).num_args(0..=1).require_equals(true).default_missing_value("true"))
        .arg(special(2).action(ArgAction::SetTrue))
        .arg(special(3).action(ArgAction::SetTrue))
        .arg(special(4).action(ArgAction::SetTrue).hide(true))
        .arg(special(5).action(ArgAction::SetTrue).hide(true))
        .arg(special(6).action(ArgAction::SetTrue).hide(true));
    for entry in catalogue.entries() {
        command = command.arg(setting(entry).help_heading(entry.section));
    }
    for foreign in catalogue.foreign() {
        let arg = Arg::new(foreign.flag).long(foreign.flag).hide(true);
        command =
            command.arg(if foreign.switch { switch(arg) } else { arg.allow_hyphen_values(true) });
    }
    command
}

fn setting(CatalogueEntry { setting, default, .. }: &CatalogueEntry) -> Arg {
    let mut help = setting.meaning.to_owned();
    if !default.is_empty() {
        help = format!("{help} [default: {default}]");
    }
    if setting.live {
        help.push_str(" Live.");
    }
    let value = <&str>::from(setting.kind);
    let arg = Arg::new(setting.flag).long(setting.flag).help(help).value_name(value);
    let arg = if setting.flag == "v" { arg.short('v') } else { arg };
    match setting.kind {
        ValueKind::Switch => switch(arg),
        ValueKind::List => arg.allow_hyphen_values(true).action(ArgAction::Append),
        _ => arg.allow_hyphen_values(true),
    }
}

fn switch(arg: Arg) -> Arg {
    arg.num_args(0..=1).require_equals(true).default_missing_value("true")
}

/// Explains clap's error in one line.
fn explain(catalogue: &Catalogue, error: &clap::Error) -> UsageError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let name = argument
        .split([' ', '=', '['])
        .next()
        .unwrap_or_default()
        .trim_start_matches('-')
        .to_owned();
    let line = match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with("--") => {
            let hint = catalogue
                .nearest(&name)
                .map(|near| format!("; did you mean --{near}?"))
                .unwrap_or_default();
            format!("unknown flag --{name}{hint}")
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("unknown flag {argument}")
        }
        ErrorKind::UnknownArgument => {
            format!("unexpected argument {argument:?}; everything is set with flags")
        }
        ErrorKind::InvalidValue
            if context(ContextKind::InvalidValue).is_none_or(|value| value.is_empty()) =>
        {
            let example = match catalogue.find(&name) {
                Some(NameTarget::Setting(entry)) => entry.setting.kind.into(),
                _ => "value",
            };
            format!("--{name} needs a value: --{name}=<{example}>")
        }
        _ => {
            let text = error.render().to_string();
            text.lines()
                .next()
                .unwrap_or("the command line cannot be read")
                .trim_start_matches("error: ")
                .to_owned()
        }
    };
    UsageError(format!("{line} (see --help)"))
}
