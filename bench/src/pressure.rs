//! Measures the Leases while another account takes all seats of the priority level `workload-high`.
//!
//! The API server has 20 + 10 requests in flight. 200 clients with another service account of
//! kube-system write ConfigMaps of kube-system: the priority level and the flow that a PATCH of
//! a Lease has by default. A webhook holds each write for two seconds, so that seats are short
//! and not CPU.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::programs;
use ccm_sim::{
    program::{Launch, Program},
    served::ServedCloud,
};
use ccm_tests::{
    cluster::{
        Cluster, assets,
        real::{Options, RealCluster},
    },
    manifests::Kubectl,
    rights::account::Account,
};
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use kube::{Api, api::ListParams};
use serde_json::json;
use tokio::time::sleep;

mod hold;
mod load;
mod wire;

use hold::Hold;
use load::Load;
use wire::{Wire, Write};

/// The flags that leave few seats.
const FEW_SEATS: [&str; 2] = ["--max-requests-inflight=20", "--max-mutating-requests-inflight=10"];
/// How long the pressure lasts.
const PRESSURE: Duration = Duration::from_mins(2);

/// How the programs reach the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// As the manifests install them.
    Installed,
    /// Without their own FlowSchemas, and with patches of the Lease instead of updates.
    Patching,
}

/// The result of one program.
struct Outcome {
    program: &'static str,
    writes: Vec<Write>,
    /// The log line about the loss, if it lost the Lease.
    lost: Option<String>,
}

/// Fails if a program loses its Lease, or if no program loses it without the countermeasures.
pub async fn measure() -> Result<()> {
    println!("\n-- pressure: {} s at 20 + 10 requests in flight", PRESSURE.as_secs());
    let stage = Stage::new().await?;
    let installed = stage.round(Manner::Installed).await?;
    let patching = stage.round(Manner::Patching).await?;
    stage.stop().await?;
    for outcome in &installed {
        let Outcome { program, writes, lost } = outcome;
        ensure!(lost.is_none(), "{program} lost its Lease");
        let elsewhere =
            writes.iter().filter(|write| write.level.as_deref() != Some("leader-election"));
        let elsewhere = elsewhere.count();
        ensure!(elsewhere == 0, "{program}: {elsewhere} writes not at leader-election");
    }
    ensure!(
        patching.iter().any(|outcome| outcome.lost.is_some()),
        "no Lease was lost without the measures: the run proves nothing"
    );
    Ok(())
}

/// An API server with few seats, the programs' accounts, and the webhook.
struct Stage {
    cluster: Arc<Cluster>,
    kubectl: Kubectl,
    accounts: Vec<Account>,
    served: ServedCloud,
    hold: Hold,
    folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Result<Self> {
        let apiserver_flags = FEW_SEATS.map(str::to_owned).into();
        let real = RealCluster::start(&Options { apiserver_flags, no_audit: true }).await?;
        let cluster = Arc::new(Cluster::from(real));
        let folder = tempfile::Builder::new().prefix("quartet-pressure-").tempdir()?;
        let program = tokio::task::spawn_blocking(assets).await??.join("kubectl");
        let kubectl = Kubectl::new(program, cluster.kubeconfig(), &folder.path().join("cache"));
        let mut accounts = Vec::new();
        for program in programs::shipped() {
            accounts.push(Account::create(cluster.clone(), program.binary, folder.path()).await?);
        }
        let served = ServedCloud::start(folder.path()).await?;
        let hold = Hold::start().await?;
        kubectl.apply_well(&hold.webhook()?.to_string(), &[])?;
        kubectl.apply_well(&load::account().to_string(), &[])?;
        Ok(Self { cluster, kubectl, accounts, served, hold, folder })
    }

    /// Starts the programs, then the pressure, and returns the result.
    async fn round(&self, manner: Manner) -> Result<Vec<Outcome>> {
        if manner == Manner::Patching {
            self.undo_measures()?;
        }
        let mut running = Vec::new();
        for account in &self.accounts {
            let wire = Wire::start(account.kubeconfig(), self.folder.path(), manner).await?;
            let mut program = self.launch(account.program(), &wire).start(self.folder.path())?;
            program.ready().await?;
            program.leading(Duration::from_secs(30)).await?;
            running.push((account.program(), wire, program));
        }
        let held = self.hold.count();
        let load =
            Load::start(&self.kubectl, self.cluster.kubeconfig(), self.folder.path()).await?;
        sleep(PRESSURE).await;
        println!("{manner:?}: {}, {} held by the webhook", load.stop(), self.hold.count() - held);
        let levels = self.levels().await?;
        let mut outcomes = Vec::new();
        for (name, wire, program) in running {
            let outcome = Outcome::of(name, &wire, &program, &levels);
            outcome.print();
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn launch(&self, program: &str, wire: &Wire) -> Launch {
        Launch::controller(program, wire.kubeconfig(), "external", self.served.config())
    }

    /// Deletes the FlowSchemas, and permits the programs to patch their Leases.
    fn undo_measures(&self) -> Result<()> {
        let names = self.accounts.iter().map(Account::program);
        let told =
            self.kubectl.run(["delete", "flowschema"].into_iter().chain(names.clone()), None)?;
        ensure!(told.good, "{}", told.stderr);
        let subjects: Vec<_> = names
            .map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}))
            .collect();
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({"name": "patch-leases", "namespace": "kube-system"});
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
                "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["patch"]}],
            },
            {
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "patch-leases"},
                "subjects": subjects,
            },
        ]});
        self.kubectl.apply_well(&objects.to_string(), &[]).map(drop)
    }

    /// Returns the names of the priority levels by their UIDs.
    async fn levels(&self) -> Result<BTreeMap<String, String>> {
        let api = Api::<PriorityLevelConfiguration>::all(self.cluster.client().await?);
        let all = api.list(&ListParams::default()).await?.into_iter();
        let names = all.map(|level| Some((level.metadata.uid?, level.metadata.name?)));
        names.collect::<Option<_>>().context("a priority level has a UID and a name")
    }

    async fn stop(self) -> Result<()> {
        let Self { cluster, accounts, served, .. } = self;
        drop(accounts);
        served.pause().await?;
        Arc::into_inner(cluster).context("the cluster is in use")?.stop().await
    }
}

impl Outcome {
    fn of(
        program: &'static str,
        wire: &Wire,
        running: &Program,
        levels: &BTreeMap<String, String>,
    ) -> Self {
        let mut writes = wire.writes();
        for write in &mut writes {
            let name = write.level.as_ref().and_then(|uid| levels.get(uid));
            write.level = name.or(write.level.as_ref()).cloned();
        }
        // The last write may still be on its way.
        writes.pop_if(|last| last.answer.is_none());
        let log = running.log();
        let lost = log.lines().find(|line| line.contains("lost the lease")).map(str::to_owned);
        Self { program, writes, lost }
    }

    fn print(&self) {
        let mut counts = BTreeMap::<_, usize>::new();
        for Write { method, level, answer, .. } in &self.writes {
            let level = level.as_deref().unwrap_or("no level");
            let answer =
                answer.map_or_else(|| "no answer".to_owned(), |(status, _)| status.to_string());
            *counts.entry(format!("{method} at {level}: {answer}")).or_default() += 1;
        }
        let slowest = self.writes.iter().filter_map(|write| Some(write.answer?.1)).max();
        println!(
            "{}: {counts:?}, slowest answer {:.2} s; {}",
            self.program,
            slowest.unwrap_or_default().as_secs_f64(),
            self.lost.as_deref().unwrap_or("the leader leads on")
        );
    }
}

/// Writes the kubeconfig of a client that reaches the API server by `server`.
fn write_kubeconfig(path: &Path, server: &str) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pressure",
        "clusters": [{"name": "pressure", "cluster": {"server": server}}],
        "users": [{"name": "pressure", "user": {}}],
        "contexts": [{"name": "pressure", "context": {"cluster": "pressure", "user": "pressure"}}],
    });
    std::fs::write(path, serde_json::to_vec(&config)?)?;
    Ok(path.to_owned())
}
