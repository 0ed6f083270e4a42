//! Kubelets and the node lifecycle controller beside a real API server: the other programs that
//! write to nodes in a cluster.
//!
//! A kubelet is the kubelet's own code on a fake container runtime
//! (`tests/kube-apiserver/kubelet`). It has only the rights of a kubelet. kube-controller-manager
//! runs only the controllers that handle silent nodes.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Context as _, Result};
use ccm_sim::{
    cloud::SimInstance,
    program::{self, Signal},
};
use rustix::process::kill_process;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::real::RealCluster;

/// The user agent of kubelets.
pub const KUBELET_AGENT: &str = "kubelet";

/// A machine as its kubelet finds it, and how the kubelet is configured.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The host name, which names the node.
    pub name: String,
    /// The SMBIOS system UUID.
    pub system_uuid: String,
    /// The kubelet's `--cloud-provider`: `external`, or empty.
    pub cloud_provider: &'static str,
}

impl Machine {
    /// Returns the machine that this instance is.
    pub fn of(instance: &SimInstance) -> Self {
        Self {
            name: instance.name.clone(),
            system_uuid: instance.system_uuid.clone().unwrap_or_default(),
            cloud_provider: "external",
        }
    }
}

/// The programs, and what they need to run against one API server.
pub struct Machines {
    binaries: PathBuf,
    admin: Value,
    folder: tempfile::TempDir,
    started: AtomicUsize,
}

impl Machines {
    /// Builds missing programs.
    pub async fn new(cluster: &RealCluster) -> Result<Self> {
        Ok(Self {
            binaries: tokio::task::spawn_blocking(super::kubelet_assets).await??,
            admin: serde_json::from_slice(&std::fs::read(cluster.kubeconfig())?)?,
            folder: tempfile::Builder::new().prefix("quartet-kubelets-").tempdir()?,
            started: AtomicUsize::new(0),
        })
    }

    /// Starts the kubelet of this machine.
    pub fn start_kubelet(&self, machine: &Machine) -> Result<Process> {
        // The API server knows only the admin's token, so the admin acts as this kubelet.
        let user = json!({
            "as": format!("system:node:{}", machine.name), "as-groups": ["system:nodes"],
        });
        let arguments = [
            format!("--hostname-override={}", machine.name),
            format!("--cloud-provider={}", machine.cloud_provider),
            format!("--system-uuid={}", machine.system_uuid),
        ];
        self.start("kubelet", &arguments, &user)
    }

    /// Starts kube-controller-manager with the node lifecycle controller and these further
    /// flags.
    pub fn start_controller_manager(&self, flags: &[&str]) -> Result<Process> {
        let own = [
            "--controllers=node-lifecycle-controller,taint-eviction-controller",
            "--leader-elect=false",
            "--cloud-provider=external",
            "--secure-port=0",
        ];
        let arguments: Vec<_> = own.iter().chain(flags).map(|&flag| flag.to_owned()).collect();
        self.start("kube-controller-manager", &arguments, &json!({}))
    }

    /// Starts a program as the admin, with these changes of its user.
    fn start(&self, name: &str, arguments: &[String], user: &Value) -> Result<Process> {
        let number = self.started.fetch_add(1, Relaxed);
        let at = |ending: &str| self.folder.path().join(format!("{name}-{number}{ending}"));
        let mut config = self.admin.clone();
        let admin = config["users"][0]["user"].as_object_mut().context("the admin is a user")?;
        admin.extend(user.as_object().cloned().unwrap_or_default());
        std::fs::write(at(".kubeconfig"), serde_json::to_vec(&config)?)?;
        let log = at(".log");
        let output = std::fs::File::create(&log)?;
        let child = Command::new(self.binaries.join(name))
            .arg(format!("--kubeconfig={}", at(".kubeconfig").display()))
            .args(arguments)
            // The kubelet leaves its folders and its socket behind when it is killed.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Process { name: name.to_owned(), child, log })
    }
}

/// A running kubelet or controller manager. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Freezes it (`SIGSTOP`), like a machine that its hypervisor has paused.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Wakes it.
    pub fn wake(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it, like a machine that loses power.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().with_context(|| format!("{} has ended", self.name))?;
        Ok(kill_process(program::pid(id)?, signal)?)
    }
}
