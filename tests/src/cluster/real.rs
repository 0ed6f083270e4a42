//! kube-apiserver and etcd as child processes on loopback.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_sim::{
    poll,
    program::{self, free_port, pid},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use rustix::process::{Signal, kill_process};
use tokio::process::{Child, Command};

use super::audit::{self, Request};

/// Options of a test's API server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further flags of kube-apiserver.
    pub apiserver_flags: Vec<String>,
    /// Without an audit log the server spends slightly less time on each request.
    pub no_audit: bool,
}

/// A running etcd, on which several API servers may stand.
pub struct Etcd {
    child: parking_lot::Mutex<Option<Child>>,
    assets: PathBuf,
    port: u16,
    peer: u16,
    folder: tempfile::TempDir,
}

impl Etcd {
    /// Starts it. API servers wait for it by themselves.
    pub async fn start() -> Result<Self> {
        let assets = tokio::task::spawn_blocking(super::assets).await??;
        let folder = tempfile::Builder::new().prefix("quartet-etcd-").tempdir()?;
        let (port, peer) = (free_port()?, free_port()?);
        let child = parking_lot::Mutex::default();
        let etcd = Self { child, assets, port, peer, folder };
        etcd.spawn()?;
        Ok(etcd)
    }

    /// Ends it.
    pub async fn stop(self) -> Result<()> {
        self.end().await
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("etcd")
    }

    fn spawn(&self) -> Result<()> {
        let child = spawn_etcd(&self.assets, self.folder.path(), self.port, self.peer)?;
        *self.child.lock() = Some(child);
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        let child = self.child.lock().take();
        match child {
            Some(child) => end(child).await,
            None => Ok(()),
        }
    }
}

/// A running kube-apiserver on an etcd.
pub struct RealCluster {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
    apiserver: parking_lot::Mutex<Option<Child>>,
    etcd: Arc<Etcd>,
    port: u16,
    options: Options,
}

/// The token of every user in the test cluster.
const ADMIN_TOKEN: &str = "scenario-admin";

const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [delete]
  resources: [{group: '', resources: [nodes]}]
- level: Metadata
";

impl RealCluster {
    /// Starts both and waits until the API server is ready.
    pub async fn start(options: &Options) -> Result<Self> {
        Self::start_on(Arc::new(Etcd::start().await?), options).await
    }

    /// Starts an API server on this etcd, with its own prefix, and waits until it is ready.
    pub async fn start_on(etcd: Arc<Etcd>, options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("quartet-cluster-").tempdir()?;
        write_files(folder.path())?;
        let cluster = Self {
            apiserver: parking_lot::Mutex::new(None),
            kubeconfig: folder.path().join("kubeconfig"),
            etcd,
            port: free_port()?,
            folder,
            options: options.clone(),
        };
        cluster.start_apiserver().await?;
        Ok(cluster)
    }

    /// Returns the admin's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the kubectl that was built with the server, with the admin's kubeconfig.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.etcd.assets.join("kubectl"));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display())).kill_on_drop(true);
        command
    }

    /// Returns the requests of the audit log. The server writes the log after it answers, so this
    /// waits until the log stops growing.
    pub async fn requests(&self) -> Result<Vec<Request>> {
        let path = self.folder.path().join("audit.log");
        let mut size = None;
        // Programs may still send requests.
        for _ in 0..10 {
            let now = tokio::fs::metadata(&path).await.map(|meta| meta.len()).ok();
            if now == size {
                break;
            }
            size = now;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let log = tokio::fs::read(&path).await.context("reading the audit log")?;
        Ok(audit::parse(&String::from_utf8_lossy(&log)))
    }

    /// Freezes (`SIGSTOP`) the API server: connections stay open without answers.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes a frozen API server.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Stops the API server and starts it again on the same etcd and port.
    pub async fn restart_apiserver(&self) -> Result<()> {
        self.stop_apiserver().await?;
        self.start_apiserver().await
    }

    /// Copies etcd's data into the folder `to`, which must not exist. Stops the API server and etcd
    /// for that time; no other API server may use this etcd.
    pub async fn save_etcd(&self, to: &Path) -> Result<()> {
        self.stop_both().await?;
        copy(&self.etcd.data(), to).await?;
        self.start_both().await
    }

    /// Restores the data of etcd that [`save_etcd`](Self::save_etcd) copied, so that its versions
    /// go back. Returns as soon as the API server is ready again.
    pub async fn restore_etcd(&self, from: &Path) -> Result<()> {
        self.stop_both().await?;
        tokio::fs::remove_dir_all(self.etcd.data()).await?;
        copy(from, &self.etcd.data()).await?;
        self.start_both().await
    }

    async fn stop_both(&self) -> Result<()> {
        self.stop_apiserver().await?;
        self.etcd.end().await
    }

    async fn start_both(&self) -> Result<()> {
        self.etcd.spawn()?;
        self.start_apiserver().await
    }

    /// Stops the API server: connections are refused until it is started again.
    pub async fn stop_apiserver(&self) -> Result<()> {
        let child = self.apiserver.lock().take();
        match child {
            Some(child) => end(child).await,
            None => Ok(()),
        }
    }

    /// Returns the CPU time of the API server so far, in seconds.
    pub fn apiserver_cpu_seconds(&self) -> Result<f64> {
        let pid = self
            .apiserver
            .lock()
            .as_ref()
            .and_then(Child::id)
            .context("the API server is not running")?;
        program::cpu_seconds(pid)
    }

    /// Ends the API server first: without etcd it would hang on SIGTERM.
    pub async fn stop(self) -> Result<()> {
        self.stop_apiserver().await?;
        match Arc::into_inner(self.etcd) {
            Some(etcd) => etcd.stop().await,
            // Other API servers use this etcd.
            None => Ok(()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self
            .apiserver
            .lock()
            .as_ref()
            .and_then(Child::id)
            .context("the API server is not running")?;
        Ok(kill_process(pid(id)?, signal)?)
    }

    /// Starts the API server on the same etcd and port, and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        let folder = self.folder.path();
        let mut child = self.apiserver_command()?.spawn().context("starting kube-apiserver")?;
        let certificate = folder.join("certs/apiserver.crt");
        let ready = poll::until("kube-apiserver to be ready", Duration::from_secs(90), || {
            let ended = child.try_wait();
            async {
                if let Some(status) = ended? {
                    return Ok(Some(Err(self.obituary(status))));
                }
                let Ok(authority) = std::fs::read_to_string(&certificate) else { return Ok(None) };
                write_kubeconfig(&self.kubeconfig, self.port, &authority)?;
                let client = super::client_of(&self.kubeconfig).await?;
                let answer =
                    client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
                if answer != "ok" {
                    return Ok(None);
                }
                // The API server may become ready before it has created the namespace of events.
                let namespace = Api::<Namespace>::all(client).get_opt("default").await?;
                Ok(namespace.map(|_| Ok(())))
            }
        })
        .await;
        *self.apiserver.lock() = Some(child);
        ready?
    }

    fn obituary(&self, status: std::process::ExitStatus) -> anyhow::Error {
        let log =
            std::fs::read_to_string(self.folder.path().join("apiserver.log")).unwrap_or_default();
        let tail: Vec<_> = log.lines().rev().take(15).collect();
        anyhow::anyhow!(
            "kube-apiserver ended with {status}; newest line first:\n{}",
            tail.join("\n")
        )
    }

    fn apiserver_command(&self) -> Result<Command> {
        let folder = self.folder.path();
        let at = |name: &str| folder.join(name).display().to_string();
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("apiserver.log"))?;
        let mut command = Command::new(self.etcd.assets.join("kube-apiserver"));
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd.port))
            .arg(format!("--etcd-prefix=/registry-{}", self.port))
            .arg("--bind-address=127.0.0.1")
            .arg("--advertise-address=192.0.2.1")
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", at("certs")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", at("sa.pub")))
            .arg(format!("--service-account-signing-key-file={}", at("sa.key")))
            .arg("--authorization-mode=RBAC,Node")
            .arg(format!("--token-auth-file={}", at("tokens.csv")))
            .arg("--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112")
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg("--allow-privileged=true")
            .arg("--event-ttl=10m");
        if !self.options.no_audit {
            command
                .arg(format!("--audit-policy-file={}", at("audit-policy.yaml")))
                .arg(format!("--audit-log-path={}", at("audit.log")));
        }
        command
            .args(&self.options.apiserver_flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        Ok(command)
    }
}

fn spawn_etcd(assets: &Path, folder: &Path, port: u16, peer: u16) -> Result<Child> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let log = std::fs::File::create(folder.join("etcd.log"))?;
    Command::new(assets.join("etcd"))
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg("--unsafe-no-fsync")
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("starting etcd")
}

async fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().await?;
    anyhow::ensure!(done.success(), "copying {}: {done}", from.display());
    Ok(())
}

fn write_files(folder: &Path) -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(folder.join("sa.key"), key.serialize_pem())?;
    std::fs::write(folder.join("sa.pub"), key.public_key_pem())?;
    std::fs::write(
        folder.join("tokens.csv"),
        format!(
            "{ADMIN_TOKEN},admin,admin-uid,\"system:masters\"\n{0},{0},{0}-uid,\"system:masters\"\n",
            super::OBSERVER
        ),
    )?;
    std::fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
    Ok(())
}

fn write_kubeconfig(path: &Path, port: u16, authority: &str) -> Result<()> {
    let folder = path.parent().context("a kubeconfig has a folder")?;
    let ca = folder.join("ca.crt");
    std::fs::write(&ca, authority)?;
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("https://127.0.0.1:{port}"), "certificate-authority": ca}}],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
    });
    std::fs::write(path, serde_json::to_vec_pretty(&config)?)?;
    Ok(())
}

/// Sends SIGTERM, and SIGKILL if the process does not exit within five seconds.
async fn end(mut child: Child) -> Result<()> {
    if let Some(id) = child.id() {
        kill_process(pid(id)?, Signal::CONT).ok();
        kill_process(pid(id)?, Signal::TERM).ok();
    }
    if tokio::time::timeout(Duration::from_secs(5), child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}
