//! Runs the real `kubectl` through the chapters of `tests/kubectl/*.steps`: on the simulated API
//! server, or with `QUARTET_CLUSTER=real` on a real one. The chapters expect the answers of the
//! real one, so the second run checks the expectations, and the first one checks the simulation.
//!
//! A chapter is a list of steps, each line marked by its first character:
//!
//! ```text
//! $ kubectl ...   a command, with single quotes as in a shell
//! & kubectl ...   a command that continues (a watch), until the step `.`
//! .               the watch has printed the lines that follow, and is ended
//! | ...           standard input
//! > ...           standard output; `*` stands for any text, the line `...` for any lines
//! ! ...           standard error
//! ? 1             the exit code, where it is not 0
//! @real           the chapter is only for the real API server
//! ```
//!
//! Runs of blanks count as one. `kubectl` is `QUARTET_KUBECTL`, or the one that
//! `tests/kube-apiserver/build.sh` built, or the one on `PATH`; the latter two only when they
//! are of the minor version that the chapters were written with, since their words differ.
//! Without any, the tests are left out with a line that says so; with
//! `QUARTET_KUBECTL_REQUIRED=1` that is a failure.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use ccm_tests::{
    cluster::{Kind, clear, repository},
    trials::Trials,
};
use libtest_mimic::Trial;

mod chapter;
mod run;

/// Returns each chapter as a test.
pub fn trials(trials: &Trials) -> Result<Vec<Trial>> {
    let Some(kubectl) = kubectl()? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for file in files()? {
        let chapter = chapter::Chapter::read(&file)?;
        if chapter.real_only && trials.kind == Kind::Simulated {
            continue;
        }
        let kubectl = kubectl.clone();
        all.push(trials.trial(format!("kubectl::{}", chapter.name), async move |lane| {
            let cluster = lane.cluster();
            clear(&cluster.client().await?).await?;
            run::Runner::new(&kubectl, cluster.kubeconfig())?.run(&chapter).await
        }));
    }
    Ok(all)
}

fn files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(repository().join("tests/kubectl"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "steps") {
            files.push(path);
        }
    }
    files.sort();
    anyhow::ensure!(!files.is_empty(), "tests/kubectl holds no chapters");
    Ok(files)
}

/// Returns the path of kubectl; nothing when it may be missing and is.
fn kubectl() -> Result<Option<PathBuf>> {
    if let Some(path) = env::var_os("QUARTET_KUBECTL").map(PathBuf::from) {
        anyhow::ensure!(
            path.is_file(),
            "QUARTET_KUBECTL={}: there is no such file",
            path.display()
        );
        return Ok(Some(path));
    }
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(|folder| Path::new(&folder).join("kubectl"));
    let wanted = wanted_version()?;
    let found = assets
        .into_iter()
        .chain(built())
        .chain(on_path())
        .find(|path| path.is_file() && is_version(path, &wanted));
    let required = env::var("QUARTET_KUBECTL_REQUIRED").is_ok_and(|value| value == "1");
    if found.is_none() {
        let what = format!(
            "kubectl {wanted} was not found: set QUARTET_KUBECTL, or run tests/kube-apiserver/build.sh"
        );
        anyhow::ensure!(!required, "{what} (QUARTET_KUBECTL_REQUIRED=1)");
        eprintln!("skipped: {what}");
    }
    Ok(found)
}

/// Returns the minor version of the real API server, for instance `v1.36`.
fn wanted_version() -> Result<String> {
    let path = repository().join("tests/kube-apiserver/go.mod");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let version = text
        .lines()
        .map(|line| line.trim().trim_start_matches("require "))
        .find_map(|line| line.strip_prefix("k8s.io/kubernetes ")?.split_whitespace().next())
        .with_context(|| format!("{} names no version of k8s.io/kubernetes", path.display()))?;
    Ok(version.rsplit_once('.').map_or(version, |(minor, _)| minor).to_owned())
}

fn is_version(kubectl: &Path, wanted: &str) -> bool {
    let told = Command::new(kubectl).args(["version", "--client"]).output();
    told.is_ok_and(|out| {
        String::from_utf8_lossy(&out.stdout).contains(&format!("Client Version: {wanted}."))
    })
}

/// Returns the kubectls that the build script left in its cache, the newest version first.
fn built() -> Vec<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let folders = cache.and_then(|cache| fs::read_dir(cache.join("quartet")).ok());
    let mut found: Vec<_> = folders
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("kube-apiserver-"))
        .map(|entry| entry.path().join("kubectl"))
        .collect();
    found.sort();
    found.reverse();
    found
}

fn on_path() -> Vec<PathBuf> {
    env::var_os("PATH")
        .map(|path| env::split_paths(&path).map(|folder| folder.join("kubectl")).collect())
        .unwrap_or_default()
}
