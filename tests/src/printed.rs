//! The output of the built programs about themselves.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::binaries;

use crate::{
    measured::{Family, families},
    rights::manifest::Grant,
};

/// Returns the settings as a page: `docs/reference/options-<binary>.md`.
pub fn options(program: &str) -> Result<String> {
    printed(program, &["--print-options-markdown"])
}

/// Returns all metrics that a process of this program can report, with any provider.
pub fn metrics(program: &str) -> Result<Vec<Family>> {
    Ok(families(&metrics_page(program)?))
}

/// Returns the metrics as on the program's page.
pub fn metrics_page(program: &str) -> Result<String> {
    printed(program, &["--print-metrics"])
}

/// Returns the rights that this program's code declares, with its default settings. route-ccm has
/// no default for the networks of the pods; its siblings accept the flag.
pub fn rights(program: &str) -> Result<BTreeSet<Grant>> {
    let arguments = ["--print-rights", "--cloud-provider=external", "--cluster-cidr=10.244.0.0/16"];
    let text = printed(program, &arguments)?;
    serde_json::from_str(&text).with_context(|| text)
}

fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    let path = binaries()?.join(program);
    let out = Command::new(&path)
        .args(arguments)
        .output()
        .with_context(|| format!("{}: build the programs first", path.display()))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{program} {arguments:?} ended with {}: {said}", out.status);
    Ok(String::from_utf8(out.stdout)?)
}
