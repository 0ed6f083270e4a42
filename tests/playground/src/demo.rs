//! The processes of the demo: the simulated API server and cloud in this process, and the
//! real programs as child processes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_runtime::programs;
use ccm_sim::{
    apiserver::{ApiServer, ListenHandle, Options, PatchKind, Verb},
    cloud::{Operation, SimCloud, SimInstance},
    cloud_pages,
    faults::{Fault, FaultEffect},
    poll,
    program::{Launch, Program, Signal},
    served::ServedCloud,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::output::Output;

/// The taint that a kubelet registers with if a cloud controller should initialise its node.
pub const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The time limit for the start or the end of a program.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// The simulated API server and cloud, and the running programs.
pub struct Demo {
    folder: tempfile::TempDir,
    server: Arc<ApiServer>,
    listener: ListenHandle,
    kubeconfig: PathBuf,
    served: ServedCloud,
    pages: (SocketAddr, JoinSet<()>),
    programs: Vec<(String, Program)>,
    arguments: Arguments,
}

/// The arguments of this program, besides the addresses of cluster and cloud.
pub type Arguments = fn(&str) -> &'static [&'static str];

impl Demo {
    /// Starts everything and waits until all programs are ready.
    pub async fn start_all(output: &Output, arguments: Arguments) -> Result<Self> {
        output.chapter("a simulated cluster, a simulated cloud, and the real programs");
        let folder = tempfile::Builder::new().prefix("quartet-playground-").tempdir()?;
        let server = ApiServer::new(Options::default());
        let listener = server
            .listen((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .context("starting the simulated API server")?;
        let kubeconfig = folder.path().join("kubeconfig");
        tokio::fs::write(&kubeconfig, server.kubeconfig(listener.addr)).await?;
        let cloud = ServedCloud::start(folder.path()).await?;
        let pages = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, mut serving) = (pages.local_addr()?, JoinSet::new());
        serving.spawn(cloud_pages::serve(cloud.cloud().clone(), pages, CancellationToken::new()));
        let mut demo = Self {
            folder,
            server,
            listener,
            kubeconfig,
            served: cloud,
            pages: (address, serving),
            programs: Vec::new(),
            arguments,
        };
        output.say("starting eight programs, which takes some seconds");
        for program in programs::shipped() {
            for replica in ["a", "b"] {
                demo.start(&format!("{}-{replica}", program.binary)).await?;
            }
        }
        demo.describe(output);
        Ok(demo)
    }

    /// Prints the commands to inspect the demo from another terminal.
    pub fn describe(&self, output: &Output) {
        output.say(format!("kubectl --kubeconfig={} get nodes -w", self.kubeconfig()));
        for (name, program) in &self.programs {
            output.say(format!(
                "{name}: curl {}  (and /plan, /explain?name=NAME, /readyz?verbose, /configz)",
                program.url("/metrics")
            ));
        }
        output.say(format!("logs: {}", self.folder.path().display()));
    }

    /// Returns the kubeconfig of the simulated API server.
    pub fn kubeconfig(&self) -> std::path::Display<'_> {
        self.kubeconfig.display()
    }

    /// Returns the address of the simulated cloud's pages.
    pub fn cloud_pages(&self) -> SocketAddr {
        self.pages.0
    }

    /// Returns the URL of a page of the program's leader.
    pub async fn url(&self, controller: &str, path: &str) -> Result<String> {
        Ok(self.leader(controller).await?.url(path))
    }

    /// Returns the cloud, to fill and to change.
    pub fn cloud(&self) -> &SimCloud {
        self.served.cloud()
    }

    /// Returns the number of calls to the cloud, without health checks.
    pub fn cloud_calls(&self) -> u64 {
        let calls = self.cloud().calls();
        calls.lookup + calls.list
    }

    /// Rejects all lookups for this time, as a cloud with an exhausted quota does.
    pub fn throttle(&self, time: Duration) {
        let effect = FaultEffect::Throttle { retry_after: Some(Duration::from_secs(2)) };
        self.cloud().faults().add(Fault::new(effect).on(Operation::Lookup).lasting(time));
    }

    /// Makes the cloud answer as if the credentials belonged to another project: lookups and lists
    /// find no instance.
    pub fn show_another_project(&self) {
        self.cloud().faults().add(Fault::new(FaultEffect::WrongProject));
    }

    /// Registers a node as its kubelet would.
    pub fn register(&self, name: &str) -> Result<()> {
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
            "spec": {"taints": [{"key": TAINT, "value": "true", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Simulated Linux", "kernelVersion": "6.1.0", "containerRuntimeVersion": "containerd://2.1.0", "architecture": "amd64", "operatingSystem": "linux"}
            }
        }))?;
        Ok(())
    }

    /// Creates an object.
    pub fn create(&self, object: Value) -> Result<()> {
        self.server.create(object)?;
        Ok(())
    }

    /// Returns an object of this kind, by `NAME` or `NAMESPACE/NAME`.
    pub fn object(&self, plural: &str, key: &str) -> Option<Value> {
        self.server.get(plural, key)
    }

    /// Returns all objects of a kind.
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        self.server.list(plural)
    }

    /// Deletes an object, as a user does.
    pub fn delete(&self, plural: &str, key: &str) -> Result<()> {
        self.server.delete(plural, key)?;
        Ok(())
    }

    /// Sets the node's condition Ready, as its kubelet does or, when kubelet does not report,
    /// kube-controller-manager.
    pub fn set_ready(&self, name: &str, status: &str) -> Result<()> {
        let conditions = json!([{"type": "Ready", "status": status, "reason": "NodeStatus"}]);
        let patch = json!({"status": {"conditions": conditions}});
        self.server.patch("nodes", name, "status", PatchKind::Strategic, patch)?;
        Ok(())
    }

    /// Marks a node as the cluster autoscaler does before it removes the machine.
    pub fn mark_for_scale_down(&self, name: &str) -> Result<()> {
        let mark = json!({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"});
        let patch = json!({"spec": {"taints": [mark]}});
        self.server.patch("nodes", name, "", PatchKind::Strategic, patch)?;
        Ok(())
    }

    /// Returns the node in the API server.
    pub fn node(&self, name: &str) -> Option<Value> {
        self.server.get("nodes", name)
    }

    /// Returns true if the node still has the taint [`TAINT`], or does not exist.
    pub fn is_tainted(&self, name: &str) -> bool {
        self.has_taint(name, TAINT)
    }

    /// Returns true if the node has a taint of this key, or does not exist.
    pub fn has_taint(&self, name: &str, key: &str) -> bool {
        let Some(node) = self.node(name) else { return true };
        node["spec"]["taints"]
            .as_array()
            .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
    }

    /// Waits until the node has lost its taint.
    pub async fn untainted(&self, name: &str, limit: Duration) -> Result<()> {
        poll::until(&format!("{name} to lose its taint"), limit, || async {
            Ok((!self.is_tainted(name)).then_some(()))
        })
        .await
    }

    /// Returns the number of writes of node-ccm to nodes that the API server has accepted. It
    /// rejects some by chance, when another program has just written to the same node.
    pub fn accepted_node_writes(&self) -> usize {
        let records = self.server.audit().records();
        let writes = records.iter().filter(|record| {
            record.user_agent.starts_with("node-ccm/")
                && record.resource == "nodes"
                && matches!(record.verb, Verb::Patch | Verb::Update)
        });
        writes.filter(|record| (200..300).contains(&record.outcome.code())).count()
    }

    /// Returns the events about a node: `Reason: message`.
    pub fn events(&self, name: &str) -> Vec<String> {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        let line = |event: &Value| {
            format!(
                "{}: {}",
                event["reason"].as_str().unwrap_or(""),
                event["message"].as_str().unwrap_or("")
            )
        };
        self.server.list("events").iter().filter(|event| about(event)).map(line).collect()
    }

    /// Returns the replicas of this program that report that they lead.
    pub async fn leading(&self, controller: &str) -> Vec<String> {
        let mut names = Vec::new();
        for (name, program) in &self.programs {
            if name.starts_with(controller) && program.leads().await.unwrap_or(false) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns a page of the leading replica of this program.
    pub async fn page(&self, controller: &str, path: &str) -> Result<String> {
        Ok(self.leader(controller).await?.get(path).await?.1)
    }

    async fn leader(&self, controller: &str) -> Result<&Program> {
        let leader = self.leading(controller).await.into_iter().next();
        let program = self.programs.iter().find(|(name, _)| Some(name) == leader.as_ref());
        Ok(&program.with_context(|| format!("no {controller} leads"))?.1)
    }

    /// Stops a program as Kubernetes does, and returns how it ended.
    pub async fn terminate(&mut self, name: &str) -> Result<ExitStatus> {
        let at = self
            .programs
            .iter()
            .position(|(each, _)| each == name)
            .with_context(|| format!("{name} runs"))?;
        let (_, program) = self.programs.remove(at);
        program.terminate().await
    }

    /// Starts a program again, as a Deployment does.
    pub async fn replace(&mut self, name: &str) -> Result<()> {
        self.start(name).await
    }

    /// Stops everything.
    pub async fn stop_all(mut self) -> Result<()> {
        for (_, program) in &self.programs {
            // A child that has exited needs no signal.
            program.signal(Signal::TERM).ok();
        }
        for (_, program) in &mut self.programs {
            program.wait(STEP_TIMEOUT).await?;
        }
        self.served.pause().await?;
        self.listener.shutdown().await;
        Ok(())
    }

    async fn start(&mut self, name: &str) -> Result<()> {
        let (program, _) = name.rsplit_once('-').context("a replica has a letter")?;
        let launch =
            Launch::controller(program, &self.kubeconfig, "external", self.served.config());
        let own = (self.arguments)(program);
        let launch = own.iter().copied().fold(launch, Launch::arg).arg("-v=2");
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        self.programs.push((name.to_owned(), program));
        Ok(())
    }
}

/// Returns the machine behind the node of this name.
pub fn instance(name: &str) -> SimInstance {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    // Each name has its own address.
    let of_letters = || 20_000 + name.bytes().map(usize::from).sum::<usize>();
    let number: usize = digits.parse().unwrap_or_else(|_| of_letters());
    let mut instance = SimInstance::numbered(number);
    instance.id = format!("i-{name}");
    name.clone_into(&mut instance.name);
    instance.addresses = vec![NodeAddress::new(
        AddressKind::InternalIp,
        format!("10.100.{}.{}", number / 250, number % 250 + 1),
    )];
    instance
}
