//! Leaders that are killed share one budget.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use ccm_tests::{
    cluster::free_lease,
    nodes,
    scenarios::{Env, SOON},
    services::{self, service},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{add_node, add_orphans, balancer, deletes_orphans, quick};

/// How many Services there are.
const SERVICES: usize = 12;
/// The number of orphans. If most load balancers were orphans, the program would not believe it.
const ORPHANS: usize = 8;
/// How many load balancers may be replaced. As many orphans may be deleted.
const BUDGET: usize = 3;
/// How many leaders are killed because of each.
const LIVES: usize = 5;

fn name(number: usize) -> String {
    format!("web-{number:02}")
}

/// Returns the number of load balancers in the cloud.
fn count(env: &Env) -> usize {
    env.cloud().balancers().all().len()
}

/// Starts a leader. A change of each kind of object shows that its watches work: it would wait for
/// bookmarks otherwise.
async fn lead(env: &Env, launch: &Launch, number: usize) -> Result<Program> {
    let leader = env.start_standby(launch).await?;
    let change = json!({"metadata": {"labels": {"life": number.to_string()}}});
    nodes::patch(&env.client, "node-0", change.clone()).await?;
    services::patch(&env.client, &name(SERVICES - 1), change).await?;
    leader.leading(SOON).await?;
    Ok(leader)
}

/// Ends this life without any order.
async fn kill(env: &Env, leader: Program) -> Result<()> {
    drop(leader);
    free_lease(&env.client, "service-ccm").await
}

/// Each leader is killed as soon as it has replaced or deleted a load balancer, or may have done
/// so.
pub(crate) async fn ten_killed_leaders_share_their_budgets(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let launch = deletes_orphans(quick(&env));
    let leader = env.start(&launch).await?;
    for number in 0..SERVICES {
        services::create(&env.client, &service(&name(number))).await?;
    }
    for number in 0..SERVICES {
        services::address(&env.client, &name(number), SOON).await?;
    }
    kill(&env, leader).await?;
    // One is lost in each life, because several at once would not be believed.
    for number in 0..LIVES {
        env.cloud().balancers().remove(&balancer(&env, &name(number))?.id);
        let before = count(&env);
        let leader = lead(&env, &launch, number).await?;
        poll::until("a replacement, or that it is held", 2 * SOON, || async {
            let is_replaced = count(&env) > before;
            let held = leader.metric("ccm_service_replacements_held").await?;
            Ok((is_replaced || held > 0.0).then_some(()))
        })
        .await
        .with_context(|| leader.log())?;
        kill(&env, leader).await?;
    }
    let replaced = count(&env) + LIVES - SERVICES;
    ensure!(replaced == BUDGET, "three may be replaced, and {replaced} were");

    let all = count(&env) + ORPHANS;
    add_orphans(&env, ORPHANS).await?;
    for number in 0..LIVES {
        let before = count(&env);
        let leader = lead(&env, &launch, number).await?;
        poll::until("the first list", SOON, || async {
            Ok(leader
                .get("/readyz?verbose")
                .await?
                .1
                .contains("load balancers listed")
                .then_some(()))
        })
        .await?;
        // service-ccm lists again when it reads members, which confirms the first list.
        sleep(Duration::from_millis(1100)).await;
        add_node(&env, &format!("node-{}", number + 1)).await?;
        poll::until("a deletion, or that it is held", 2 * SOON, || async {
            let held = leader.metric("ccm_service_orphans_held").await?;
            let is_deleted = count(&env) < before || all - count(&env) > BUDGET;
            Ok((is_deleted || held > 0.0).then_some(()))
        })
        .await
        .with_context(|| leader.log())?;
        kill(&env, leader).await?;
    }
    let deleted = all - count(&env);
    ensure!(deleted == BUDGET, "three may be deleted, and {deleted} were");
    Ok(())
}
