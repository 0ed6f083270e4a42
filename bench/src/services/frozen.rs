//! Measures a leader that is frozen in the middle of a creation.

use std::time::Duration;

use anyhow::Result;
use ccm_sim::{
    cloud::{Operation, balancers::SimBalancer},
    faults::{Fault, FaultEffect, Trouble},
    poll,
    program::Signal,
};
use ccm_tests::services;
use tokio::time::{Instant, sleep};

use super::{Arena, add_nodes, cloud, names, remove_all};

/// How late the cloud carries out the frozen leader's write.
const LATE: Duration = Duration::from_secs(25);

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!(
        "\n-- service-ccm: the leader is frozen in the middle of a creation, a standby takes over"
    );
    for fences in [true, false] {
        frozen(arena, fences).await?;
    }
    Ok(())
}

fn of_web(arena: &Arena) -> Vec<SimBalancer> {
    arena.served.cloud().balancers().all()
}

async fn frozen(arena: &Arena, fences: bool) -> Result<()> {
    cloud(arena, |settings| settings.fences = fences);
    add_nodes(arena, &names(5)).await?;
    let launch = arena
        .controller("service-ccm")
        .arg("--load-balancer-audit-period=10s")
        .arg("--cloud-call-timeout=5s");
    let mut leader = arena.node_ccm(&launch).await?;
    let standby = arena.standby(&launch).await?;
    let fault = FaultEffect::LoadBalancers(vec!["default/web".to_owned()], Trouble::Late(LATE));
    arena
        .served
        .cloud()
        .faults()
        .add(Fault::new(fault).on(Operation::EnsureLoadBalancers).times(1));
    let begun = Instant::now();
    services::create(&arena.client, &services::service("web")).await?;
    sleep(Duration::from_secs(1)).await;
    leader.signal(Signal::STOP)?;
    let address = services::address(&arena.client, "web", Duration::from_mins(2)).await?;
    let taken_over = begun.elapsed();
    let mut most = 0;
    while begun.elapsed() < LATE + Duration::from_secs(15) {
        most = most.max(of_web(arena).len());
        sleep(Duration::from_millis(100)).await;
    }
    leader.signal(Signal::CONT)?;
    let ended = leader.wait(Duration::from_secs(30)).await?;
    poll::until("one load balancer", Duration::from_mins(2), || async {
        Ok((of_web(arena).len() == 1).then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(12)).await;
    let left = of_web(arena);
    let owners: Vec<usize> = left.iter().map(|one| one.owners.len()).collect();
    let now = services::addresses(&services::get(&arena.client, "web").await?);
    println!(
        "cloud {} fencing: address after {:.1} s, the old leader's write arrives after {} s; at most {most} load balancers at a time, in the end {} with {owners:?} owners; its address {} (the old leader: {ended})",
        if fences { "with" } else { "without" },
        taken_over.as_secs_f64(),
        LATE.as_secs(),
        left.len(),
        if now == [address] { "never changed" } else { "CHANGED" },
    );
    standby.terminate().await?;
    remove_all(arena).await
}
