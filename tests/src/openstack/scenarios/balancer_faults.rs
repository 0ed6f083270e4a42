//! Octavia is away, stuck or busy, or it fails; Neutron does not assign a floating IP; people
//! interfere.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    openstack::{
        Service,
        balancing::{
            BALANCERS, Calls, Shown, add_node, add_nodes, delete_all, have_member, id, id_of,
            of_service, provisioned, quick, says, service,
        },
        proxy::{Effect, Fault},
        rig::{Rig, SOON},
    },
    services,
};

/// The minimum time for which Octavia is away, with pauses between attempts.
const AWAY: Duration = Duration::from_secs(120);

/// Starts two nodes, and the program with quick periods.
async fn start(rig: &Rig) -> Result<ccm_sim::program::Program> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    rig.start(&quick(rig)).await
}

/// Creates a Service of two ports, and waits until it is served.
async fn serve(rig: &Rig, name: &str) -> Result<String> {
    services::create(&rig.client, &service(name, 2)).await?;
    services::address(&rig.client, name, SOON).await?;
    provisioned(rig, name, SOON).await?;
    id_of(rig, name).await
}

pub(super) async fn octavia_is_away_for_two_minutes(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let before = serve(rig, "before").await?;
    let shown = Shown::watch(rig);
    rig.cloud.proxy.pause(Service::LoadBalancer).await;
    let start = Instant::now();
    services::create(&rig.client, &service("during", 1)).await?;
    let text = says(rig, "during", "CloudUnavailable", 2 * SOON).await?;
    let joined = add_node(rig, 3).await?;
    ensure!(!text.is_empty(), "it says what is wrong");
    // Another, new Service also gets its event: no worker is blocked.
    services::create(&rig.client, &service("later", 1)).await?;
    says(rig, "later", "CloudUnavailable", 2 * SOON).await?;
    sleep(AWAY.saturating_sub(start.elapsed())).await;
    rig.cloud.proxy.resume(Service::LoadBalancer).await?;
    let back = Instant::now();
    for name in ["during", "later"] {
        services::address(&rig.client, name, 5 * SOON).await.with_context(|| program.log())?;
    }
    have_member(rig, &[before], &joined, 3 * SOON).await?;
    eprintln!(
        "Octavia was away for 2 minutes: all is well {:.1} s later",
        back.elapsed().as_secs_f64()
    );
    shown.never_changed()?;
    delete_all(rig, &["before", "during", "later"].map(str::to_owned), 2 * SOON).await
}

pub(super) async fn one_that_is_stuck_delays_no_other(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let stuck = serve(rig, "stuck").await?;
    rig.cloud.services.set_balancer_status(&stuck, "PENDING_UPDATE")?;
    let ports = service("stuck", 3)["spec"]["ports"].take();
    services::patch(&rig.client, "stuck", json!({"spec": {"ports": ports}})).await?;
    let start = Instant::now();
    serve(rig, "free").await?;
    eprintln!(
        "a Service beside a stuck one is served after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let text = says(rig, "stuck", "WaitingForCloud", 3 * SOON).await?;
    ensure!(text.contains("PENDING_UPDATE"), "it says on what: {text}");
    rig.cloud.services.set_balancer_status(&stuck, "ACTIVE")?;
    provisioned(rig, "stuck", 3 * SOON).await.with_context(|| program.log())?;
    let tree = rig.cloud.user.balancer_tree(&stuck).await?;
    ensure!(tree["listeners"].as_array().is_some_and(|all| all.len() == 3), "{tree}");
    delete_all(rig, &["stuck", "free"].map(str::to_owned), 2 * SOON).await
}

pub(super) async fn a_failed_one_is_repaired_and_keeps_its_address(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let failed = serve(rig, "failed").await?;
    let shown = Shown::watch(rig);
    let vip = rig.cloud.user.balancer(&failed).await?.context("it exists")?["vip_address"].clone();
    sleep(Duration::from_secs(1)).await;
    rig.cloud.services.set_pool_status(&failed, "ERROR")?;
    rig.cloud.services.set_balancer_status(&failed, "ERROR")?;
    let said =
        says(rig, "failed", "CloudUnavailable", SOON).await.with_context(|| program.log())?;
    let is_why = said.contains(&failed) && said.contains("ERROR") && said.contains("pool");
    ensure!(is_why, "it says which load balancer has failed, and which part of it: {said}");
    eprintln!("a failed load balancer: {said}");
    let now = poll::until("a load balancer that works", 3 * SOON, || async {
        sleep(Duration::from_millis(500)).await;
        let all = of_service(rig, "failed").await?;
        Ok(all.into_iter().find(|one| one["provisioning_status"] == "ACTIVE"))
    })
    .await
    .with_context(|| program.log())?;
    ensure!(now["vip_address"] == vip, "the virtual address was {vip} and is {now}");
    provisioned(rig, "failed", SOON).await?;
    have_member(rig, &[id(&now)?], "member-001", SOON).await?;
    shown.never_changed()?;
    let floating = rig.cloud.user.floating_ip_details().await?;
    ensure!(floating.len() == 1 && floating[0]["port_id"] == now["vip_port_id"], "{floating:?}");
    delete_all(rig, &["failed".to_owned()], 2 * SOON).await
}

/// Octavia's load balancers are immutable again and again, as when it changes much at once.
pub(super) async fn a_storm_of_conflicts_ends_well(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let names = ["storm-0", "storm-1", "storm-2"].map(str::to_owned);
    let mut balancers = Vec::new();
    for name in &names {
        balancers.push(serve(rig, name).await?);
    }
    // After a creation Octavia 2.26 accepts members only once each pool has been written.
    let first = add_node(rig, 3).await?;
    have_member(rig, &balancers, &first, 3 * SOON).await.with_context(|| program.log())?;
    let mark = rig.cloud.proxy.log().mark();
    let storm = Fault::new(Effect::immutable()).on(Service::LoadBalancer).method(Method::PUT);
    rig.cloud.proxy.faults().add(storm.times(12));
    let joined = add_node(rig, 4).await?;
    have_member(rig, &balancers, &joined, 3 * SOON).await.with_context(|| program.log())?;
    let calls = Calls::since(rig, mark);
    let writes = calls.writes;
    eprintln!(
        "3 load balancers of 2 ports, 12 answers 409: {writes} writes: {:?}",
        calls.by_pattern
    );
    // Each of the six is written once, and each refusal costs one more write.
    ensure!(writes <= 6 + 12, "{calls:?}");
    let refusal = Fault::new(Effect::immutable()).on(Service::LoadBalancer).method(Method::DELETE);
    rig.cloud.proxy.faults().add(refusal.times(3));
    delete_all(rig, &names, 3 * SOON).await
}

pub(super) async fn a_failed_floating_ip_is_tried_again(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let faults = rig.cloud.proxy.faults();
    let mark = rig.cloud.proxy.log().mark();
    let fault = Fault::new(Effect::internal_error()).on(Service::Network).method(Method::POST);
    let fault = faults.add(fault.path("/v2.0/floatingips"));
    services::create(&rig.client, &service("open", 1)).await?;
    poll::until("two failures", 2 * SOON, || async { Ok((faults.hits(fault) > 1).then_some(())) })
        .await
        .with_context(|| program.log())?;
    let said = says(rig, "open", "CloudUnavailable", SOON).await?;
    ensure!(said.to_lowercase().contains("floating"), "it says what fails: {said}");
    let now = services::get(&rig.client, "open").await?;
    ensure!(services::addresses(&now).is_empty(), "no address is shown that it does not keep");
    faults.remove(fault);
    let address = services::address(&rig.client, "open", 3 * SOON).await?;
    ensure!(address.starts_with("127.33."), "{address} is not a floating IP");
    let calls = Calls::since(rig, mark);
    ensure!(calls.of_pattern(&format!("load-balancer POST {BALANCERS}")) == 1, "{calls:?}");
    let floating = rig.cloud.user.floating_ips().await?;
    ensure!(floating.len() == 1, "one floating IP: {floating:?}");
    delete_all(rig, &["open".to_owned()], 2 * SOON).await
}

pub(super) async fn one_that_is_deleted_by_others_comes_back(rig: &Rig) -> Result<()> {
    let program = start(rig).await?;
    let first = serve(rig, "gone").await?;
    let kept = serve(rig, "kept").await?;
    let user = &rig.cloud.user;
    user.delete_balancer_part(&format!("loadbalancers/{first}?cascade=true")).await?;
    let second = poll::until("another load balancer", 3 * SOON, || async {
        sleep(Duration::from_millis(500)).await;
        let all = of_service(rig, "gone").await?;
        let good = |one: &serde_json::Value| {
            one["provisioning_status"] == "ACTIVE" && one["id"] != first.as_str()
        };
        Ok(all.into_iter().find(good))
    })
    .await
    .with_context(|| program.log())?;
    have_member(rig, &[id(&second)?], "member-001", SOON).await?;
    provisioned(rig, "gone", SOON).await?;
    let (address, floating) =
        (services::address(&rig.client, "gone", SOON).await?, user.floating_ip_details().await?);
    let attached = floating.iter().find(|one| one["port_id"] == second["vip_port_id"]);
    let attached = attached.with_context(|| format!("no floating IP: {floating:?}"))?;
    ensure!(attached["floating_ip_address"] == address.as_str(), "{address} is not {attached}");
    ensure!(floating.len() == 2, "no floating IP is left over: {floating:?}");
    ensure!(id_of(rig, "kept").await? == kept, "the other one stays");
    delete_all(rig, &["gone", "kept"].map(str::to_owned), 2 * SOON).await
}
