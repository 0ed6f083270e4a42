//! Work for which service-ccm needs each of its rights.

use anyhow::Result;
use ccm_sim::program::Launch;
use ccm_tests::{
    rights::manifest::Grant,
    scenarios::Env,
    services::{self, service},
};

use crate::common::{ORPHAN, add_node, add_orphan, balancer, deletes_orphans, quick};

/// Returns the program as these tests start it: one that deletes orphans, for which alone it reads
/// single Services.
pub(crate) fn launch(env: &Env) -> Launch {
    deletes_orphans(quick(env))
}

/// Makes work: once an orphan, and each round a new Service and a new node.
pub(crate) async fn step(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        add_orphan(env).await?;
    }
    add_node(env, &format!("node-{round}")).await?;
    services::create(&env.client, &service(&format!("web-{round}"))).await?;
    Ok(())
}

/// Returns true if the orphan exists, for which single Services are read; otherwise if the newest
/// Service has no address, or the newest node is not a member.
pub(crate) async fn is_undone(env: &Env, grant: &Grant) -> Result<bool> {
    if grant.resource == "services" && grant.verb == "get" {
        return Ok(env.cloud().balancers().get(ORPHAN).is_some());
    }
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
