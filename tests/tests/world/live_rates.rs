//! One controller's rates change while it runs: the walk-through of `docs/how-to/rate-limits.md`.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use tokio::time::Instant;

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON, lease};

use super::mount::Mount;

/// How soon a new file is in force. The program reads it every 5 s.
const IN_FORCE: Duration = Duration::from_secs(10);
/// Nodes that register while the limit is narrow. Each one costs two writes.
const NODES: usize = 10;
/// The burst of the narrow limit; the next request would follow after 100 s.
const NARROW_BURST: usize = 4;
const NARROW: &str = "kube_api_qps: 0.01\nkube_api_burst: 4\n";
const WIDE: &str = "kube_api_qps: 500\nkube_api_burst: 1000\n";

/// The values that no file may change.
#[derive(Debug, PartialEq)]
struct Unmoved {
    processes: [u32; 2],
    leases: Vec<(Option<String>, Option<i32>)>,
}

impl Unmoved {
    async fn look(env: &Env, node_ccm: &Program, lifecycle_ccm: &Program) -> Result<Self> {
        let mut leases = Vec::new();
        for name in ["node-ccm", "lifecycle-ccm"] {
            let spec = lease(env, name).await?;
            leases.push((spec.holder_identity, spec.lease_transitions));
        }
        Ok(Self { processes: [node_ccm.id()?, lifecycle_ccm.id()?], leases })
    }
}

/// Returns the sample of this name for reads or writes to the API server.
async fn limiter(program: &Program, name: &str) -> Result<f64> {
    let sample = format!(r#"ccm_limiter_{name}{{api="apiserver",class="write"}}"#);
    let samples = program.metrics().await?;
    samples.get(&sample).copied().with_context(|| format!("no {sample}"))
}

/// Waits until this rate and burst are shown, and returns how long that took.
async fn in_force(program: &Program, rate: f64, burst: f64) -> Result<Duration> {
    let since = Instant::now();
    poll::until(&format!("{rate}/s, burst {burst} in force"), IN_FORCE, || async {
        let shown = (limiter(program, "rate").await?, limiter(program, "burst").await?);
        ensure!((shown.0 - rate).abs() < 1e-6 && (shown.1 - burst).abs() < 1e-6, "{shown:?}");
        Ok(Some(()))
    })
    .await?;
    Ok(since.elapsed())
}

async fn reloads(program: &Program, result: &str) -> Result<f64> {
    program.metric(&format!("ccm_config_reloads_total{{result=\"{result}\"}}")).await
}

fn config(file: &Path) -> String {
    format!("--config={}", file.display())
}

pub(super) async fn one_controllers_rates_change_while_it_runs(env: Env) -> Result<()> {
    let mut own = Mount::new(env.path("node-ccm"), WIDE)?;
    let sibling = Mount::new(env.path("lifecycle-ccm"), WIDE)?;
    let node_ccm = env.start(&env.node_ccm().arg(config(&own.file()))).await?;
    let lifecycle_ccm = env.start(&env.lifecycle_ccm().arg(config(&sibling.file()))).await?;
    let before = Unmoved::look(&env, &node_ccm, &lifecycle_ccm).await?;
    in_force(&node_ccm, 500.0, 1000.0).await?;

    own.swap(NARROW)?;
    let narrow = in_force(&node_ccm, 0.01, 4.0).await?;
    narrow_holds(&env, &node_ccm).await?;

    own.swap("kube_api_qps: many\n")?;
    let refused = refusal(&node_ccm).await?;
    in_force(&node_ccm, 0.01, 4.0).await.context("the old rate stays")?;

    own.swap(WIDE)?;
    let wide = in_force(&node_ccm, 500.0, 1000.0).await?;
    // The page shows the new file a moment after the rate.
    poll::until("two new versions to be counted, and the file to be valid", SOON, || async {
        let valid = node_ccm.metric("ccm_config_valid").await? > 0.5;
        Ok((valid && reloads(&node_ccm, "success").await? > 1.5).then_some(()))
    })
    .await?;
    nodes::all_initialised(&env.client, 4 * SOON).await?;
    // The audit log may have a write after its answer.
    poll::until("two writes for each node", SOON, || async {
        let writes = env.node_writes(NODE_AGENT).await?;
        let done = writes.iter().filter(|request| request.code == 200).count();
        ensure!(done == 2 * NODES, "{done} writes for {NODES} nodes");
        Ok(Some(()))
    })
    .await?;

    ensure!(reloads(&lifecycle_ccm, "success").await? < 0.5, "lifecycle-ccm has its own file");
    in_force(&lifecycle_ccm, 500.0, 1000.0).await?;
    let after = Unmoved::look(&env, &node_ccm, &lifecycle_ccm).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    eprintln!(
        "a new rate was in force after {:.1} s and {:.1} s, a wrong one refused after {:.1} s",
        narrow.as_secs_f64(),
        wide.as_secs_f64(),
        refused.as_secs_f64()
    );
    Ok(())
}

/// Checks that new nodes get what the bucket holds, and the rest waits.
async fn narrow_holds(env: &Env, node_ccm: &Program) -> Result<()> {
    for number in 0..NODES {
        env.add_node(&format!("node-{number}")).await?;
    }
    poll::until("writes that wait for the limit", SOON, || async {
        Ok((limiter(node_ccm, "waiting").await? > 0.5).then_some(()))
    })
    .await?;
    poll::until("the burst to be spent", SOON, || async {
        Ok((env.node_writes(NODE_AGENT).await?.len() >= NARROW_BURST).then_some(()))
    })
    .await?;
    poll::always("no more than the burst is written", Duration::from_secs(2), || async {
        let writes = env.node_writes(NODE_AGENT).await?.len();
        ensure!(writes == NARROW_BURST, "{writes} writes with a burst of {NARROW_BURST}");
        Ok(())
    })
    .await
}

/// Waits until the wrong file is refused, checks every place that shows it, and returns how long it
/// took.
async fn refusal(node_ccm: &Program) -> Result<Duration> {
    let since = Instant::now();
    poll::until("the refusal to be shown", IN_FORCE, || async {
        Ok((node_ccm.metric("ccm_config_valid").await? < 0.5).then_some(()))
    })
    .await?;
    let took = since.elapsed();
    ensure!(reloads(node_ccm, "failure").await? > 0.5, "it is counted");
    let (status, page) = node_ccm.get("/readyz?verbose").await?;
    ensure!(status == 200, "a refused file does not make it unready: {page}");
    let line = page.lines().find(|line| line.starts_with("[!]config: ")).unwrap_or_default();
    ensure!(line.contains("the old one stays"), "/readyz says it: {page}");
    let log = node_ccm.log();
    let said = log.lines().find(|line| line.contains("rejected the new version"));
    let said = said.with_context(|| format!("the log says it:\n{log}"))?;
    ensure!(said.contains("kube_api_qps") && said.contains("many"), "{said}");
    eprintln!("{line}\n{said}");
    Ok(took)
}
