//! lifecycle-ccm: deletes nodes whose instances are gone, but not because of cloud errors.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::poll;
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use crate::{
    environment::{self, Environment},
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
pub async fn run(environment: &Environment, output: &mut Output) -> Result<()> {
    output.chapter("lifecycle-ccm: a node is deleted after its instance");
    output.step("two replicas run, one leads", super::leader(environment, PROGRAM)).await;
    output.step("five nodes register and become schedulable", join(environment)).await;
    let what =
        format!("the instance of {TERMINATED} is terminated, and its kubelet stops reporting");
    output.step(&what, terminate(environment)).await;

    output.chapter("lifecycle-ccm: the cloud shows another project, without any of the instances");
    let what = format!(
        "{GONE} is terminated, the kubelets of {} and {} stop reporting; no node is deleted",
        NOT_REPORTING[0], NOT_REPORTING[1]
    );
    output.step(&what, wrong_project(environment)).await;
    let what = format!("the cloud shows the fleet again: only {GONE} is deleted");
    output.step(&what, recovery(environment)).await;

    output.chapter("lifecycle-ccm: the shutdown taint follows the machine");
    output.step(&format!("the machine of {STOPPED} is stopped"), stop(environment)).await;
    output.step("it is started; its kubelet does not report yet", start(environment)).await;
    Ok(())
}

async fn join(environment: &Environment) -> Result<String> {
    for name in [TERMINATED, GONE, NOT_REPORTING[0], NOT_REPORTING[1], STOPPED] {
        environment.cloud().add(environment::instance(name));
        environment.register(name)?;
    }
    for name in [TERMINATED, GONE, NOT_REPORTING[0], NOT_REPORTING[1], STOPPED] {
        environment.untainted(name, STEP_TIMEOUT).await?;
    }
    // The nodes must be older than the grace period.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok("node-ccm initialised them".to_owned())
}

/// Terminates a node's machine; its kubelet stops reporting.
fn terminate_machine(environment: &Environment, name: &str) -> Result<()> {
    environment.cloud().remove(&environment::instance(name).id).context("it has an instance")?;
    environment.set_ready(name, "Unknown")
}

async fn terminate(environment: &Environment) -> Result<String> {
    terminate_machine(environment, TERMINATED)?;
    let took = gone(environment, TERMINATED).await?;
    let event = event(environment, TERMINATED, "DeletingNode").await?;
    Ok(format!(
        "node deleted after {took:.1} s, of which {CONFIRMATION} for confirmation; \"{event}\""
    ))
}

/// Waits until there is no node of this name, and returns the seconds that it took.
async fn gone(environment: &Environment, name: &str) -> Result<f64> {
    let ((), took) = timed(poll::until(&format!("{name} to be deleted"), STEP_TIMEOUT, || async {
        Ok(environment.node(name).is_none().then_some(()))
    }))
    .await?;
    Ok(took)
}

async fn event(environment: &Environment, name: &str, reason: &str) -> Result<String> {
    poll::until(&format!("an event {reason} on {name}"), STEP_TIMEOUT, || async {
        Ok(environment.events(name).into_iter().find(|line| line.starts_with(reason)))
    })
    .await
}

async fn timed<T>(what: impl Future<Output = Result<T>>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = what.await?;
    Ok((done, start.elapsed().as_secs_f64()))
}

/// Waits until the breaker is open or closed, and returns its line of `/readyz?verbose`.
async fn breaker(environment: &Environment, open: bool) -> Result<String> {
    let wanted = if open { "open" } else { "closed" };
    poll::until(&format!("the breaker to be {wanted}"), STEP_TIMEOUT, || async {
        let page = environment.page(PROGRAM, "/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("breaker")).context("a breaker")?;
        Ok(line.contains(wanted).then(|| line.to_owned()))
    })
    .await
}

async fn wrong_project(environment: &Environment) -> Result<String> {
    environment.show_another_project();
    terminate_machine(environment, GONE)?;
    for name in NOT_REPORTING {
        environment.set_ready(name, "Unknown")?;
    }
    let line = breaker(environment, true).await?;
    poll::always("no node is deleted", PAST_CONFIRMATION, || async {
        for name in [GONE, NOT_REPORTING[0], NOT_REPORTING[1]] {
            ensure!(environment.node(name).is_some(), "{name} was deleted");
        }
        Ok(())
    })
    .await?;
    Ok(format!("/readyz shows {line:?}"))
}

async fn recovery(environment: &Environment) -> Result<String> {
    environment.cloud().faults().clear();
    let (_, closed) = timed(breaker(environment, false)).await?;
    let left = gone(environment, GONE).await?;
    for name in NOT_REPORTING {
        event(environment, name, "NodeKept").await?;
        ensure!(environment.node(name).is_some(), "{name} was deleted");
    }
    Ok(format!(
        "breaker closed after {closed:.1} s, {GONE} was deleted {left:.1} s later; the others were kept"
    ))
}

async fn stop(environment: &Environment) -> Result<String> {
    environment.cloud().set_power(&environment::instance(STOPPED).id, PowerState::Stopped);
    environment.set_ready(STOPPED, "Unknown")?;
    let ((), took) = timed(tainted(environment, true)).await?;
    Ok(format!("taint {SHUTDOWN} after {took:.1} s"))
}

async fn start(environment: &Environment) -> Result<String> {
    environment.cloud().set_power(&environment::instance(STOPPED).id, PowerState::Running);
    let ((), took) = timed(tainted(environment, false)).await?;
    Ok(format!("taint gone after {took:.1} s"))
}

async fn tainted(environment: &Environment, wanted: bool) -> Result<()> {
    poll::until(&format!("{STOPPED} to be tainted: {wanted}"), STEP_TIMEOUT, || async {
        ensure!(environment.node(STOPPED).is_some(), "{STOPPED} was deleted");
        Ok((environment.has_taint(STOPPED, SHUTDOWN) == wanted).then_some(()))
    })
    .await
}
