//! Reads the settings from the process's environment, apart from files.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use ccm_settings::Invocation;

/// The source of settings outside the files.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The working folder.
    pub working_folder: Option<PathBuf>,
    /// The machine's own folder for `clouds.yaml`.
    pub system_folder: PathBuf,
}

impl Environment {
    /// Returns the surroundings of this process.
    pub fn of_process() -> Self {
        Self {
            variables: Invocation::of_process().environment,
            home: env::home_dir().filter(|home| home.is_absolute()),
            working_folder: env::current_dir().ok(),
            system_folder: "/etc/openstack".into(),
        }
    }

    /// Returns an environment variable; empty counts as not set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the path that a setting means: `~/` is the home folder, and what is relative begins
    /// at `folder`.
    pub fn resolved(&self, text: &str, folder: &Path) -> PathBuf {
        let in_home = if text == "~" { Some("") } else { text.strip_prefix("~/") };
        match (in_home, &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => folder.join(text),
        }
    }
}
