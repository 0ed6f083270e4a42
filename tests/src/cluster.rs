//! The cluster that a scenario runs on: simulated, or a real kube-apiserver.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_sim::poll;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

pub mod audit;
pub mod kubelets;
pub mod proxy;
pub mod real;
pub mod simulated;

pub use audit::Request;

/// The cluster to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ccm_sim::apiserver`, in this process.
    Simulated,
    /// kube-apiserver and etcd as child processes.
    Real,
}

impl FromStr for Kind {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "sim" => Ok(Self::Simulated),
            "real" => Ok(Self::Real),
            other => anyhow::bail!("QUARTET_CLUSTER={other}: must be sim or real"),
        }
    }
}

/// A running cluster.
pub enum Cluster {
    /// The simulated one.
    Simulated(simulated::SimulatedCluster),
    /// The real one.
    Real(Box<real::RealCluster>),
}

impl From<real::RealCluster> for Cluster {
    fn from(real: real::RealCluster) -> Self {
        Self::Real(Box::new(real))
    }
}

impl Cluster {
    /// Starts a cluster of this kind.
    pub async fn start(kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::Simulated => Self::Simulated(simulated::SimulatedCluster::start().await?),
            Kind::Real => real::RealCluster::start(&real::Options::default()).await?.into(),
        })
    }

    /// Returns the kubeconfig for programs and kubectl.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Self::Simulated(cluster) => cluster.kubeconfig(),
            Self::Real(cluster) => cluster.kubeconfig(),
        }
    }

    /// Returns a client with all rights, without kube's silent retries.
    pub async fn client(&self) -> Result<Client> {
        client_of(self.kubeconfig()).await
    }

    /// Returns the requests in the server's own record, in order, of all user agents that start
    /// with `user_agent`.
    pub async fn requests(&self, user_agent: &str) -> Result<Vec<Request>> {
        let all = match self {
            Self::Simulated(cluster) => cluster.requests(),
            Self::Real(cluster) => cluster.requests().await?,
        };
        Ok(all.into_iter().filter(|request| request.user_agent.starts_with(user_agent)).collect())
    }

    /// Returns the simulated API server, for scenarios that need its faults.
    pub fn simulated(&self) -> Option<&simulated::SimulatedCluster> {
        match self {
            Self::Simulated(cluster) => Some(cluster),
            Self::Real(_) => None,
        }
    }

    /// Returns the real API server, for scenarios that freeze or restart it.
    pub fn real(&self) -> Option<&real::RealCluster> {
        match self {
            Self::Real(cluster) => Some(cluster),
            Self::Simulated(_) => None,
        }
    }

    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        match self {
            Self::Simulated(cluster) => {
                cluster.stop().await;
                Ok(())
            }
            Self::Real(cluster) => cluster.stop().await,
        }
    }
}

/// Returns a client for the cluster of this kubeconfig.
pub async fn client_of(kubeconfig: &Path) -> Result<Client> {
    client(read(kubeconfig)?).await
}

/// Returns the kubeconfig in the name of another user.
pub async fn client_as(kubeconfig: &Path, user: &str) -> Result<Client> {
    let mut file = read(kubeconfig)?;
    for known in file.auth_infos.iter_mut().filter_map(|known| known.auth_info.as_mut()) {
        known.impersonate = Some(user.to_owned());
    }
    client(file).await
}

fn read(kubeconfig: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))
}

async fn client(file: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static("scenario")));
    Ok(Client::try_from(config)?)
}

/// The token and the name of a second user with all rights. The audit log uses it to
/// distinguish an observing program from the leader beside it.
pub const OBSERVER: &str = "observer";

/// Writes the kubeconfig of [`OBSERVER`] into `path`. It is made from another user's.
pub fn write_observers_kubeconfig(kubeconfig: &Path, path: &Path) -> Result<()> {
    let mut config = Kubeconfig::read_from(kubeconfig)?;
    for user in &mut config.auth_infos {
        user.auth_info = Some(serde_json::from_value(serde_json::json!({"token": OBSERVER}))?);
    }
    Ok(std::fs::write(path, serde_json::to_vec(&config)?)?)
}

/// Removes the objects of earlier scenarios from the cluster.
pub async fn clear(client: &Client) -> Result<()> {
    let (delete, all) = (DeleteParams::default(), ListParams::default());
    crate::services::clear(client).await?;
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete_collection(&delete, &all).await?;
    for namespace in ["default", "kube-system"] {
        Api::<Event>::namespaced(client.clone(), namespace)
            .delete_collection(&delete, &all)
            .await?;
    }
    Api::<Lease>::namespaced(client.clone(), "kube-system")
        .delete_collection(&delete, &all)
        .await?;
    let what = "the nodes of the scenario before to be gone";
    poll::until(what, Duration::from_secs(15), || async {
        Ok(nodes.list_metadata(&all).await?.items.is_empty().then_some(()))
    })
    .await
}

/// Sets annotations of a program's Lease.
pub async fn annotate_lease(client: &Client, name: &str, annotations: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Frees a program's Lease after its holder was killed, so that the next one need not wait until the Lease expires.
pub async fn free_lease(client: &Client, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns the root of the checkout.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the folder with kube-apiserver, etcd and kubectl; builds missing binaries.
pub fn assets() -> Result<PathBuf> {
    built("tests/kube-apiserver", &[])
}

/// Returns the folder with the kubelet and kube-controller-manager; builds missing binaries.
pub fn kubelet_assets() -> Result<PathBuf> {
    built("tests/kube-apiserver", &["kubelets"])
}

/// Returns the folder with the sidecar around a Go provider; builds it if it is missing.
pub fn go_provider() -> Result<PathBuf> {
    built("tests/go-provider", &[])
}

/// Returns the folder with openstack-cloud-controller-manager; builds it if it is missing.
pub fn openstack_controller() -> Result<PathBuf> {
    built("tests/openstack/controller-manager", &[])
}

fn built(folder: &str, arguments: &[&str]) -> Result<PathBuf> {
    let script = repository().join(folder).join("build.sh");
    let out = std::process::Command::new(&script)
        .args(arguments)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    anyhow::ensure!(out.status.success(), "{} ended with {}", script.display(), out.status);
    Ok(PathBuf::from(String::from_utf8(out.stdout)?.trim()))
}
