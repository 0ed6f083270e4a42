//! The real kubectl as a child process.

use std::{
    ffi::OsStr,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::Objects;

/// A kubectl for one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Told {
    /// True if the exit code is 0.
    pub good: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error: refusals and warnings.
    pub stderr: String,
}

impl Kubectl {
    /// Creates the kubectl `program` for the cluster of `kubeconfig`, with its cache folder
    /// `cache`.
    pub fn new(program: PathBuf, kubeconfig: &Path, cache: &Path) -> Self {
        Self { program, kubeconfig: kubeconfig.to_owned(), cache: cache.to_owned() }
    }

    /// Renders a folder with a kustomization.
    pub fn render(&self, folder: &Path) -> Result<String> {
        let told = self.run([OsStr::new("kustomize"), folder.as_os_str()], None)?;
        ensure!(told.good, "kubectl kustomize {}: {}", folder.display(), told.stderr);
        ensure!(told.stderr.is_empty(), "kustomize warns: {}", told.stderr);
        Ok(told.stdout)
    }

    /// Applies objects with strict validation and with these further flags.
    pub fn apply(&self, text: &str, flags: &[&str]) -> Result<Told> {
        self.run(["apply", "--validate=strict", "-f", "-"].iter().chain(flags), Some(text))
    }

    /// Applies like `apply`, but a warning is also a failure.
    pub fn apply_well(&self, text: &str, flags: &[&str]) -> Result<String> {
        let told = self.apply(text, flags)?;
        ensure!(told.good, "kubectl apply {flags:?}: {}", told.stderr);
        ensure!(!told.stderr.contains("Warning"), "kubectl apply {flags:?}: {}", told.stderr);
        Ok(told.stdout)
    }

    /// Deletes these objects.
    pub fn delete(&self, text: &str) -> Result<()> {
        let told = self.run(["delete", "--ignore-not-found", "-f", "-"], Some(text))?;
        ensure!(told.good, "kubectl delete: {}", told.stderr);
        Ok(())
    }

    /// Returns these objects as the server stores them; all of them must exist.
    pub fn get(&self, text: &str) -> Result<Objects> {
        let told = self.run(["get", "-o", "yaml", "-f", "-"], Some(text))?;
        ensure!(told.good, "kubectl get: {}", told.stderr);
        Objects::parse(&told.stdout)
    }

    /// Runs any command.
    pub fn run<I, S>(&self, arguments: I, stdin: Option<&str>) -> Result<Told>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        // kubectl reads all of its input before it prints.
        input.write_all(stdin.unwrap_or_default().as_bytes())?;
        drop(input);
        let out = child.wait_with_output()?;
        Ok(Told {
            good: out.status.success(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }
}
