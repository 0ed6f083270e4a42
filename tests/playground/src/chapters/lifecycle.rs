//! lifecycle-ccm: deletes nodes whose instances are gone, but not because of cloud errors.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::poll;
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use crate::{
    demo::{self, Demo},
    output::Output,
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
const NOT_REPORTING: [&str; 2] = ["node-9003", "node-9004"];
const STOPPED: &str = "node-9005";

/// Longer than the confirmation period.
const PAST_CONFIRMATION: Duration = Duration::from_millis(3500);

/// Runs the chapter.
pub async fn run(demo: &Demo, output: &mut Output) -> Result<()> {
    output.chapter("lifecycle-ccm: a node is deleted after its instance");
    output.step("two replicas run, one leads", super::leader(demo, PROGRAM)).await;
    output.step("five nodes register and become schedulable", join(demo)).await;
    let what = format!("the instance of {TERMINATED} is terminated; its kubelet stops reporting");
    output.step(&what, terminate(demo)).await;

    output.chapter("lifecycle-ccm: the cloud shows another project, without any of the instances");
    let what = format!(
        "{GONE} is terminated, the kubelets of {} and {} stop reporting; no node is deleted",
        NOT_REPORTING[0], NOT_REPORTING[1]
    );
    output.step(&what, wrong_project(demo)).await;
    let what = format!("the cloud shows the fleet again: only {GONE} is deleted");
    output.step(&what, recovery(demo)).await;

    output.chapter("lifecycle-ccm: the shutdown taint follows the machine");
    output.step(&format!("the machine of {STOPPED} is stopped"), stop(demo)).await;
    output.step("the machine is started; its kubelet does not report yet", start(demo)).await;
    Ok(())
}

async fn join(demo: &Demo) -> Result<String> {
    for name in [TERMINATED, GONE, NOT_REPORTING[0], NOT_REPORTING[1], STOPPED] {
        demo.cloud().add(demo::instance(name));
        demo.register(name)?;
    }
    for name in [TERMINATED, GONE, NOT_REPORTING[0], NOT_REPORTING[1], STOPPED] {
        demo.untainted(name, STEP_TIMEOUT).await?;
    }
    // The nodes must be older than the grace period.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok("node-ccm initialised them".to_owned())
}

/// Terminates a node's machine. Its kubelet stops reporting.
fn terminate_machine(demo: &Demo, name: &str) -> Result<()> {
    demo.cloud().remove(&demo::instance(name).id).context("it has an instance")?;
    demo.set_ready(name, "Unknown")
}

async fn terminate(demo: &Demo) -> Result<String> {
    terminate_machine(demo, TERMINATED)?;
    let took = gone(demo, TERMINATED).await?;
    let event = event(demo, TERMINATED, "DeletingNode").await?;
    Ok(format!(
        "node deleted after {took:.1} s, of which {CONFIRMATION} for confirmation; \"{event}\""
    ))
}

/// Waits until the node of this name is gone, and returns the seconds that it took.
async fn gone(demo: &Demo, name: &str) -> Result<f64> {
    let ((), took) = timed(poll::until(&format!("{name} to be deleted"), STEP_TIMEOUT, || async {
        Ok(demo.node(name).is_none().then_some(()))
    }))
    .await?;
    Ok(took)
}

async fn event(demo: &Demo, name: &str, reason: &str) -> Result<String> {
    poll::until(&format!("an event {reason} on {name}"), STEP_TIMEOUT, || async {
        Ok(demo.events(name).into_iter().find(|line| line.starts_with(reason)))
    })
    .await
}

async fn timed<T>(what: impl Future<Output = Result<T>>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = what.await?;
    Ok((done, start.elapsed().as_secs_f64()))
}

/// Waits until the breaker is open or closed, and returns its line of `/readyz?verbose`.
async fn breaker(demo: &Demo, open: bool) -> Result<String> {
    let wanted = if open { "open" } else { "closed" };
    poll::until(&format!("the breaker to be {wanted}"), STEP_TIMEOUT, || async {
        let page = demo.page(PROGRAM, "/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("breaker")).context("a breaker")?;
        Ok(line.contains(wanted).then(|| line.to_owned()))
    })
    .await
}

async fn wrong_project(demo: &Demo) -> Result<String> {
    demo.show_another_project();
    terminate_machine(demo, GONE)?;
    for name in NOT_REPORTING {
        demo.set_ready(name, "Unknown")?;
    }
    let line = breaker(demo, true).await?;
    poll::always("no node is deleted", PAST_CONFIRMATION, || async {
        for name in [GONE, NOT_REPORTING[0], NOT_REPORTING[1]] {
            ensure!(demo.node(name).is_some(), "{name} was deleted");
        }
        Ok(())
    })
    .await?;
    Ok(format!("/readyz shows {line:?}"))
}

async fn recovery(demo: &Demo) -> Result<String> {
    demo.cloud().faults().clear();
    let (_, closed) = timed(breaker(demo, false)).await?;
    let left = gone(demo, GONE).await?;
    for name in NOT_REPORTING {
        event(demo, name, "NodeKept").await?;
        ensure!(demo.node(name).is_some(), "{name} was deleted");
    }
    Ok(format!(
        "breaker closed after {closed:.1} s, {GONE} was deleted {left:.1} s later; the others were kept"
    ))
}

async fn stop(demo: &Demo) -> Result<String> {
    demo.cloud().set_power(&demo::instance(STOPPED).id, PowerState::Stopped);
    demo.set_ready(STOPPED, "Unknown")?;
    let ((), took) = timed(tainted(demo, true)).await?;
    Ok(format!("taint {SHUTDOWN} after {took:.1} s"))
}

async fn start(demo: &Demo) -> Result<String> {
    demo.cloud().set_power(&demo::instance(STOPPED).id, PowerState::Running);
    let ((), took) = timed(tainted(demo, false)).await?;
    Ok(format!("taint gone after {took:.1} s"))
}

async fn tainted(demo: &Demo, wanted: bool) -> Result<()> {
    poll::until(&format!("{STOPPED} to be tainted: {wanted}"), STEP_TIMEOUT, || async {
        ensure!(demo.node(STOPPED).is_some(), "{STOPPED} was deleted");
        Ok((demo.has_taint(STOPPED, SHUTDOWN) == wanted).then_some(()))
    })
    .await
}
