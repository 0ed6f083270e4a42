//! The rule files of `grafana/alerts`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::dashboards::{list, text};
use crate::cluster::repository;

/// One alert or recording rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, and that of the file.
    pub name: String,
    /// The name of the series that it writes, if it is a recording rule.
    pub record: Option<String>,
    /// The expression.
    pub expression: String,
}

/// The rule files; those of their tests are in a folder of their own.
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

/// All rules of all files.
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
