//! The rule files of `grafana/alerts`.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, Result};
use ccm_runtime::program::Identity;
use serde_json::Value;

use super::dashboards::{list, text};
use crate::{
    cluster::repository,
    measured::{Family, of_provider},
    printed,
};

/// Series that Prometheus itself writes about its targets.
const OF_PROMETHEUS: [&str; 2] = ["up", "ALERTS"];

/// One alert or recording rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, and the file's name.
    pub name: String,
    /// The name of the series that it writes, if it is a recording rule.
    pub record: Option<String>,
    /// The expression.
    pub expression: String,
}

/// Returns the rule files; their tests have a folder of their own.
pub fn files() -> Result<Vec<PathBuf>> {
    let folder = repository().join("grafana/alerts");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut paths: Vec<PathBuf> =
        folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    Ok(paths)
}

/// Returns all rules of all files.
pub fn all() -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for path in files()? {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let read: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(&path)?)
            .with_context(|| format!("in {}", path.display()))?;
        for rule in list(&read["groups"]).flat_map(|group| list(&group["rules"])) {
            let record = rule["record"].as_str().map(str::to_owned);
            let name = record.as_deref().unwrap_or_else(|| text(&rule["alert"]));
            rules.push(Rule {
                name: format!("{file}: {name}"),
                expression: text(&rule["expr"]).to_owned(),
                record,
            });
        }
    }
    Ok(rules)
}

/// Returns the names of all possible series if only this program is scraped: its own and its
/// providers', the recording rules', and Prometheus' own.
pub fn known_to(program: Identity) -> Result<BTreeSet<String>> {
    let mut families = printed::metrics(program.binary)?;
    let registry = ccm_providers::registry();
    for name in registry.names() {
        families.extend(of_provider(registry.get(&name)?.as_ref())?);
    }
    let mut known: BTreeSet<String> = families.iter().flat_map(Family::series).collect();
    known.extend(all()?.into_iter().filter_map(|rule| rule.record));
    known.extend(OF_PROMETHEUS.map(str::to_owned));
    Ok(known)
}
