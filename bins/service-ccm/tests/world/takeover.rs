//! A standby with an old store takes over.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;
use ccm_tests::{
    scenarios::{Env, SOON, takeover::Pair},
    services::{self, service},
};

use crate::common::{AGENT, add_node, balancer, deletes_orphans, has_members, quick};

/// A node joins and a Service is created, which the next leader does not see: the member stays, and
/// the load balancer is not an orphan.
pub(crate) async fn an_old_store_costs_no_member_and_no_load_balancer(mut env: Env) -> Result<()> {
    for node in ["node-0", "node-1"] {
        add_node(&env, node).await?;
    }
    let mut pair = Pair::start(&env, "service-ccm", |env| deletes_orphans(quick(env))).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    has_members(&env, "web", &["node-0", "node-1"], SOON).await?;
    pair.silence();
    add_node(&env, "node-2").await?;
    services::create(&env.client, &service("late")).await?;
    services::address(&env.client, "late", SOON).await?;
    let all = ["node-0", "node-1", "node-2"];
    for name in ["web", "late"] {
        has_members(&env, name, &all, SOON).await?;
    }
    let ids = [balancer(&env, "web")?.id, balancer(&env, "late")?.id];
    env.forget_requests().await?;
    env.cloud().balancers().reset_writes();
    pair.take_over().await?;

    // This is longer than an audit's period, the confirmation of an orphan and an update of
    // members.
    poll::always("the load balancers stay", Duration::from_secs(13), || async {
        let writes = env.cloud().balancers().writes();
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await?;
    for (name, id) in ["web", "late"].into_iter().zip(ids) {
        let now = balancer(&env, name)?;
        ensure!(now.id == id && now.member_names().into_iter().eq(all), "{now:?}");
    }
    let mut writes = env.requests(AGENT).await?;
    writes.retain(|write| write.is_write() && write.resource == "services");
    ensure!(writes.is_empty(), "{writes:?}");

    add_node(&env, "node-3").await?;
    has_members(&env, "web", &["node-0", "node-1", "node-2", "node-3"], SOON).await
}
