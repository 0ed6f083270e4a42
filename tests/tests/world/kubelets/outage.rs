//! The API server is away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_tests::{cluster::kubelets::Machine, nodes};
use tokio::time::{Instant, sleep_until};

use super::rig::{Rig, SOON, is_usable};

const AWAY: Duration = Duration::from_mins(2);
/// A failed list is repeated after up to a minute, and then the Lease of the previous process must
/// expire.
const BACK: Duration = Duration::from_mins(2);

/// Leaders end and are restarted while kubelets continue. One machine dies with its instance, and
/// another one boots. Afterwards everything is as it should be.
pub(super) async fn two_minutes(rig: &mut Rig) -> Result<()> {
    let one = rig.join(nodes::instance("node-1")).await?;
    let two = rig.join(nodes::instance("node-2")).await?;
    let cluster = rig.env.cluster.clone();
    let cluster = cluster.real().context("a real API server")?;
    cluster.stop_apiserver().await?;
    let back = Instant::now() + AWAY;
    rig.say("the API server is away");

    two.kubelet.kill().await?;
    rig.env.cloud().remove(&two.instance.id);
    let third = nodes::instance("node-3");
    rig.env.cloud().add(third.clone());
    let three = rig.machines.start_kubelet(&Machine::of(&third))?;
    for at in 0..rig.programs.len() {
        restarts_without_api_server(rig, at).await?;
    }
    sleep_until(back).await;
    cluster.start_apiserver().await?;
    rig.say("the API server is back");

    let looks = tokio::try_join!(
        leads(rig, 0),
        leads(rig, 1),
        rig.node("node-1", "is usable", SOON, is_usable),
        rig.node("node-3", "has joined", BACK, is_usable),
        rig.gone("node-2", BACK + SOON),
    );
    looks?;
    rig.is_same(&one.node).await?;
    drop((one, three));
    rig.deletions_are(&[("lifecycle-ccm", "node-2")]).await
}

/// A leader ends with exit code 1, and the next process waits for the API server.
async fn restarts_without_api_server(rig: &mut Rig, at: usize) -> Result<()> {
    let program = rig.programs.get_mut(at).context("a program")?;
    let status = program.wait(SOON).await?;
    ensure!(status.code() == Some(1), "a leader without its Lease ended with {status}");
    let launch = rig.launches.get(at).context("its command line")?;
    *program = rig.env.start_only(launch)?;
    rig.say(&format!("program {at} has lost its Lease, ended with {status}, and is restarted"));
    Ok(())
}

async fn leads(rig: &Rig, at: usize) -> Result<()> {
    let program = rig.programs.get(at).context("a program")?;
    rig.until(&format!("program {at} leads"), BACK, async || {
        Ok(program.leads().await?.then_some(()))
    })
    .await
}
