//! A mistake in the view of the nodes deletes few routes, and a person decides about more.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{poll, program::Program};
use ccm_tests::{
    cluster::annotate_lease,
    nodes,
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{
    add, add_nodes, cidr, delete_nodes, name, node, quick, reachable, routed, routes,
};

/// Waits until this many deletions are held, and checks that as many routes stay.
async fn held(env: &Env, leader: &Program, held: f64, left: usize) -> Result<()> {
    poll::until(&format!("{held} changes to be held"), SOON, || async {
        let found = leader.metric("ccm_route_changes_held").await?;
        ensure!((found - held).abs() < 0.5, "{found} are held, the routes are {:?}", routes(env));
        // The other deletions are on their way.
        Ok((routes(env).len() == left).then_some(()))
    })
    .await?;
    poll::always("the others stay", Duration::from_secs(2), || async {
        let found = routes(env).len();
        ensure!(found == left, "{found} routes are left, and not {left}");
        Ok(())
    })
    .await
}

pub(crate) async fn a_shrunken_list_deletes_few_routes(env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.records_owner = true);
    add_nodes(&env, 0..10).await?;
    for number in 10..20 {
        let mut node = node(&name(number), &[&cidr(number)]);
        node["metadata"]["labels"]["pool"] = json!("batch");
        add(&env, &node).await?;
    }
    let leader = env.start(&quick(&env)).await?;
    reachable(&env, 0..20).await?;
    // An autoscaler marks the nodes that it removes, so they do not count.
    for number in 0..5 {
        let mark = json!({"spec": {"taints": [
            {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}]}});
        nodes::patch(&env.client, &name(number), mark).await?;
    }
    delete_nodes(&env, 0..5).await?;
    routed(&env, 5..20).await?;

    delete_nodes(&env, 5..8).await?;
    routed(&env, 8..20).await?;
    delete_nodes(&env, 8..14).await?;
    held(&env, &leader, 6.0, 12).await?;
    approve(&env, "pool=batch").await?;
    held(&env, &leader, 2.0, 8).await?;
    // The next leader has neither a new budget nor a memory of the labels.
    drop(leader);
    let leader = env.start(&quick(&env)).await?;
    held(&env, &leader, 2.0, 8).await?;
    approve(&env, "*").await?;
    routed(&env, 14..20).await
}

/// Each leader is killed as soon as it has deleted something, or may have done so.
pub(crate) async fn killed_leaders_share_one_budget(env: Env) -> Result<()> {
    const LIVES: usize = 4;
    env.cloud().router().configure(|settings| settings.records_owner = true);
    add_nodes(&env, 0..20).await?;
    let leader = env.start(&quick(&env)).await?;
    reachable(&env, 0..20).await?;
    drop(leader);
    delete_nodes(&env, 0..12).await?;
    for _ in 0..LIVES {
        let before = routes(&env).len();
        let leader = env.start(&quick(&env)).await?;
        let deletion = poll::until("a deletion", Duration::from_secs(2), || async {
            Ok((routes(&env).len() < before).then_some(()))
        });
        deletion.await.ok();
        drop(leader);
    }
    let left = routes(&env).len();
    ensure!(left == 17, "three of twenty routes may go, and {} went", 20 - left);
    Ok(())
}

async fn approve(env: &Env, selector: &str) -> Result<()> {
    let all = json!({
        "quartet.dev/approved-selector": selector, "quartet.dev/approved-until": "2999-01-01T00:00:00Z"});
    annotate_lease(&env.client, "route-ccm", all).await
}

pub(crate) async fn no_node_at_all_deletes_no_route(env: Env) -> Result<()> {
    add_nodes(&env, 0..6).await?;
    let leader = env.start(&quick(&env)).await?;
    reachable(&env, 0..6).await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");
    env.cloud().router().reset_writes();
    delete_nodes(&env, 0..6).await?;
    // The API server answers the list with 200 OK and no nodes.
    let leader = env.start(&quick(&env)).await?;
    sleep(Duration::from_secs(4)).await;
    routed(&env, 0..6).await?;
    add_nodes(&env, 0..6).await?;
    reachable(&env, 0..6).await?;
    let writes = env.cloud().router().writes();
    ensure!(writes.is_empty(), "{writes:?}\n{}", leader.log());
    Ok(())
}
