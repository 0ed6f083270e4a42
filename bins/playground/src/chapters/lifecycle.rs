//! lifecycle-ccm: deletes nodes whose instances are gone, but not because of cloud errors.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::poll;
use tokio::time::Instant;

use super::PATIENCE;
use crate::{
    stage::{self, Stage},
    story::Story,
};

/// The program of this chapter.
pub const PROGRAM: &str = "lifecycle-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] = &[
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=2s",
    "--node-grace-period=1s",
];

/// The confirmation period in the demo; the default is 20 seconds.
const CONFIRMATION: &str = "2s";

/// The taint of a node whose machine is shut down.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The nodes of this chapter, each with its role.
const TERMINATED: &str = "node-9001";
const GONE: &str = "node-9002";
const SILENT: [&str; 2] = ["node-9003", "node-9004"];
const STOPPED: &str = "node-9005";

/// Longer than the confirmation period.
const LONG_ENOUGH: Duration = Duration::from_millis(3500);

/// Runs the chapter.
pub async fn tell(stage: &Stage, story: &mut Story) -> Result<()> {
    story.chapter("lifecycle-ccm: a node leaves with its instance");
    story.step("two replicas run, one leads", super::leader(stage, PROGRAM)).await;
    story.step("five nodes register and become schedulable", join(stage)).await;
    let what = format!("the instance of {TERMINATED} is terminated, and its kubelet falls silent");
    story.step(&what, terminate(stage)).await;

    story.chapter("lifecycle-ccm: the cloud shows another project, where everything is gone");
    let what = format!(
        "{GONE} is terminated, {} and {} fall silent; nothing is deleted",
        SILENT[0], SILENT[1]
    );
    story.step(&what, lie(stage)).await;
    let what = format!("the cloud shows the fleet again: only {GONE} leaves");
    story.step(&what, truth(stage)).await;

    story.chapter("lifecycle-ccm: the shutdown taint follows the machine");
    story.step(&format!("the machine of {STOPPED} is stopped"), stop(stage)).await;
    story.step("it is started; its kubelet is still silent", start(stage)).await;
    Ok(())
}

async fn join(stage: &Stage) -> Result<String> {
    for name in [TERMINATED, GONE, SILENT[0], SILENT[1], STOPPED] {
        stage.cloud().add(stage::instance(name));
        stage.register(name)?;
    }
    for name in [TERMINATED, GONE, SILENT[0], SILENT[1], STOPPED] {
        stage.untainted(name, PATIENCE).await?;
    }
    // The nodes must be older than the grace period.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok("node-ccm initialised them".to_owned())
}

/// Terminates a node's machine; its kubelet stops reporting.
fn lose(stage: &Stage, name: &str) -> Result<()> {
    stage.cloud().remove(&stage::instance(name).id).context("it has an instance")?;
    stage.set_ready(name, "Unknown")
}

async fn terminate(stage: &Stage) -> Result<String> {
    lose(stage, TERMINATED)?;
    let took = gone(stage, TERMINATED).await?;
    let event = event(stage, TERMINATED, "DeletingNode").await?;
    Ok(format!(
        "node object gone after {took:.1} s, {CONFIRMATION} of them to confirm it; \"{event}\""
    ))
}

/// Waits until there is no node of this name, and returns the seconds that it took.
async fn gone(stage: &Stage, name: &str) -> Result<f64> {
    let ((), took) = timed(poll::until(&format!("{name} to leave"), PATIENCE, || async {
        Ok(stage.node(name).is_none().then_some(()))
    }))
    .await?;
    Ok(took)
}

async fn event(stage: &Stage, name: &str, reason: &str) -> Result<String> {
    poll::until(&format!("an event {reason} on {name}"), PATIENCE, || async {
        Ok(stage.events(name).into_iter().find(|line| line.starts_with(reason)))
    })
    .await
}

async fn timed<T>(what: impl Future<Output = Result<T>>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = what.await?;
    Ok((done, start.elapsed().as_secs_f64()))
}

/// Waits until the breaker is open or closed, and returns its line of `/readyz?verbose`.
async fn breaker(stage: &Stage, open: bool) -> Result<String> {
    let wanted = if open { "open" } else { "closed" };
    poll::until(&format!("the breaker to be {wanted}"), PATIENCE, || async {
        let page = stage.page(PROGRAM, "/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("breaker")).context("a breaker")?;
        Ok(line.contains(wanted).then(|| line.to_owned()))
    })
    .await
}

async fn lie(stage: &Stage) -> Result<String> {
    stage.show_another_project();
    lose(stage, GONE)?;
    for name in SILENT {
        stage.set_ready(name, "Unknown")?;
    }
    let told = breaker(stage, true).await?;
    poll::always("nothing is deleted", LONG_ENOUGH, || async {
        for name in [GONE, SILENT[0], SILENT[1]] {
            ensure!(stage.node(name).is_some(), "{name} was deleted");
        }
        Ok(())
    })
    .await?;
    Ok(format!("/readyz says {told:?}"))
}

async fn truth(stage: &Stage) -> Result<String> {
    stage.cloud().faults().clear();
    let (_, closed) = timed(breaker(stage, false)).await?;
    let left = gone(stage, GONE).await?;
    for name in SILENT {
        event(stage, name, "NodeKept").await?;
        ensure!(stage.node(name).is_some(), "{name} was deleted");
    }
    Ok(format!(
        "breaker closed after {closed:.1} s, {GONE} left {left:.1} s later; the others were kept"
    ))
}

async fn stop(stage: &Stage) -> Result<String> {
    stage.cloud().set_power(&stage::instance(STOPPED).id, PowerState::Stopped);
    stage.set_ready(STOPPED, "Unknown")?;
    let ((), took) = timed(tainted(stage, true)).await?;
    Ok(format!("taint {SHUTDOWN} after {took:.1} s"))
}

async fn start(stage: &Stage) -> Result<String> {
    stage.cloud().set_power(&stage::instance(STOPPED).id, PowerState::Running);
    let ((), took) = timed(tainted(stage, false)).await?;
    Ok(format!("taint gone after {took:.1} s"))
}

async fn tainted(stage: &Stage, wanted: bool) -> Result<()> {
    poll::until(&format!("{STOPPED} to be tainted: {wanted}"), PATIENCE, || async {
        ensure!(stage.node(STOPPED).is_some(), "{STOPPED} was deleted");
        Ok((stage.has_taint(STOPPED, SHUTDOWN) == wanted).then_some(()))
    })
    .await
}
