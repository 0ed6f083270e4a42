//! A policy of a real API server undoes pod CIDRs, and another client writes the condition.

use std::{ops::Range, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
    poll,
    program::Program,
};
use ccm_tests::{
    nodes,
    policies::{Contested, Policy, patience},
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::common::{AGENT, add_bare_nodes, add_nodes, condition, name, pod_cidrs, with_cidrs};

/// The nodes whose pod CIDRs the policy removes, and the nodes whose condition another client sets.
const POLICY: Range<usize> = 0..3;
const RIVAL: Range<usize> = 3..6;

/// The nodes that get no pod CIDRs.
const WAITING: &str = "ccm_ipam_nodes_waiting";

/// The policy that removes pod CIDRs from each write.
const TAKES_BACK: &str = "(has(object.spec.podCIDRs) && !has(oldObject.spec.podCIDRs) \
    ? [JSONPatch{op: \"remove\", path: \"/spec/podCIDRs\"}, JSONPatch{op: \"remove\", path: \"/spec/podCIDR\"}] : [])";

/// Like cilium-operator: whenever the condition is not False, it sets it.
async fn rival(env: &Env) -> Result<()> {
    let set = json!({"status": {"conditions": [{
        "type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp", "message": "up"}]}});
    loop {
        for number in RIVAL {
            let name = name(number);
            if condition(env, &name).await?.is_none_or(|[status, ..]| status != "False") {
                nodes::patch_status(&env.client, &name, set.clone()).await?;
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The gauge of [`WAITING`], which the alert must see all the time.
async fn waiting(program: &Program) -> Result<()> {
    let are_waiting = async || Ok((program.metric(WAITING).await? > 0.0).then_some(()));
    poll::until("nodes to wait for pod CIDRs", SOON, &are_waiting).await?;
    loop {
        are_waiting().await?.context("no node waits for pod CIDRs")?;
        sleep(Duration::from_millis(200)).await;
    }
}

/// Neither a policy nor another client makes the program write without end, and each of them is
/// reported once.
pub(crate) async fn what_is_taken_back_costs_a_write_a_minute(env: Env) -> Result<()> {
    let quota = CloudError::new(ErrorKind::QuotaExceeded, "the router is full");
    let full = FaultEffect::Routes(RIVAL.map(name).collect(), Trouble::Fail(quota));
    env.cloud().faults().add(Fault::new(full).on(Operation::ApplyRoutes));
    add_nodes(&env, RIVAL).await?;
    let policy = Policy::of_nodes(&env.client, "takes-back", TAKES_BACK).await?;
    add_bare_nodes(&env, POLICY).await?;
    let began = Instant::now();
    let program = env.start(&with_cidrs(&env, "10.244.0.0/16")).await?;
    tokio::select! {
        ended = rival(&env) => ended.context("the other client")?,
        ended = waiting(&program) => ended?,
        () = sleep(patience()) => (),
    }
    let time = began.elapsed();
    let contested = Contested { env: &env, agent: AGENT, program: &program, time };
    for number in POLICY {
        let told = ("CIDRAssignmentFailed", "did not store podCIDRs");
        contested.costs_little(&name(number), &[told]).await?;
    }
    for number in RIVAL {
        let told =
            [("RepeatedWrite", "NetworkUnavailable"), ("FailedToCreateRoute", "router is full")];
        contested.costs_little(&name(number), &told).await?;
    }
    contested.alerts("RouteCCMNodesWithoutPodCIDRs", WAITING).await?;
    contested.alerts_of_repeated("NetworkUnavailable").await?;
    policy.remove().await?;
    for number in POLICY {
        let name = name(number);
        poll::until("pod CIDRs", 5 * SOON, || async {
            Ok((!pod_cidrs(&env, &name).await?.is_empty()).then_some(()))
        })
        .await?;
    }
    ensure!(program.leads().await?, "it leads all the time");
    Ok(())
}
