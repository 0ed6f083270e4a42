//! Members follow the nodes, but do not follow a mistake.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;
use ccm_tests::{
    cluster::annotate_lease,
    nodes,
    scenarios::{Env, SOON},
    services::{self, service},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{add_node, balancer, has_members, quick};

pub(crate) async fn members_follow_the_nodes(env: Env) -> Result<()> {
    for node in ["node-0", "node-1"] {
        add_node(&env, node).await?;
    }
    let _leader = env.start(&quick(&env)).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    add_node(&env, "node-2").await?;
    has_members(&env, "web", &["node-0", "node-1", "node-2"], SOON).await?;
    // Readiness does not matter, but a mark and the label do.
    nodes::set_ready(&env.client, "node-0", "Unknown").await?;
    let mark = json!({"spec": {"taints": [
        {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}]}});
    nodes::patch(&env.client, "node-1", mark).await?;
    has_members(&env, "web", &["node-0", "node-2"], SOON).await?;
    let label = json!({"metadata": {"labels": {
        "node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    nodes::patch(&env.client, "node-2", label).await?;
    has_members(&env, "web", &["node-0"], SOON).await?;
    nodes::delete(&env.client, "node-0").await?;
    sleep(Duration::from_secs(4)).await;
    has_members(&env, "web", &["node-0"], SOON).await
}

/// The members follow over the protocol of `external`, although only the provider knows by which
/// labels it selects.
pub(crate) async fn members_follow_the_labels_of_nodes(env: Env) -> Result<()> {
    env.cloud().balancers().configure(|settings| settings.traits.member_labels = true);
    for node in ["node-0", "node-1", "node-2"] {
        add_node(&env, node).await?;
    }
    let label = async |node: &str, value: serde_json::Value| {
        let pool = json!({"metadata": {"labels": {"pool": value}}});
        nodes::patch(&env.client, node, pool).await
    };
    label("node-0", json!("edge")).await?;
    let _leader = env.start(&quick(&env)).await?;
    let mut web = service("web");
    web["metadata"]["annotations"] = json!({"sim/node-selector": "pool=edge"});
    services::create(&env.client, &web).await?;
    services::address(&env.client, "web", SOON).await?;
    has_members(&env, "web", &["node-0"], SOON).await?;
    label("node-1", json!("edge")).await?;
    has_members(&env, "web", &["node-0", "node-1"], SOON).await?;
    label("node-0", json!(null)).await?;
    has_members(&env, "web", &["node-1"], SOON).await
}

/// The next leader knows which nodes the load balancers have. So it reads their members at once if
/// the nodes differ now, and otherwise only in their turn within 30 minutes.
pub(crate) async fn a_node_that_joins_between_two_leaders_becomes_a_member(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let launch = quick(&env).arg("--load-balancer-audit-period=5m");
    let leader = env.start(&launch).await?;
    for name in ["web", "api"] {
        services::create(&env.client, &service(name)).await?;
        services::address(&env.client, name, SOON).await?;
    }
    // This is the time of some renewals of the Lease.
    sleep(Duration::from_secs(6)).await;
    leader.terminate().await?;
    add_node(&env, "node-1").await?;
    let _leader = env.start(&launch).await?;
    for name in ["web", "api"] {
        has_members(&env, name, &["node-0", "node-1"], SOON).await?;
    }
    Ok(())
}

pub(crate) async fn a_thin_view_empties_no_load_balancer(env: Env) -> Result<()> {
    let names: Vec<String> = (0..20).map(|number| format!("node-{number:02}")).collect();
    for name in &names {
        add_node(&env, name).await?;
    }
    let leader = env.start(&quick(&env)).await?;
    for name in ["web", "api"] {
        services::create(&env.client, &service(name)).await?;
        services::address(&env.client, name, SOON).await?;
    }
    for name in &names {
        nodes::delete(&env.client, name).await?;
    }
    sleep(Duration::from_secs(8)).await;
    let left = balancer(&env, "web")?.members.len();
    ensure!(left == 17, "{left} of 20 members are left");
    // The next leader does not get a new budget.
    drop(leader);
    let leader = env.start(&quick(&env)).await?;
    sleep(Duration::from_secs(8)).await;
    let left = balancer(&env, "web")?.members.len();
    ensure!(left == 17, "{left} of 20 members are left by two leaders");
    poll::until("members to be shown as held", SOON, || async {
        let held = leader.metric("ccm_service_members_held").await?;
        Ok((33.5..34.5).contains(&held).then_some(()))
    })
    .await?;
    services::wait_for(&env.client, "web", "shown as held", 3 * SOON, |service| {
        services::condition(service, "LoadBalancerServing")
            .is_some_and(|(status, reason)| status == "True" && reason == "MembersHeld")
    })
    .await?;
    // A person approves; the last member stays.
    let approved =
        json!({"metadata": {"annotations": {"quartet.dev/member-loss-approved": "yes"}}});
    services::patch(&env.client, "web", approved).await?;
    one_is_left(&env, "web").await?;
    let left = balancer(&env, "api")?.members.len();
    ensure!(left == 17, "{left} of 20 members of a Service without approval are left");
    // The Lease approves all at once.
    let all = json!({
        "quartet.dev/approved-selector": "*", "quartet.dev/approved-until": "2999-01-01T00:00:00Z"});
    annotate_lease(&env.client, "service-ccm", all).await?;
    one_is_left(&env, "api").await
}

async fn one_is_left(env: &Env, name: &str) -> Result<()> {
    poll::until("one member is left", SOON, || async {
        Ok((balancer(env, name)?.members.len() == 1).then_some(()))
    })
    .await
}
