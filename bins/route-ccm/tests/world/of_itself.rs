//! A kubelet writes false fields to its own Node.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::RouteTarget;
use ccm_sim::{cloud::routes::SimRoute, poll};
use ccm_tests::{
    cluster::annotate_lease,
    nodes,
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{
    add, add_nodes, address, cidr, name, net, node, quick, reachable, routes, shows,
};

/// The kubelet claims a route of others, a wide pod CIDR and the provider ID of another node.
pub(crate) async fn a_kubelet_takes_nothing_from_others(env: Env) -> Result<()> {
    const THEIRS: &str = "10.244.200.0/24";
    let router = env.cloud().router();
    router.configure(|settings| settings.records_owner = false);
    let port = "10.0.9.99".parse()?;
    router.add_port(port);
    router.add(SimRoute::foreign(THEIRS, net(THEIRS)?, RouteTarget::Address(port)));
    add_nodes(&env, 0..5).await?;
    let leader = env.start(&quick(&env)).await?;
    reachable(&env, 0..5).await?;

    let own = address(&name(0)).to_string();
    for addresses in [vec![own.clone(), port.to_string()], vec![own]] {
        let one = |address| json!({"type": "InternalIP", "address": address});
        let all: Vec<_> = addresses.into_iter().map(one).collect();
        nodes::patch_status(&env.client, &name(0), json!({"status": {"addresses": all}})).await?;
        sleep(Duration::from_secs(3)).await;
        ensure!(routes(&env).contains_key(THEIRS), "{:?}\n{}", routes(&env), leader.log());
    }

    let wide = "10.244.128.0/17";
    add(&env, &node("wide", &[wide])).await?;
    let why = shows(&env, "wide", "True", "NoRouteCreated").await?;
    ensure!(why.contains("wider than on most nodes (/24)"), "{why}");
    nodes::event(&env.client, "wide", "PodCIDRWithoutRoute", SOON).await?;
    add_nodes(&env, [130]).await?;
    reachable(&env, [130]).await?;

    let mut twin = node("twin", &[&cidr(99)]);
    twin["spec"]["providerID"] = node(&name(1), &[])["spec"]["providerID"].clone();
    add(&env, &twin).await?;
    let why = shows(&env, "twin", "True", "NoRouteCreated").await?;
    ensure!(
        why.contains(&format!("node {}, which is initialised, ready or older", name(1))),
        "{why}"
    );

    // A person approves the wide pod CIDR, as soon as no other node needs a part of it.
    nodes::delete(&env.client, &name(130)).await?;
    let approval = json!({
        "quartet.dev/approved-selector": "*", "quartet.dev/approved-until": "2999-01-01T00:00:00Z"});
    annotate_lease(&env.client, "route-ccm", approval).await?;
    shows(&env, "wide", "False", "RouteCreated").await?;
    poll::until("the route of the node that went to go", SOON, || async {
        Ok((!routes(&env).contains_key(&cidr(130))).then_some(()))
    })
    .await?;
    ensure!(
        routes(&env).contains_key(wide) && !routes(&env).contains_key(&cidr(99)),
        "{:?}",
        routes(&env)
    );
    ensure!(routes(&env).contains_key(THEIRS), "{:?}", routes(&env));
    reachable(&env, 0..5).await
}
