//! The cloud makes mistakes while nodes are judged, and no node is deleted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::leadership::CLOUD_IDENTITY;
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use serde_json::json;

use crate::{
    cluster::annotate_lease,
    fixture::past_grace,
    nodes,
    openstack::{
        Service,
        admin::Account,
        proxy::{Effect, Fault},
        rig::{Rig, SOON},
    },
};

/// This is long enough for a deletion by the rig's lifecycle-ccm: a lookup, the confirmation,
/// another lookup.
const DELETION: Duration = Duration::from_secs(4);

/// Time limit of one call. All answers of one pass must arrive within it to count together, and
/// Nova takes most of a second to answer for three servers on a busy machine.
const CALL: Duration = Duration::from_secs(3);

/// The same as [`DELETION`] if each look takes the maximum time, because the service does not
/// answer or the program repeats failed requests.
const SLOW_DELETION: Duration = Duration::from_secs(9);

/// The path at which lifecycle-ccm lists servers.
const LIST: &str = "/v2.1/servers";

/// Returns all faults that do not end by themselves. The last one opens the breaker, which then
/// holds all deletions.
fn faults() -> Vec<Fault> {
    let services = |effect: Effect| Fault::new(effect).on(Service::Compute);
    vec![
        services(Effect::throttle(Some(Duration::from_secs(1)))),
        services(Effect::throttle(None)),
        services(Effect::unauthorized()),
        services(Effect::internal_error()),
        services(Effect::html_not_found()),
        services(Effect::Hang),
        // One server exists, but the list fails: without the list no node is deleted.
        services(Effect::internal_error()).exactly(LIST),
        services(Effect::Truncated),
        services(Effect::HalfJson),
        Fault::new(Effect::Cut),
        // Rejected credentials are not retried for half a minute at first.
        Fault::new(Effect::unauthorized()),
        services(Effect::EmptyList).exactly(LIST),
    ]
}

/// True if the breaker has this state: 1 is open, which holds all deletions.
async fn breaker_is(program: &Program, wanted: f64) -> Result<()> {
    shows(program, "ccm_lifecycle_breaker_open", wanted).await
}

async fn identity_is_changed(program: &Program, wanted: f64) -> Result<()> {
    shows(program, "ccm_cloud_identity_changed", wanted).await
}

/// Waits until the metric has this value.
async fn shows(program: &Program, metric: &str, wanted: f64) -> Result<()> {
    poll::until(&format!("{metric} to be {wanted}"), SOON, || async {
        let is = program.metrics().await?.get(metric).copied();
        Ok((is == Some(wanted)).then_some(()))
    })
    .await
    .with_context(|| program.log())
}

/// Returns lifecycle-ccm with a limit for its calls that an answer can miss.
fn impatient(rig: &Rig) -> Launch {
    rig.lifecycle_ccm().arg(format!("--cloud-call-timeout={}s", CALL.as_secs()))
}

/// Replaces the previous fault, and waits with it for as long as a deletion may take.
async fn no_node_is_deleted_for(rig: &Rig, fault: Fault, names: &[&str]) -> Result<()> {
    let faults = rig.cloud.proxy.faults();
    let id = faults.replace(fault);
    poll::until("the fault to be met twice", 2 * SOON, || async {
        Ok((faults.hits(id) >= 2).then_some(()))
    })
    .await?;
    nodes::stay(&rig.client, names, SLOW_DELETION).await
}

pub(super) async fn no_fault_deletes_a_node(rig: &Rig) -> Result<()> {
    let lost = rig.server("lost").await?;
    let program = rig.start(&impatient(rig)).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().chain([&lost]).collect();
    rig.register_initialised(&fleet).await?;
    let names: Vec<_> = fleet.iter().map(|server| server.name.as_str()).collect();
    past_grace().await;

    // Ready nodes are not looked up, so the first fault precedes them.
    rig.cloud.proxy.faults().replace(Fault::new(Effect::Hang));
    rig.cloud.user.delete_server(&lost.id).await?;
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    nodes::set_ready(&rig.client, &rig.fleet(0)?.name, "False").await?;
    nodes::set_ready(&rig.client, &rig.fleet(1)?.name, "Unknown").await?;
    for fault in faults() {
        breaker_is(&program, 0.0).await.with_context(|| format!("before {fault:?}"))?;
        let met = no_node_is_deleted_for(rig, fault.clone(), &names).await;
        met.with_context(|| format!("{fault:?}\n{}", program.log()))?;
        ensure!(program.get("/livez").await?.0 == 200, "{fault:?}: it lives");
    }
    breaker_is(&program, 1.0).await.context("an empty list opens it")?;

    rig.cloud.proxy.faults().clear();
    nodes::gone(&rig.client, &lost.name, 2 * SOON).await?;
    rig.cloud.proxy.faults().add(Fault::new(Effect::Slow(CALL.mul_f64(0.8))));
    let left: Vec<_> = rig.cloud.fleet.iter().map(|server| server.name.as_str()).collect();
    nodes::stay(&rig.client, &left, SLOW_DELETION).await
}

/// Uses the program's default periods. The time is printed, because people ask for this figure.
pub(super) async fn the_node_of_a_deleted_server_leaves(rig: &Rig) -> Result<()> {
    let lost = rig.server("left").await?;
    let launch = rig.launch("lifecycle-ccm").arg("--node-grace-period=1s");
    let _program = rig.start(&launch).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().chain([&lost]).collect();
    rig.register_initialised(&fleet).await?;
    // Nearly every node of a cluster is this old. For a younger node the first answer "gone" does
    // not count.
    past_grace().await;
    rig.cloud.user.delete_server(&lost.id).await?;
    let start = tokio::time::Instant::now();
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    nodes::gone(&rig.client, &lost.name, 2 * SOON).await?;
    eprint!("node gone after {:.2} s; ", start.elapsed().as_secs_f64());
    Ok(())
}

/// Nova of another project has none of these servers and answers 404.
pub(super) async fn the_wrong_project_deletes_no_node(rig: &Rig) -> Result<()> {
    let program = rig.start(&rig.lifecycle_ccm()).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().collect();
    rig.register_initialised(&fleet).await?;
    let names: Vec<_> = fleet.iter().map(|server| server.name.as_str()).collect();
    past_grace().await;
    // Another project takes effect only with the next process.
    drop(program);
    rig.log_in_as(&Account::of("other"))?;
    let program = rig.start(&rig.lifecycle_ccm()).await?;
    for name in &names {
        nodes::set_ready(&rig.client, name, "Unknown").await?;
    }
    identity_is_changed(&program, 1.0).await?;
    nodes::stay(&rig.client, &names, DELETION).await?;
    // A person approves it, which is a mistake.
    annotate_lease(&rig.client, "lifecycle-ccm", json!({CLOUD_IDENTITY: null})).await?;
    breaker_is(&program, 1.0).await?;
    identity_is_changed(&program, 0.0).await?;
    nodes::stay(&rig.client, &names, DELETION).await?;
    drop(program);
    rig.log_in_as(&Account::of("k8s"))?;
    let program = rig.start(&rig.lifecycle_ccm()).await?;
    identity_is_changed(&program, 1.0).await?;
    annotate_lease(&rig.client, "lifecycle-ccm", json!({CLOUD_IDENTITY: null})).await?;
    breaker_is(&program, 0.0).await?;
    nodes::stay(&rig.client, &names, DELETION).await
}

pub(super) async fn a_frozen_nova_deletes_no_node(rig: &Rig) -> Result<()> {
    let program = rig.start(&impatient(rig)).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().collect();
    rig.register_initialised(&fleet).await?;
    let names: Vec<_> = fleet.iter().map(|server| server.name.as_str()).collect();
    past_grace().await;
    let frozen = rig.cloud.services.freeze("nova-api")?;
    for name in &names {
        nodes::set_ready(&rig.client, name, "Unknown").await?;
    }
    nodes::stay(&rig.client, &names, SLOW_DELETION).await?;
    ensure!(program.leads().await?, "and the Lease is kept");
    drop((frozen, program));
    // Nova now answers all earlier requests before any new one.
    rig.cloud.user.servers().await.map(drop)
}
