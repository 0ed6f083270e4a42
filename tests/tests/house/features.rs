//! All crates build their tests with one set of features, so that `cargo test -p X` reuses the
//! results of a build of the workspace. `ccm-testing` depends on every crate of the registry, and
//! every crate on `ccm-testing`.

use std::{collections::BTreeSet, fs};

use ccm_tests::cluster::repository;
use toml::{Table, Value};

const HELPERS: &str = "tests/testing";

fn manifest(folder: &str) -> Table {
    let file = repository().join(folder).join("Cargo.toml");
    let text = fs::read_to_string(&file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the folders of the workspace's crates.
fn members() -> Vec<String> {
    let workspace = manifest("");
    let members = workspace["workspace"]["members"].as_array().into_iter().flatten();
    let folders =
        members.filter_map(Value::as_str).flat_map(|member| match member.strip_suffix("/*") {
            None => vec![member.to_owned()],
            Some(parent) => fs::read_dir(repository().join(parent))
                .into_iter()
                .flatten()
                .flatten()
                .map(|folder| format!("{parent}/{}", folder.file_name().display()))
                .collect(),
        });
    folders.filter(|folder| repository().join(folder).join("Cargo.toml").exists()).collect()
}

/// Returns the dependencies in one table of a manifest, each with the features that it asks for.
fn asked<'a>(manifest: &'a Table, table: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let listed = manifest.get(table).and_then(Value::as_table).into_iter().flatten();
    let features = |value: &'a Value| value.get("features").and_then(Value::as_array);
    listed
        .map(|(name, value)| {
            let features = features(value).into_iter().flatten().filter_map(Value::as_str);
            (name.as_str(), features.collect())
        })
        .collect()
}

#[test]
fn one_feature_set() {
    let workspace = manifest("");
    let registry: BTreeSet<_> = workspace["workspace"]["dependencies"]
        .as_table()
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    let helpers = manifest(HELPERS);
    let mut broken = Vec::new();
    for folder in members() {
        let manifest = manifest(&folder);
        let mut has_helpers = folder == HELPERS;
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let of = if table == "build-dependencies" { table } else { "dependencies" };
            let known = asked(&helpers, of);
            for (name, features) in asked(&manifest, table) {
                has_helpers |= name == "ccm-testing";
                let has = |feature: Option<&&str>| {
                    known.iter().any(|(known, had)| {
                        *known == name && feature.is_none_or(|feature| had.contains(feature))
                    })
                };
                if registry.contains(name)
                    && !(has(None) && features.iter().all(|one| has(Some(one))))
                {
                    broken.push(format!(
                        "{HELPERS}/Cargo.toml: [{of}] lacks {name} {features:?}, which {folder} has"
                    ));
                }
            }
        }
        if !has_helpers {
            broken.push(format!(
                "{folder}/Cargo.toml lacks ccm-testing, as a dev-dependency if it is shipped"
            ));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
