//! Reads files and annotations.

use std::{
    cell::LazyCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ccm_base::Files;
use ccm_cloud::Traffic;
use ccm_openstack_client::config::Environment;
use ccm_testing::{check_line, checked};
use tempfile::TempDir;

use super::played::Settings;
use crate::{balancers::lines_about, config::Config};

thread_local! {
    /// The folder for the files of an input. Without it, the function does nothing.
    static FOLDER: LazyCell<Option<TempDir>> = LazyCell::new(|| tempfile::tempdir().ok());
}

/// Reads this `cloud.conf`, and this `clouds.yaml` beside it.
fn load(cloud_conf: &[u8], clouds_yaml: &[u8]) {
    FOLDER.with(|folder| {
        let Some(folder) = folder.as_ref().map(TempDir::path) else { return };
        let files = [("cloud.conf", cloud_conf), ("clouds.yaml", clouds_yaml)];
        let public = ("clouds-public.yaml", clouds_yaml);
        for (name, content) in files.into_iter().chain([public]) {
            if fs::write(folder.join(name), content).is_err() {
                return;
            }
        }
        let environment = Environment {
            variables: BTreeMap::new(),
            home: Some(PathBuf::from("/nowhere")),
            working_folder: None,
            system_folder: folder.to_owned(),
        };
        read(&folder.join("cloud.conf"), &environment);
    });
}

fn read(path: &Path, environment: &Environment) {
    let Some(loaded) = checked(Config::load(path, environment, &mut Files::default())) else {
        return;
    };
    let config = loaded.config;
    loaded.warnings.iter().chain(&config.unmanaged).for_each(|line| check_line(line));
    assert_eq!(config.differing(&config), Vec::<&str>::new());
    // The provider does the same when it starts.
    checked(ccm_openstack_client::api::identity(&config.access.auth_url));
    drop(lines_about(&BTreeMap::new(), &config, Traffic::Cluster));
}

/// Reads a `cloud.conf`.
pub fn cloud_conf(data: &[u8]) {
    let entry =
        "clouds:\n  one:\n    auth:\n      auth_url: https://k:5000/v3\n      username: u\n";
    load(data, entry.as_bytes());
}

/// Reads a `clouds.yaml`, with which a `cloud.conf` is completed.
pub fn clouds_yaml(data: &[u8]) {
    load(b"[Global]\nuse-clouds = true\n", data);
}

/// The API server refuses longer ones: 253 bytes, a slash, and 63.
const LONGEST_KEY: usize = 317;

/// Reads the annotations of a Service: the first line is JSON with the settings, all others are
/// annotations.
pub fn annotations(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let settings: Settings = serde_json::from_str(first).unwrap_or_default();
    let Some(config) = settings.config() else { return };
    let pairs = rest.split('\n').filter_map(|line| line.split_once('='));
    let pairs = pairs.filter(|(key, _)| key.len() <= LONGEST_KEY);
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.replace("\\n", "\n")));
    let (annotations, options) = (pairs.collect(), config.clone());
    for traffic in [Traffic::Cluster, Traffic::Local { health_check_port: 32_000 }] {
        let read = lines_about(&annotations, &options, traffic);
        for line in checked(read).unwrap_or_default() {
            check_line(&line);
        }
    }
}
