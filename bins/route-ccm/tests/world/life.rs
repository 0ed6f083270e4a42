//! Nodes come, change and leave, and so do leaders.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::{
    cloud::{Operation, routes::RouteWriteKind},
    faults::{Fault, FaultEffect},
    poll,
};
use ccm_tests::{
    nodes,
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{
    AGENT, add_nodes, address, cidr, delete_nodes, name, node, quick, reachable, route_ccm, routed,
    routes, shows, wanted, writes_to, written_once,
};

pub(crate) async fn nodes_get_their_routes_and_lose_them(env: Env) -> Result<()> {
    add_nodes(&env, 0..4).await?;
    let leader = env.start(&route_ccm(&env)).await?;
    reachable(&env, 0..4).await?;
    routed(&env, 0..4).await?;
    let calls = env.cloud().calls().routes;
    ensure!(calls.apply <= 2 && calls.list == 1, "four nodes, few calls: {calls:?}");

    // A node that is not ready is still reachable, but a deleted node is not.
    nodes::set_ready(&env.client, &name(1), "Unknown").await?;
    delete_nodes(&env, [3]).await?;
    add_nodes(&env, [4]).await?;
    reachable(&env, [4]).await?;
    routed(&env, [0, 1, 2, 4]).await?;

    // A node with both families has a route of each.
    let mut dual = node("dual", &["10.244.9.0/24", "fd00:10:244:9::/64"]);
    dual["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": address("dual").to_string()},
        {"type": "InternalIP", "address": "fd00::9"},
    ]);
    let mut instance = nodes::instance("dual");
    instance.addresses.push(NodeAddress::new(AddressKind::InternalIp, "fd00::9"));
    env.cloud().add(instance);
    nodes::register(&env.client, &dual).await?;
    shows(&env, "dual", "False", "RouteCreated").await?;
    let mut expected = wanted([0, 1, 2, 4]);
    expected.insert("10.244.9.0/24".to_owned(), address("dual").to_string());
    expected.insert("fd00:10:244:9::/64".to_owned(), "fd00::9".to_owned());
    ensure!(routes(&env) == expected, "{:?}", routes(&env));
    for number in [0, 1, 2, 4] {
        let writes = writes_to(&env, &name(number)).await?;
        ensure!(writes.len() == 1, "one write for each node: {writes:?}");
    }
    ensure!(writes_to(&env, "dual").await?.len() == 1, "one write for both families");
    ensure!(leader.terminate().await?.success(), "it ends in order");
    Ok(())
}

pub(crate) async fn a_node_with_another_address_moves_its_route(env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.traits.replaces = true);
    add_nodes(&env, 0..3).await?;
    let _leader = env.start(&route_ccm(&env)).await?;
    reachable(&env, 0..3).await?;
    env.cloud().router().reset_writes();
    env.cloud().update(&nodes::instance(&name(1)).id, |instance| {
        instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.99")];
    });
    let moved = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.99"}]}});
    nodes::patch_status(&env.client, &name(1), moved).await?;
    let mut expected = wanted(0..3);
    expected.insert(cidr(1), "10.0.0.99".to_owned());
    poll::until("the route to move", SOON, || async {
        Ok((routes(&env) == expected).then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(1)).await;
    let writes = env.cloud().router().writes();
    let kinds: Vec<_> = writes.iter().map(|write| write.kind).collect();
    ensure!(kinds == [RouteWriteKind::Replace], "{writes:?}");
    written_once(&env, 0..3).await
}

pub(crate) async fn a_restart_writes_nothing(mut env: Env) -> Result<()> {
    add_nodes(&env, 0..20).await?;
    let leader = env.start(&route_ccm(&env)).await?;
    reachable(&env, 0..20).await?;
    written_once(&env, 0..20).await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");
    env.forget_requests().await?;
    env.cloud().router().reset_writes();
    env.cloud().reset_calls();
    let again = env.start(&route_ccm(&env)).await?;
    poll::until("the routes to be compared", SOON, || async {
        let page = again.get("/readyz?verbose").await?.1;
        Ok(page.contains("20 routes listed").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(2)).await;
    let writes = env.node_writes(AGENT).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    ensure!(env.cloud().router().writes().is_empty(), "the cloud was written to");
    let calls = env.cloud().calls().routes;
    ensure!((calls.total(), calls.list) == (1, 1), "{calls:?}");
    Ok(())
}

/// The leader dies between two batches. The next one does the rest, and nothing twice.
pub(crate) async fn a_killed_leader_leaves_no_gap(env: Env) -> Result<()> {
    const NODES: usize = 40;
    env.cloud().router().configure(|settings| {
        settings.traits.max_batch = 10;
        // The calls are made one after another, so that the leader dies in the middle.
        settings.traits.compares_version = true;
    });
    let slow = FaultEffect::Latency(Duration::from_millis(700));
    env.cloud().faults().add(Fault::new(slow).on(Operation::ApplyRoutes));
    add_nodes(&env, 0..NODES).await?;
    let leader = env.start(&quick(&env)).await?;
    let _standby = env.start_standby(&quick(&env)).await?;
    poll::until("some routes", SOON, || async {
        Ok((env.cloud().router().len() >= 10).then_some(()))
    })
    .await?;
    drop(leader);
    let made = env.cloud().router().len();
    ensure!(made < NODES, "the leader died too late: {made} routes");
    routed(&env, 0..NODES).await?;
    reachable(&env, 0..NODES).await?;
    let created = env.cloud().router().written(RouteWriteKind::Create);
    let all = env.cloud().router().writes().len();
    ensure!((created, all) == (NODES, NODES), "{created} of {all} writes are creations");
    for number in 0..NODES {
        let wrong = writes_to(&env, &name(number)).await?;
        ensure!(wrong.len() <= 2, "{wrong:?}");
    }
    Ok(())
}
