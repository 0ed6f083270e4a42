//! Routes with open ports, with a Neutron that changes routes only as a whole list, and with
//! used-up quotas. Also counts the cost of routes.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use http::Method;

use super::routes::{address, cidr, pairs, port, register, route_ccm, settled};
use crate::{
    nodes,
    openstack::{
        Service,
        many_routes::{self, is_reachable},
        proxy::{Effect, Fault, tally},
        rig::{Rig, SOON},
    },
};

/// The maximum of the services here, see `tests/openstack/conf/neutron.conf`.
const MOST_ROUTES: usize = 320;
/// `max_allowed_address_pair`, Neutron's default.
const MOST_PAIRS: usize = 10;

/// Returns routes of others, of this number.
fn others(number: usize) -> Vec<String> {
    (0..number).map(|number| format!("10.{}.{}.0/24", 100 + number / 256, number % 256)).collect()
}

/// A port without port security lets all packets through, so it does not get a pair.
pub(super) async fn a_port_without_port_security_needs_no_pair(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    let router = user.router().await?;
    many_routes::clear(user, &router).await?;
    let (open, secure) = (rig.fleet(0)?, rig.fleet(1)?);
    let open_port = port(user, open).await?;
    let open_port = open_port["id"].as_str().context("a port without an ID")?;
    user.secure_port(open_port, false).await?;
    let mark = rig.cloud.proxy.log().mark();
    rig.use_router(&router)?;
    register(rig, 1, open).await?;
    register(rig, 2, secure).await?;
    let program = rig.start(&route_ccm(rig)).await?;
    for server in [open, secure] {
        nodes::wait_for(&rig.client, &server.name, "reachable", SOON, is_reachable).await?;
    }
    let two = BTreeSet::from([cidr(2)]);
    ensure!(pairs(user, secure).await? == two, "the port with port security lets it through");
    let writes = rig.cloud.proxy.log().since(mark).into_iter();
    let writes: Vec<_> = writes.filter(|one| one.method == Method::PUT).collect();
    ensure!(!writes.iter().any(|one| one.path.ends_with(open_port)), "{:?}", tally(&writes));

    nodes::delete(&rig.client, &open.name).await?;
    settled(rig, &router, &[(&cidr(2), address(secure)?)], [None, Some(&[&cidr(2)]), None]).await?;
    program.terminate().await?;
    user.secure_port(open_port, true).await?;
    tidy(rig, &router).await
}

/// Without `extraroute-atomic` the whole list is written, but only if no other client has changed
/// it.
pub(super) async fn a_whole_list_is_written_with_its_revision(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    let router = user.router().await?;
    many_routes::clear(user, &router).await?;
    let proxy = &rig.cloud.proxy;
    let hidden = Fault::new(Effect::Without("extraroute-atomic")).on(Service::Network);
    proxy.faults().add(hidden.exactly("/v2.0/extensions"));
    let (first, second) = (rig.fleet(0)?, rig.fleet(1)?);
    let hops = [address(first)?, address(second)?];
    let foreign = others(2);
    let [one, two] = [(foreign[0].as_str(), hops[0]), (foreign[1].as_str(), hops[0])];
    user.set_routes(&router, &[one]).await?;
    rig.use_router(&router)?;
    register(rig, 1, first).await?;
    let mark = proxy.log().mark();
    let program = rig.start(&route_ccm(rig)).await?;
    let cidrs = [cidr(1), cidr(2)];
    settled(rig, &router, &[one, (&cidrs[0], hops[0])], [Some(&[&cidrs[0]]), Some(&[]), None])
        .await?;

    // Between its read and its write another client adds a route: the write must not undo that.
    let path = format!("/v2.0/routers/{router}");
    let slow = Fault::new(Effect::Slow(std::time::Duration::from_secs(3))).method(Method::PUT);
    let slow = proxy.faults().add(slow.on(Service::Network).exactly(&path).times(1));
    register(rig, 2, second).await?;
    poll::until("the write to be on its way", SOON, || async {
        Ok((proxy.faults().hits(slow) > 0).then_some(()))
    })
    .await?;
    user.set_routes(&router, &[one, two, (&cidrs[0], hops[0])]).await?;
    let all = [one, two, (cidrs[0].as_str(), hops[0]), (&cidrs[1], hops[1])];
    settled(rig, &router, &all, [Some(&[&cidrs[0]]), Some(&[&cidrs[1]]), None]).await?;
    let requests = proxy.log().since(mark);
    let refused = requests.iter().filter(|it| it.path == path && it.status == Some(412)).count();
    ensure!(refused == 1, "the old revision is refused once: {:?}", tally(&requests));
    ensure!(!requests.iter().any(|it| it.path.contains("extraroutes")), "{:?}", tally(&requests));
    program.terminate().await?;
    tidy(rig, &router).await
}

/// Quotas are named, and routes that fit are created.
pub(super) async fn used_up_quotas_are_named(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    let router = user.router().await?;
    many_routes::clear(user, &router).await?;
    let (first, second, third) = (rig.fleet(0)?, rig.fleet(1)?, rig.fleet(2)?);
    let foreign = others(MOST_ROUTES - 2);
    let full: Vec<_> = foreign.iter().map(String::as_str).collect();
    let hop = address(first)?;
    let foreign: Vec<_> = full.iter().map(|to| (*to, hop)).collect();
    user.set_routes(&router, &foreign).await?;
    let crowded = port(user, second).await?;
    let crowded = crowded["id"].as_str().context("a port without an ID")?;
    let (_, pairs) = full.split_at(full.len() - MOST_PAIRS);
    user.set_pairs(crowded, pairs).await?;

    rig.use_router(&router)?;
    register(rig, 1, first).await?;
    register(rig, 2, second).await?;
    let program = rig.start(&route_ccm(rig)).await?;
    nodes::wait_for(&rig.client, &first.name, "reachable", SOON, is_reachable).await?;
    let said = nodes::event(&rig.client, &second.name, "address pairs", SOON).await?;
    ensure!(said.contains(&MOST_PAIRS.to_string()), "it names the limit: {said}");
    register(rig, 3, third).await?;
    let said = nodes::event(&rig.client, &third.name, "routes of a router", SOON).await?;
    // The current Neutron does not say how many routes its quota allows.
    let is_named = said.contains("(router_route)") || said.contains(&MOST_ROUTES.to_string());
    ensure!(is_named, "it names the limit: {said}");
    for server in [second, third] {
        let node = nodes::get(&rig.client, &server.name).await?;
        ensure!(!is_reachable(&node), "{} has no route that works", server.name);
    }

    // The operator makes room. A used-up quota is tried again every five minutes.
    user.set_pairs(crowded, &pairs[1..]).await?;
    let own = (cidr(1), cidr(2));
    let mut left: Vec<_> = foreign[..foreign.len() - 1].to_vec();
    left.extend([(own.0.as_str(), hop), (own.1.as_str(), address(second)?)]);
    user.set_routes(&router, &left).await?;
    for server in [second, third] {
        nodes::wait_for(&rig.client, &server.name, "reachable", 12 * SOON, is_reachable)
            .await
            .with_context(|| program.log())?;
    }
    program.terminate().await?;
    tidy(rig, &router).await
}

/// The cost of a few nodes; `make bench BENCH=openstack` counts 300 in the same way.
pub(super) async fn routes_of_many_nodes_cost_few_calls(rig: &Rig) -> Result<()> {
    const NODES: usize = 12;
    for is_secure in [false, true] {
        let figures = many_routes::measure(rig, NODES, is_secure).await?;
        figures.print(NODES);
        figures.check(NODES)?;
    }
    Ok(())
}

/// Checks that no routes and no pairs at the fleet's ports are left.
async fn tidy(rig: &Rig, router: &str) -> Result<()> {
    let user = &rig.cloud.user;
    many_routes::clear(user, router).await?;
    for server in &rig.cloud.fleet {
        let port = port(user, server).await?;
        user.set_pairs(port["id"].as_str().context("a port without an ID")?, &[]).await?;
    }
    Ok(())
}
