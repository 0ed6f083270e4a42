//! Work for which service-ccm needs each of its rights.

use anyhow::Result;
use ccm_tests::{
    scenarios::Env,
    services::{self, service},
};

use crate::common::{add_node, balancer};

/// Makes work: each round a new Service and a new node.
pub(crate) async fn step(env: &Env, round: u32) -> Result<()> {
    add_node(env, &format!("node-{round}")).await?;
    services::create(&env.client, &service(&format!("web-{round}"))).await?;
    Ok(())
}

/// Whether the newest Service has no address, or the newest node is no member.
pub(crate) async fn is_undone(env: &Env) -> Result<bool> {
    let mut round = 0;
    while services::get(&env.client, &format!("web-{}", round + 1)).await.is_ok() {
        round += 1;
    }
    let name = format!("web-{round}");
    let Ok(newest) = services::get(&env.client, &name).await else { return Ok(false) };
    if services::addresses(&newest).is_empty() {
        return Ok(true);
    }
    let node = format!("node-{round}");
    Ok(!balancer(env, "web-0")?.member_names().contains(&*node))
}
