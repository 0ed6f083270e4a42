//! Measures five hundred Services at once, with a cloud that needs 30 s for each.

use std::time::Duration;

use anyhow::Result;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, balancers::Times},
    faults::{Fault, FaultEffect, Trouble},
};
use ccm_tests::services;
use tokio::time::{Instant, sleep};

use super::{
    Arena, add_nodes, cloud, create_services, finish, names, one_at_a_time, requested, requests,
    start, with_addresses, writes,
};

const COUNT: usize = 500;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!(
        "\n-- service-ccm, default settings: {COUNT} Services at once, the cloud needs 30 s for each"
    );
    at_once(arena, "in batches", 45, |_| {}, &[]).await?;
    at_once(arena, "one at a time", 85, one_at_a_time, &[]).await?;
    at_once(arena, "in batches, one fails and one hangs", 45, |_| {}, &["web-7", "web-8"]).await?;
    failing_for_long(arena).await
}

async fn at_once(
    arena: &Arena,
    what: &str,
    wanted: u64,
    change: fn(&mut ccm_cloud::LoadBalancerTraits),
    faulty: &[&str],
) -> Result<()> {
    cloud(arena, |settings| {
        settings.times = Times { create: Duration::from_secs(30), ..Times::default() };
        change(&mut settings.traits);
    });
    let trouble = |name: &str, trouble| {
        let owners = vec![format!("default/{name}")];
        Fault::new(FaultEffect::LoadBalancers(owners, trouble)).on(Operation::EnsureLoadBalancers)
    };
    if let [fails, hangs] = faulty {
        let error = CloudError::new(ErrorKind::Unavailable, "the cloud fails");
        arena.served.cloud().faults().add(trouble(fails, Trouble::Fail(error)));
        arena.served.cloud().faults().add(trouble(hangs, Trouble::Hang));
    }
    add_nodes(arena, &names(10)).await?;
    let program = start(arena).await?;
    arena.served.cloud().reset_calls();
    let (mark, begun) = (arena.mark().await?, Instant::now());
    create_services(arena, "web", COUNT).await?;
    let created = begun.elapsed();
    sleep(Duration::from_secs(20).saturating_sub(begun.elapsed())).await;
    let one_more = requested(arena, "one-more").await?;
    with_addresses(arena, COUNT - faulty.len(), Duration::from_mins(4)).await?;
    let took = begun.elapsed();
    let calls = arena.served.cloud().calls().load_balancers;
    let writes = writes(&requests(arena, mark).await?);
    println!(
        "{what}: all ready after {:.1} s (wanted: below {wanted} s; created within {:.1} s); {} calls: {calls:?}; {:.2} writes a Service",
        took.as_secs_f64(),
        created.as_secs_f64(),
        calls.total(),
        writes as f64 / COUNT as f64,
    );
    println!(
        "  one more Service, created at 20 s: requested after {:.2} s",
        one_more.as_secs_f64()
    );
    finish(arena, program).await
}

/// Counts the writes to one Service whose load balancer fails.
async fn failing_for_long(arena: &Arena) -> Result<()> {
    cloud(arena, |_| {});
    let kinds = [ErrorKind::Unavailable, ErrorKind::Throttled, ErrorKind::QuotaExceeded];
    let program = start(arena).await?;
    let (mark, minutes) = (arena.mark().await?, 5);
    services::create(&arena.client, &services::service("failing")).await?;
    for minute in 0..minutes {
        let kind = kinds.get(minute % kinds.len()).copied().unwrap_or(ErrorKind::Unavailable);
        let faults = arena.served.cloud().faults();
        faults.clear();
        let fault = Fault::new(FaultEffect::Error(CloudError::new(kind, "the cloud fails")));
        faults.add(fault.on(Operation::EnsureLoadBalancers));
        sleep(Duration::from_mins(1)).await;
    }
    let writes = writes(&requests(arena, mark).await?);
    println!(
        "a Service that fails for {minutes} minutes, each minute for another reason: {writes} writes"
    );
    finish(arena, program).await
}
