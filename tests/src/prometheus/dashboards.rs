//! The dashboards as Grafana reads them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use ccm_runtime::{program::Identity, programs};
use serde_json::Value;

use crate::cluster::repository;

/// One dashboard.
pub struct Dashboard {
    /// The file's name without its ending.
    pub name: String,
    /// All of it.
    pub json: Value,
}

/// One query of a panel or an annotation.
#[derive(Clone, Debug)]
pub struct Query {
    /// The panel's title.
    pub panel: String,
    /// The expression in the file, with variables.
    pub expression: String,
    /// True for an instant query, false for a range query.
    pub instant: bool,
}

/// Returns all dashboards, by name.
pub fn all() -> Result<Vec<Dashboard>> {
    let folder = repository().join("grafana/dashboards");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Dashboard> {
    let text = fs::read_to_string(path)?;
    let json = serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    Ok(Dashboard { name, json })
}

/// Returns the elements of a list; empty if the value is not a list.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a text; empty if the value is not a text.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Dashboard {
    /// Returns true if it shows this program: it is the program's own dashboard, or one of all
    /// programs.
    pub fn is_about(&self, program: Identity) -> bool {
        self.name == program.binary
            || programs::shipped().all(|shipped| shipped.binary != self.name)
    }

    /// Returns all panels, also in collapsed rows. A row itself is not a panel.
    pub fn panels(&self) -> Vec<&Value> {
        list(&self.json["panels"])
            .flat_map(|panel| std::iter::once(panel).chain(list(&panel["panels"])))
            .filter(|panel| panel["type"] != "row")
            .collect()
    }

    /// Returns the queries of all panels and annotations.
    pub fn queries(&self) -> Vec<Query> {
        let of_panels = self.panels().into_iter().flat_map(|panel| {
            list(&panel["targets"]).map(|target| query(text(&panel["title"]), target))
        });
        let annotations = list(&self.json["annotations"]["list"]);
        let of_annotations =
            annotations.map(|annotation| query(text(&annotation["name"]), &annotation["target"]));
        of_panels.chain(of_annotations).collect()
    }
}

fn query(panel: &str, target: &Value) -> Query {
    Query {
        panel: panel.to_owned(),
        expression: text(&target["expr"]).to_owned(),
        instant: target["instant"] == true,
    }
}
