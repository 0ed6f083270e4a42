//! `make mutants`: breaks the decisions of a program or of a crate of the kit one at a time, and prints which test finds each.
//!
//! Builds a copy with all mutants once in `target/mutants`. Fails if no test finds a mutant, or if a
//! test of the copy fails without one.

#![expect(clippy::print_stdout, reason = "it is a program for the terminal")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_tests::{
    cluster::repository,
    mutants::{self, Mutant, Mutants, SWITCH},
};
use futures::{StreamExt as _, stream};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::Command,
    time::timeout,
};

/// The maximum time for one run of a test target. A mutant that exceeds it counts as found.
const LONGEST: Duration = Duration::from_mins(5);
/// The number of mutants that are tested at once.
const AT_ONCE: usize = 2;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the copy of the sources.
fn tree() -> PathBuf {
    repository().join("target/mutants/tree")
}

async fn run() -> Result<bool> {
    let mut words = std::env::args().skip(1);
    let program = words.next().context("usage: mutants PACKAGE [WORDS OF WHAT IS BROKEN]")?;
    let filter = words.next().unwrap_or_default();
    let folder = repository().join(mutants::folder(&program));
    let list = Mutants::read(&folder)?;
    let copy = tree();
    copy_sources(&copy, &program).await?;
    let package = copy.join(mutants::folder(&program));
    for (file, text) in list.applied(&folder)? {
        write_if_other(&package.join(file), text.as_bytes())?;
    }
    let targets = build(&copy, &program, &list).await?;
    if let Some(found) = first_failure(&targets, None).await? {
        eprintln!("without a mutant: {found}");
        return Ok(false);
    }
    let all: Vec<(usize, &Mutant)> =
        list.all.iter().enumerate().filter(|(_, one)| one.breaks.contains(&filter)).collect();
    let found = stream::iter(&all).map(|(number, mutant)| {
        let targets = &targets;
        async move { (*mutant, first_failure(targets, Some(*number)).await) }
    });
    let mut found = found.buffer_unordered(AT_ONCE);
    let mut survivors = 0;
    while let Some((mutant, found)) = found.next().await {
        match found? {
            Some(found) => println!("found    {}: {found}", mutant.breaks),
            None => {
                survivors += 1;
                println!("SURVIVES {} ({}: {})", mutant.breaks, mutant.file, mutant.code);
            }
        }
    }
    println!("{} of {} mutants are found", all.len() - survivors, all.len());
    Ok(survivors == 0)
}

/// Copies the sources that git does not ignore, except files that the mutants of the program
/// replace. Does not write a file that has not changed, so that cargo builds less.
async fn copy_sources(copy: &Path, program: &str) -> Result<()> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository())
        .output()
        .await?;
    ensure!(list.status.success(), "git ls-files failed");
    let folder = mutants::folder(program);
    let replaced = Mutants::read(&repository().join(&folder))?;
    let replaced = replaced.applied(&repository().join(&folder))?;
    let is_replaced = |name: &str| {
        let own = Path::new(name).strip_prefix(&folder).ok().and_then(Path::to_str);
        own.is_some_and(|name| replaced.contains_key(name))
    };
    let names = String::from_utf8(list.stdout)?;
    for name in names.split('\0').filter(|name| !name.is_empty() && !is_replaced(name)) {
        if let Ok(bytes) = fs::read(repository().join(name)) {
            write_if_other(&copy.join(name), &bytes)?;
        }
    }
    Ok(())
}

fn write_if_other(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// A test target of the copy.
struct Target {
    package: String,
    /// The folder of its package.
    folder: PathBuf,
    program: PathBuf,
}

/// Builds the test targets. Returns the paths of their programs.
async fn build(copy: &Path, program: &str, list: &Mutants) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    let packages = list.packages.iter().flat_map(|package| ["-p", package]);
    let output = Command::new("cargo")
        .args([
            "test",
            "--locked",
            "--no-run",
            "--message-format=json-render-diagnostics",
            "-p",
            program,
        ])
        .args(packages)
        .args(&list.tests)
        .env("CARGO_TARGET_DIR", repository().join("target/mutants/build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        // A replacement may leave names of the original expression unused.
        .env("RUSTFLAGS", "-A warnings")
        .current_dir(copy)
        .output()
        .await?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the copy with all mutants does not build:\n{why}");
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if message["profile"]["test"] == true
            && let Some(path) = message["executable"].as_str()
        {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().context("a manifest has a folder")?.to_owned();
            // The ID is `path+file:///...#name@version`, without the name if it is the folder's.
            let id = message["package_id"].as_str().unwrap_or_default();
            let named = id.rsplit('#').next().and_then(|end| Some(end.split_once('@')?.0));
            let package = named.or(folder.file_name().and_then(|name| name.to_str()));
            let package = package.unwrap_or_default().to_owned();
            let is_unit = message["target"]["kind"][0] == "lib";
            targets.push((!is_unit, Target { package, folder, program: path.into() }));
        }
    }
    targets.sort_by_key(|(is_slow, _)| *is_slow);
    Ok(targets.into_iter().map(|(_, target)| target).collect())
}

/// The random histories take most of the time, and the other tests find most mutants: the histories run last.
const PARTS: [&[&str]; 2] = [&["--skip", HISTORIES], &[HISTORIES]];
/// A part of the names of all random histories.
const HISTORIES: &str = "histor";

/// Returns the first test that fails with this mutant. Runs the targets of these packages as `cargo test` does.
async fn first_failure(targets: &[Target], mutant: Option<usize>) -> Result<Option<String>> {
    for (part, target) in PARTS.iter().flat_map(|part| targets.iter().map(move |one| (part, one))) {
        let Target { package, folder, program } = target;
        let mut command = Command::new(program);
        // Variants break the program themselves, so their tests say nothing about a mutant.
        command.args(*part).args(["--skip", "variants::"]);
        if let Some(number) = mutant {
            command.env(SWITCH, number.to_string());
        }
        command.env("CARGO_PKG_NAME", package);
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn()?;
        let output = child.stdout.take().context("the output of a test is a pipe")?;
        match timeout(LONGEST, failed_test(output)).await {
            Ok(Some(name)) => return Ok(Some(name)),
            Ok(None) => {}
            Err(_) => return Ok(Some(format!("it takes longer than {} s", LONGEST.as_secs()))),
        }
        let status = child.wait().await?;
        if !status.success() {
            return Ok(Some(format!("it ends with {status}")));
        }
    }
    Ok(None)
}

/// Returns the name of the first failed test as soon as it is printed, or `None` if no test fails.
async fn failed_test(output: impl AsyncRead + Unpin) -> Option<String> {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(name) = line.strip_prefix("test ").and_then(|it| it.strip_suffix(" ... FAILED"))
        {
            return Some(name.to_owned());
        }
    }
    None
}
