//! The fixture of the tests: a real cluster, the real kubectl, and a folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use ccm_tests::{
    cluster::{Cluster, Kind, assets},
    manifests::{Choice, Kubectl, Objects, Tree},
};
use tokio::runtime::Runtime;

/// The Prometheus operator's kinds, which a bare API server has not.
const MONITORING: &str = include_str!("monitoring-crds.yaml");

/// A cluster with the kinds that manifests may name, and nothing in it.
pub struct Rig {
    pub tree: Tree,
    pub kubectl: Kubectl,
    pub runtime: Runtime,
    cluster: Cluster,
    folder: tempfile::TempDir,
}

impl Rig {
    pub fn new(tree: Tree) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let cluster = runtime.block_on(Cluster::start(Kind::Real))?;
        let folder = tempfile::Builder::new().prefix("quartet-manifests-").tempdir()?;
        let program = assets()?.join("kubectl");
        let kubectl = Kubectl::new(program, cluster.kubeconfig(), &folder.path().join("cache"));
        kubectl.apply_well(MONITORING, &[])?;
        let kinds = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
        let told = kubectl.run(kinds, None)?;
        anyhow::ensure!(told.good, "the operator's kinds are not served: {}", told.stderr);
        Ok(Self { tree, kubectl, runtime, cluster, folder })
    }

    /// Returns a folder of `manifests/`, rendered.
    pub fn render(&self, folder: &str) -> Result<(String, Objects)> {
        let text = self.kubectl.render(&self.tree.path(folder))?;
        let objects = Objects::parse(&text)?;
        Ok((text, objects))
    }

    /// Returns all controllers with these components, rendered.
    pub fn render_choice(&self, components: &[&'static str]) -> Result<(String, Objects)> {
        let folder = self.empty("choice")?;
        let controllers = self.tree.controllers.clone();
        self.tree.write(&Choice { controllers, components: components.to_vec() }, &folder)?;
        let text = self.kubectl.render(&folder)?;
        let objects = Objects::parse(&text)?;
        Ok((text, objects))
    }

    /// Returns an empty folder of this name.
    pub fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Returns the admin's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        self.cluster.kubeconfig()
    }

    /// Ends the cluster.
    pub fn stop(self) -> Result<()> {
        self.runtime.block_on(self.cluster.stop())
    }
}
