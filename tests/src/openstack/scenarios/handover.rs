//! Another `cloud.conf` for programs that run with two replicas: it is tried first, and takes
//! effect while a replica always leads.

use std::{collections::BTreeMap, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::leadership::CLOUD_IDENTITY;
use ccm_sim::{
    poll,
    program::{Launch, Program, free_port},
};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    cluster::annotate_lease,
    nodes,
    openstack::{
        admin::REGION,
        rig::{OTHER_REGION as OTHER, Rig, SOON},
    },
};

/// The programs, each with two replicas.
const PROGRAMS: [&str; 4] = ["node-ccm", "lifecycle-ccm", "service-ccm", "route-ccm"];
/// The kubelet restarts a container at once when it has ended for the first time.
const RESTART: Duration = Duration::from_millis(200);
/// The latest end of a leader whose configuration is outdated, plus the five seconds between two
/// reads of the file.
const HANDED_OVER: Duration = Duration::from_secs(90 + 15);

/// How a replica ended, and when.
struct End {
    program: &'static str,
    at: Instant,
    status: ExitStatus,
    led: bool,
}

type Ends = Arc<Mutex<Vec<End>>>;

/// Starts the replica again whenever it ends, as the kubelet does.
async fn keep(
    name: &'static str,
    launch: Launch,
    mut program: Program,
    folder: PathBuf,
    ends: Ends,
) -> Result<()> {
    loop {
        let status = program.wait(2 * HANDED_OVER).await?;
        let led = program.log().contains("giving up leadership: ");
        ends.lock().push(End { program: name, at: Instant::now(), status, led });
        tokio::time::sleep(RESTART).await;
        program = launch.start(&folder)?;
    }
}

/// The longest time in which the Lease of each program was not held, since the watch began.
#[derive(Default)]
struct Gaps {
    /// Since when the Lease has had no holder.
    open: BTreeMap<String, Instant>,
    holders: BTreeMap<String, Vec<String>>,
    longest: BTreeMap<String, Duration>,
}

impl Gaps {
    fn see(&mut self, lease: &Lease, now: Instant) {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        match holder.filter(|holder| !holder.is_empty()) {
            None => {
                self.open.entry(name).or_insert(now);
            }
            Some(holder) => {
                let holders = self.holders.entry(name.clone()).or_default();
                if holders.last() != Some(&holder) {
                    holders.push(holder);
                }
                if let Some(since) = self.open.remove(&name) {
                    let longest = self.longest.entry(name).or_default();
                    *longest = (*longest).max(now - since);
                }
            }
        }
    }
}

async fn watch_leases(client: Client, gaps: Arc<Mutex<Gaps>>) -> Result<()> {
    let api = Api::<Lease>::namespaced(client, "kube-system");
    loop {
        let list = api.list(&ListParams::default()).await?;
        for lease in &list.items {
            gaps.lock().see(lease, Instant::now());
        }
        let version = list.metadata.resource_version.context("a list has a version")?;
        let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(lease) | WatchEvent::Modified(lease) = event {
                gaps.lock().see(&lease, Instant::now());
            }
        }
    }
}

/// Returns a launch of the program, for route-ccm with the setting without which it may not lead.
fn launch(rig: &Rig, program: &str) -> Launch {
    let launch = rig.launch(program);
    match program {
        "route-ccm" => launch.arg("--cluster-cidr=10.244.0.0/16"),
        _ => launch,
    }
}

/// Waits until each program counts the changed file as refused.
async fn refused(programs: &[(&'static str, Program)]) -> Result<()> {
    for (name, program) in programs {
        poll::until(&format!("{name} to refuse the file"), SOON, || async {
            Ok((program.metric("openstack_configuration_refused").await? > 0.0).then_some(()))
        })
        .await
        .with_context(|| program.log())?;
    }
    Ok(())
}

pub(super) async fn a_wrong_file_changes_nothing_and_a_right_one_hands_over(
    rig: &Rig,
) -> Result<()> {
    let operator = &rig.cloud.operator;
    rig.configure_all(&rig.cloud.proxy.auth_url()?, REGION).await?;
    let mut running = Vec::new();
    for name in PROGRAMS {
        running.push((name, rig.start(&launch(rig, name)).await?));
        running.push((name, rig.start_standby(&launch(rig, name)).await?));
    }

    // No service listens there.
    rig.configure_all(&format!("http://127.0.0.1:{}/v3", free_port()?), REGION).await?;
    refused(&running).await?;
    let server = rig.fleet(0)?;
    rig.register(server).await?;
    rig.initialised(&server.name).await?;
    for (name, program) in &running {
        let (status, page) = program.get("/readyz?verbose").await?;
        ensure!(status == 200, "{name} is not ready with its old settings: {page}");
    }
    eprintln!("wrong auth-url: {} processes, 0 restarts, the old settings in force", running.len());

    operator.name_region(OTHER).await?;
    let (ends, gaps) = (Ends::default(), Arc::new(Mutex::new(Gaps::default())));
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_leases(rig.client.clone(), gaps.clone()));
    let folder = rig.path("replicas");
    std::fs::create_dir_all(&folder)?;
    for (name, program) in running {
        tasks.spawn(keep(name, launch(rig, name), program, folder.clone(), ends.clone()));
    }
    let start = Instant::now();
    rig.configure_all(&rig.cloud.proxy.auth_url()?, OTHER).await?;
    let ended = poll::until("all replicas to have the new settings", HANDED_OVER, || async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok((ends.lock().len() >= 2 * PROGRAMS.len()).then_some(()))
    });
    tokio::select! {
        ended = ended => ended?,
        Some(failed) = tasks.join_next() => failed??,
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    report(start, &ends.lock(), &gaps.lock())?;
    let second = rig.fleet(1)?;
    rig.register(second).await?;
    // Another region counts as another cloud until a person approves it.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let node = nodes::get(&rig.client, &second.name).await?;
    ensure!(nodes::is_tainted(&node), "it was initialised from another region");
    for name in PROGRAMS {
        annotate_lease(&rig.client, name, json!({CLOUD_IDENTITY: null})).await?;
    }
    rig.initialised(&second.name).await?;
    tasks.shutdown().await;
    operator.forget_region(OTHER).await
}

fn report(start: Instant, ends: &[End], gaps: &Gaps) -> Result<()> {
    for program in PROGRAMS {
        let of: Vec<_> = ends.iter().filter(|end| end.program == program).collect();
        let [standby, leader] = of.as_slice() else {
            anyhow::bail!("{program} ended {} times, not twice", of.len());
        };
        ensure!(
            standby.status.success() && leader.status.success(),
            "{program} ended with an error"
        );
        ensure!(!standby.led && leader.led, "{program}: the standby ends first, then the leader");
        let gap = gaps.longest.get(program).copied().unwrap_or_default();
        let holders = gaps.holders.get(program).map_or(0, Vec::len);
        eprintln!(
            "{program}, changed region: the standby ended after {:.1} s, the leader {:.1} s later; {holders} holders; without a leader {:.3} s",
            (standby.at - start).as_secs_f64(),
            (leader.at - standby.at).as_secs_f64(),
            gap.as_secs_f64()
        );
        ensure!(gap < Duration::from_secs(1), "{program}: {gap:?} without a leader");
        ensure!(holders == 2, "{program}: {holders} holders, not 2");
    }
    Ok(())
}
