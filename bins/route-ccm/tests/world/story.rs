//! The events that the dashboard of route-ccm shows.

use anyhow::{Context as _, Result};
use ccm_cloud::{CloudError, Cure, ErrorKind, RouteTarget};
use ccm_sim::{
    cloud::{Operation, routes::SimRoute},
    faults::{Fault, FaultEffect, Trouble},
    program::Launch,
};
use ccm_tests::{
    nodes,
    prometheus::{SETTLE, Stage},
    scenarios::Env,
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{self, add, add_bare_nodes, delete_nodes, name, net, node, reachable};

/// Sixteen blocks: they are soon used up.
pub(crate) fn launch(env: &Env) -> Launch {
    common::with_cidrs(env, "10.244.0.0/20")
}

pub(crate) async fn play(stage: &mut Stage) -> Result<()> {
    add_others(&stage.env)?;
    join(&stage.env).await.context("nodes join")?;
    throttle(stage).await.context("the cloud throttles")?;
    refuse(stage).await.context("cloud and API server refuse")?;
    // These are more than the brake allows at once.
    delete_nodes(&stage.env, 2..8).await?;
    sleep(SETTLE).await;
    stage.env.cloud().faults().clear();
    stage.hand_over().await.context("the leader is stopped")?;
    add_bare_nodes(&stage.env, [12]).await?;
    reachable(&stage.env, [12]).await?;
    fill(&stage.env).await
}

/// Sets a quota of the router. Adds routes that do not belong to the program, inside and outside of
/// its network, and one without a target.
fn add_others(env: &Env) -> Result<()> {
    env.cloud().router().configure(|router| router.quota = Some(100));
    let port = "10.9.9.9".parse()?;
    env.cloud().router().add_port(port);
    let nowhere = "10.9.9.10".parse()?;
    for (destination, target) in
        [("10.244.15.0/24", port), ("192.168.0.0/24", port), ("10.244.14.0/24", nowhere)]
    {
        let target = RouteTarget::Address(target);
        env.cloud().router().add(SimRoute::foreign(destination, net(destination)?, target));
    }
    Ok(())
}

/// Nodes get their pod CIDRs and routes. One changes its address.
async fn join(env: &Env) -> Result<()> {
    add_bare_nodes(env, 0..8).await?;
    reachable(env, 0..8).await?;
    let moved = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.99"}]}});
    nodes::patch_status(&env.client, &name(1), moved).await?;
    sleep(SETTLE).await;
    Ok(())
}

async fn throttle(stage: &Stage) -> Result<()> {
    // Only the first two are used, because the range has sixteen blocks.
    let late = async |env: &Env, number| match [8, 24].get(number) {
        Some(node) => add_bare_nodes(env, [*node]).await,
        None => Ok(()),
    };
    stage.throttle_cloud(late).await
}

/// One route fails, another one does not carry traffic, and writes to nodes are refused.
async fn refuse(stage: &Stage) -> Result<()> {
    let busy = CloudError::new(ErrorKind::Unavailable, "the router is busy");
    for (number, trouble) in [(9, Trouble::Fail(busy)), (10, Trouble::Break(Cure::Person))] {
        let fault = Fault::new(FaultEffect::Routes(vec![name(number)], trouble));
        stage.env.cloud().faults().add(fault.on(Operation::ApplyRoutes));
    }
    stage.refuse_writes("nodes")?;
    add_bare_nodes(&stage.env, 9..12).await?;
    sleep(SETTLE).await;
    Ok(())
}

/// The range is used up. Then another allocator gives a node its pod CIDR.
async fn fill(env: &Env) -> Result<()> {
    add_bare_nodes(env, 13..24).await?;
    sleep(SETTLE).await;
    add(env, &node("by-another", &["10.99.0.0/24"])).await?;
    sleep(SETTLE).await;
    Ok(())
}
