//! Routes of a router for the pods of nodes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Launch};
use serde_json::{Value, json};

use super::access_rules;
use crate::{
    nodes,
    openstack::{
        admin::{Admin, Server},
        many_routes::{CLUSTER, is_reachable},
        proxy::tally,
        rig::{Rig, SOON, fresh},
    },
};

/// A network that another client routes, and lets a port use.
const FOREIGN: &str = "10.99.0.0/24";

/// Returns the pod CIDR of the node with this number.
pub(super) fn cidr(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Returns the address of a server.
pub(super) fn address(server: &Server) -> Result<&str> {
    server.fixed.first().map(String::as_str).context("a server without an address")
}

/// Registers the node of a server, with its address and a pod CIDR.
pub(super) async fn register(rig: &Rig, number: usize, server: &Server) -> Result<()> {
    let mut node = fresh(server);
    node["spec"] = json!({
        "providerID": server.provider_id(), "podCIDR": cidr(number), "podCIDRs": [cidr(number)]
    });
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address(server)?}]);
    nodes::register(&rig.client, &node).await
}

pub(super) fn route_ccm(rig: &Rig) -> Launch {
    rig.launch("route-ccm")
        .arg(format!("--cluster-cidr={CLUSTER}"))
        .arg("--route-reconciliation-period=10s")
}

/// Returns the only port of a server.
pub(super) async fn port(user: &Admin, server: &Server) -> Result<Value> {
    user.ports(&server.id).await?.into_iter().next().context("a server without a port")
}

/// Returns the networks that a server's port may use besides its own address.
pub(super) async fn pairs(user: &Admin, server: &Server) -> Result<BTreeSet<String>> {
    let port = port(user, server).await?;
    ensure!(port["port_security_enabled"] == true, "Neutron protects ports: {port}");
    let pairs = port["allowed_address_pairs"].as_array().context("no pairs")?;
    let network = |pair: &Value| pair["ip_address"].as_str().map(str::to_owned);
    pairs.iter().map(|pair| network(pair).context("a pair without a network")).collect()
}

/// Waits until the router has exactly these routes, and the fleet's ports have these pairs (`None`
/// allows any).
pub(super) async fn settled(
    rig: &Rig,
    router: &str,
    expect: &[(&str, &str)],
    allowed: [Option<&[&str]>; 3],
) -> Result<()> {
    let user = &rig.cloud.user;
    let wanted: BTreeSet<_> =
        expect.iter().map(|(to, by)| ((*to).to_owned(), (*by).to_owned())).collect();
    poll::until("routes and pairs", SOON, || async {
        let found = user.routes(router).await?;
        ensure!(found == wanted, "the routes are {found:?}, and not {wanted:?}");
        for (server, allowed) in rig.cloud.fleet.iter().zip(allowed) {
            let Some(allowed) = allowed else { continue };
            let (found, allowed) = (pairs(user, server).await?, allowed.iter().copied());
            let allowed: BTreeSet<_> = allowed.map(str::to_owned).collect();
            ensure!(found == allowed, "{} may use {found:?}, and not {allowed:?}", server.name);
        }
        Ok(Some(()))
    })
    .await
}

/// With the access rules of the page, routes and pairs come and go with nodes, and routes of others
/// stay.
pub(super) async fn nodes_have_routes_and_what_others_made_stays(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    let router = user.router().await?;
    let (first, second, third) = (rig.fleet(0)?, rig.fleet(1)?, rig.fleet(2)?);
    let hops = [address(first)?, address(second)?, address(third)?];
    let cidrs = [cidr(1), cidr(2), cidr(3)];
    let [one, two, three] = cidrs.each_ref().map(String::as_str);
    let foreign = (FOREIGN, hops[0]);
    user.set_routes(&router, &[foreign]).await?;
    for (server, others) in [(first, &[FOREIGN][..]), (second, &[]), (third, &[])] {
        let port = port(user, server).await?;
        user.set_pairs(port["id"].as_str().context("a port without an ID")?, others).await?;
    }

    let account =
        access_rules::log_in(rig, "router", &access_rules::rules_for("route-ccm")?).await?;
    rig.use_router(&router)?;
    register(rig, 1, first).await?;
    register(rig, 2, second).await?;
    let mark = rig.cloud.proxy.log().mark();
    let program = rig.start(&route_ccm(rig)).await?;
    let both = [foreign, (one, hops[0]), (two, hops[1])];
    settled(rig, &router, &both, [Some(&[FOREIGN, one]), Some(&[two]), Some(&[])]).await?;
    register(rig, 3, third).await?;
    let all = [foreign, (one, hops[0]), (two, hops[1]), (three, hops[2])];
    settled(rig, &router, &all, [Some(&[FOREIGN, one]), Some(&[two]), Some(&[three])]).await?;
    for server in [first, second, third] {
        nodes::wait_for(&rig.client, &server.name, "reachable", SOON, is_reachable).await?;
    }

    nodes::delete(&rig.client, &second.name).await?;
    let left = [foreign, (one, hops[0]), (three, hops[2])];
    settled(rig, &router, &left, [Some(&[FOREIGN, one]), Some(&[]), Some(&[three])]).await?;
    // Another client removes a route, which the next list shows.
    user.set_routes(&router, &[foreign, (one, hops[0])]).await?;
    settled(rig, &router, &left, [Some(&[FOREIGN, one]), Some(&[]), Some(&[three])]).await?;

    tokio::time::sleep(Duration::from_secs(11)).await;
    settled(rig, &router, &left, [Some(&[FOREIGN, one]), Some(&[]), Some(&[three])]).await?;
    let counts = tally(&rig.cloud.proxy.log().since(mark));
    ensure!(!counts.keys().any(|it| it.starts_with("compute ")), "none of Nova: {counts:?}");
    let errors: f64 = program
        .metrics()
        .await?
        .iter()
        .filter(|(name, _)| name.starts_with("openstack_api_request_errors_total"))
        .map(|(_, count)| count)
        .sum();
    ensure!(errors < 1.0, "{errors} requests were refused: {counts:?}");
    drop(program);
    user.set_routes(&router, &[]).await?;
    rig.cloud.operator.delete_user(&account.id).await
}
