//! Measures a restart with a thousand Services.

use std::time::Duration;

use anyhow::Result;
use ccm_cloud::LoadBalancerTraits;
use tokio::time::sleep;

use super::{
    Arena, add_nodes, cloud, compared, create_services, finish, names, requested, requests, start,
    with_addresses, writes,
};

const COUNT: usize = 1000;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!("\n-- service-ccm, default settings: a restart with {COUNT} Services");
    restart(arena, "a provider that lists and stores digests", |_| {}).await?;
    restart(arena, "a provider that does neither", |traits| {
        (traits.lists, traits.stores_digest) = (false, false);
    })
    .await
}

async fn restart(arena: &Arena, what: &str, change: fn(&mut LoadBalancerTraits)) -> Result<()> {
    cloud(arena, |settings| change(&mut settings.traits));
    add_nodes(arena, &names(10)).await?;
    let program = start(arena).await?;
    create_services(arena, "web", COUNT).await?;
    with_addresses(arena, COUNT, Duration::from_mins(5)).await?;
    program.terminate().await?;
    arena.served.cloud().balancers().reset_writes();
    arena.served.cloud().reset_calls();
    let mark = arena.mark().await?;
    let program = start(arena).await?;
    let new = requested(arena, "new").await?;
    compared(&program).await?;
    sleep(Duration::from_secs(20)).await;
    let new_writes = 2;
    let calls = arena.served.cloud().calls().load_balancers;
    let cloud_writes = arena.served.cloud().balancers().writes().len();
    let writes = writes(&requests(arena, mark).await?).saturating_sub(new_writes);
    println!(
        "{what}: cloud writes {} besides the new Service's (wanted: 0), API writes {writes} besides its {new_writes} and the Lease (wanted: 0), list pages {} (wanted: at most {}), other calls {} (1 for the new Service)",
        cloud_writes.saturating_sub(1),
        calls.list,
        COUNT / 500 + 2,
        calls.total() - calls.list,
    );
    println!(
        "  a Service created at that moment is requested after {:.2} s (wanted: below 1 s)",
        new.as_secs_f64()
    );
    finish(arena, program).await
}
