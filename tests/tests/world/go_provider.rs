//! A provider of k8s.io/cloud-provider behind the sidecar `tests/go-provider`: a cloud without a
//! list, whose only proof of absence is the provider's answer.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Launch};
use ccm_tests::{
    cluster::go_provider,
    nodes,
    scenarios::{Env, SOON},
};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

/// How soon the node of a deleted machine is deleted with the default settings.
const GONE: Duration = Duration::from_secs(75);

/// The sidecar and its machines.
struct SideCar {
    machines: PathBuf,
    config: PathBuf,
    _process: Child,
}

impl SideCar {
    async fn start(env: &Env, machines: &Value) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(go_provider).await??.join("go-provider");
        let (file, socket, config) =
            (env.path("machines.json"), env.path("go.sock"), env.path("go.yaml"));
        write(&file, machines)?;
        std::fs::write(&config, format!("endpoint: unix://{}\n", socket.display()))?;
        let process = Command::new(binary)
            .arg("--machines")
            .arg(&file)
            .arg("--listen")
            .arg(&socket)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting the sidecar")?;
        Ok(Self { machines: file, config, _process: process })
    }

    fn controller(&self, env: &Env, program: &str) -> Launch {
        env.controller(program, "external", &self.config)
    }
}

/// Replaces the file as a whole: the sidecar reads it at any time.
fn write(file: &Path, machines: &Value) -> Result<()> {
    let aside = file.with_extension("new");
    std::fs::write(&aside, machines.to_string())?;
    std::fs::rename(aside, file).context("the machines")
}

fn machine(number: usize, address: &str) -> Value {
    json!({"id": format!("fake://{number}"), "zone": "a", "addresses": [address]})
}

async fn until_address(env: &Env, name: &str, address: &str) -> Result<()> {
    poll::until(&format!("{name} has {address}"), SOON, || async {
        let node = nodes::get(&env.client, name).await?;
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        Ok(addresses.iter().any(|one| one.address == address).then_some(()))
    })
    .await
}

pub(super) async fn a_cloud_without_a_list_initialises_follows_and_deletes(env: Env) -> Result<()> {
    let mut machines = json!({"node-1": machine(1, "10.0.0.1"), "node-2": machine(2, "10.0.0.2")});
    let side_car = SideCar::start(&env, &machines).await?;
    let node_ccm = side_car.controller(&env, "node-ccm").arg("--node-status-update-frequency=10s");
    let node_ccm = env.start(&node_ccm).await?;
    let lifecycle_ccm = side_car.controller(&env, "lifecycle-ccm").arg("--node-grace-period=1s");
    let lifecycle_ccm = env.start(&lifecycle_ccm).await?;

    for name in ["node-1", "node-2"] {
        nodes::register(&env.client, &nodes::fresh(name)).await?;
        env.initialised(name).await?;
    }
    let node = nodes::get(&env.client, "node-1").await?;
    let id = node.spec.and_then(|spec| spec.provider_id);
    ensure!(id.as_deref() == Some("fake://1"), "{id:?}");
    until_address(&env, "node-1", "10.0.0.1").await?;

    machines["node-1"] = machine(1, "10.9.9.9");
    write(&side_car.machines, &machines)?;
    until_address(&env, "node-1", "10.9.9.9").await?;
    let page = node_ccm.get("/readyz?verbose").await?.1;
    let words = "[+]fleet ok: 2 nodes looked up";
    ensure!(page.contains(words) && !page.contains("[!]"), "a missing list does not fail: {page}");

    machines.as_object_mut().context("machines")?.remove("node-1");
    write(&side_car.machines, &machines)?;
    let noticed = Instant::now();
    nodes::set_ready(&env.client, "node-1", "Unknown").await?;
    nodes::gone(&env.client, "node-1", GONE).await?;
    let took = noticed.elapsed();
    eprintln!("go_provider: the node of a deleted machine was deleted after {took:.1?}");
    ensure!(took >= Duration::from_secs(60), "deleted after {took:?}, before it was confirmed");
    nodes::stay(&env.client, &["node-2"], Duration::from_secs(1)).await?;
    let page = lifecycle_ccm.get("/readyz?verbose").await?.1;
    ensure!(!page.contains("[!]"), "a missing list does not fail: {page}");
    Ok(())
}
