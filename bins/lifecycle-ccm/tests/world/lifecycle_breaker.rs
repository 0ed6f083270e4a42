//! The cloud errs and lies about the fleet, and no node is deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::ErrorKind;
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect},
    poll,
    program::Program,
};
use serde_json::json;

use super::lifecycle::{DELETION, DELETIONS, count, quick};
use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, SOON, past_grace};

const FLEET: [&str; 6] = ["node-0", "node-1", "node-2", "node-3", "node-4", "node-5"];

/// Waits until the breaker is open or closed and returns its line of `/readyz?verbose`.
async fn breaker(program: &Program, open: bool, limit: Duration) -> Result<String> {
    poll::until(&format!("the breaker to be open: {open}"), limit, || async {
        let shown = count(program, "ccm_lifecycle_breaker_open").await?;
        ensure!(shown == u64::from(open), "ccm_lifecycle_breaker_open is {shown}");
        Ok(Some(()))
    })
    .await?;
    let (status, page) = program.get("/readyz?verbose").await?;
    ensure!(status == 200, "a breaker does not make it unready: {page}");
    let line = page.lines().find(|line| line.contains("]breaker")).unwrap_or_default();
    ensure!(line.contains("no node is deleted") == open, "/readyz?verbose says {line:?} of {page}");
    Ok(line.to_owned())
}

pub(super) async fn cloud_errors_delete_no_node(env: Env) -> Result<()> {
    let program = env.start(&quick(&env).arg("--cloud-call-timeout=1s")).await?;
    env.add_initialised(&FLEET).await?;
    past_grace().await;
    let error = |kind: ErrorKind| FaultEffect::Error(ccm_cloud::CloudError::new(kind, "no"));
    let all = |effect: FaultEffect| Fault::new(effect);
    let mut first = true;
    for fault in [
        all(FaultEffect::Unavailable),
        all(FaultEffect::Throttle { retry_after: None }),
        all(FaultEffect::Unauthorized),
        all(error(ErrorKind::NotFound)),
        all(FaultEffect::Hang).on(Operation::Lookup),
        // Without a list lifecycle-ccm does not delete a node, even if the lookups say that it is gone.
        all(FaultEffect::Unavailable).on(Operation::List),
    ] {
        env.cloud().faults().clear();
        env.cloud().faults().add(fault);
        if std::mem::take(&mut first) {
            env.lose("node-0").await?;
            nodes::set_ready(&env.client, "node-1", "False").await?;
            nodes::set_ready(&env.client, "node-2", "Unknown").await?;
        }
        nodes::stay(&env.client, &FLEET, DELETION).await?;
    }
    ensure!(count(&program, DELETIONS).await? == 0, "no node is deleted");
    env.cloud().faults().clear();
    nodes::gone(&env.client, "node-0", 2 * SOON).await?;
    nodes::stay(&env.client, FLEET.get(1..).unwrap_or_default(), DELETION).await
}

pub(super) async fn the_wrong_project_opens_the_breaker(env: Env) -> Result<()> {
    let program = env.start(&quick(&env)).await?;
    env.add_initialised(&FLEET).await?;
    past_grace().await;
    env.cloud().faults().add(Fault::new(FaultEffect::WrongProject));
    env.lose("node-0").await?;
    for name in ["node-1", "node-2"] {
        nodes::set_ready(&env.client, name, "False").await?;
    }
    let line = breaker(&program, true, SOON).await?;
    ensure!(line.contains("none of 6 nodes"), "it says why: {line}");
    for name in ["node-0", "node-1", "node-2"] {
        nodes::event(&env.client, name, "NodeDeletionHeld", SOON).await?;
    }
    nodes::stay(&env.client, &FLEET, DELETION).await?;
    let openings =
        count(&program, r#"ccm_lifecycle_breaker_openings_total{cause="empty"}"#).await?;
    ensure!(openings == 1, "one opening, not {openings}");

    env.cloud().faults().clear();
    breaker(&program, false, SOON).await?;
    nodes::gone(&env.client, "node-0", SOON).await?;
    nodes::event(&env.client, "node-1", "NodeKept", SOON).await?;
    nodes::stay(&env.client, FLEET.get(1..).unwrap_or_default(), DELETION).await
}

pub(super) async fn an_approval_overrides_the_breaker(env: Env) -> Result<()> {
    let program = env.start(&quick(&env)).await?;
    env.add_initialised(&FLEET).await?;
    past_grace().await;
    let lost = ["node-0", "node-1", "node-2", "node-3"];
    for name in lost {
        env.lose(name).await?;
    }
    nodes::set_ready(&env.client, "node-4", "False").await?;
    let line = breaker(&program, true, SOON).await?;
    ensure!(line.contains("lacks"), "it says why: {line}");
    for name in lost {
        nodes::event(&env.client, name, "NodeDeletionHeld", SOON).await?;
    }
    nodes::stay(&env.client, &FLEET, DELETION).await?;

    let approve = json!({"metadata": {"annotations": {"quartet.dev/deletion-approved": "yes"}}});
    for name in ["node-0", "node-1", "node-4"] {
        nodes::patch(&env.client, name, approve.clone()).await?;
    }
    for name in ["node-0", "node-1"] {
        nodes::gone(&env.client, name, SOON).await?;
    }
    // Two missing nodes are no longer suspicious.
    breaker(&program, false, SOON).await?;
    for name in ["node-2", "node-3"] {
        nodes::gone(&env.client, name, SOON).await?;
    }
    // An approval does not replace the proof.
    nodes::stay(&env.client, &["node-4", "node-5"], DELETION).await
}
