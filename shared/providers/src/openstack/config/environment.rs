//! What the process's surroundings say, apart from files.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Where settings outside the files come from.
pub(crate) trait Environment {
    /// An environment variable; empty counts as not set.
    fn variable(&self, name: &str) -> Option<String>;
    /// The user's home folder.
    fn home(&self) -> Option<PathBuf>;
    /// The working folder.
    fn working_folder(&self) -> Option<PathBuf>;
    /// The machine's own folder for `clouds.yaml`.
    fn system_folder(&self) -> PathBuf {
        PathBuf::from("/etc/openstack")
    }
}

/// The surroundings of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process;

impl Environment for Process {
    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok().filter(|text| !text.is_empty())
    }

    fn home(&self) -> Option<PathBuf> {
        env::home_dir().filter(|home| home.is_absolute())
    }

    fn working_folder(&self) -> Option<PathBuf> {
        env::current_dir().ok()
    }
}

/// The path that a setting means: `~/` is the home folder, and what is relative begins
/// at `folder`.
pub(super) fn resolved(text: &str, folder: &Path, environment: &dyn Environment) -> PathBuf {
    let in_home = match text {
        "~" => Some(""),
        _ => text.strip_prefix("~/"),
    };
    match (in_home, environment.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(text),
    }
}
