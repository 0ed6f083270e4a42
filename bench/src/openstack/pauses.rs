//! Measures a service that asks for a pause.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_tests::{
    nodes,
    openstack::{
        Service,
        admin::{Account, NewServer},
        proxy::{Effect, Fault, Request},
        rig::{Rig, SOON},
    },
};
use tokio::time::{Instant, sleep, sleep_until};

use super::seconds;

/// The value of `Retry-After`.
const PAUSE: Duration = Duration::from_secs(30);

/// Prints what reaches each service after one of them has answered 429.
pub async fn measure(rig: &Rig) -> Result<()> {
    for service in [Service::Compute, Service::Network] {
        rig.cloud.proxy.restore().await?;
        paused(rig, service).await?;
    }
    Ok(())
}

async fn paused(rig: &Rig, service: Service) -> Result<()> {
    let name = format!("pause-{service}");
    let new: Vec<_> = (0..8).map(|number| NewServer::named(&format!("{name}-{number}"))).collect();
    let servers = rig.cloud.user.create_servers(&new).await?;
    let launch = rig.launch("node-ccm").arg("--node-status-update-frequency=10s");
    let program = rig.start(&launch).await?;
    let user = rig.own_user(&name).await?;
    let log = rig.cloud.proxy.log();
    let mark = log.mark();
    let throttle = Fault::new(Effect::throttle(Some(PAUSE))).on(service).times(1);
    rig.cloud.proxy.faults().add(throttle);
    // Nodes come all the time. Each of them needs a call to Nova, then one to Neutron.
    let start = Instant::now();
    for (number, server) in (1..).zip(&servers) {
        rig.register(server).await?;
        if number == 4 {
            // Other credentials are tried with a login, so that Keystone has something to do as
            // well.
            rig.log_in_as(&user.account)?;
        }
        sleep_until(start + number * PAUSE / 7).await;
    }
    nodes::all_initialised(&rig.client, 2 * SOON).await?;
    let seen = log.since(mark);
    let refused = seen.iter().find(|one| one.service == service && one.status == Some(429));
    let refused = refused.context("the proxy has answered 429")?.at;
    let within = |one: &&Request| one.at > refused && one.at < refused + PAUSE;
    let count = |of: Service| seen.iter().filter(within).filter(|one| one.service == of).count();
    let next = seen.iter().find(|one| one.service == service && one.at > refused);
    let next = next.map_or_else(|| "never".to_owned(), |one| seconds(one.at - refused));
    println!(
        "{service} answered 429 with Retry-After: {}; in the pause {} calls to it (wanted: 0), the next one after {next}; to the others {}",
        PAUSE.as_secs(),
        count(service),
        Service::ALL
            .into_iter()
            .filter(|other| *other != service)
            .map(|other| format!("{other} {}", count(other)))
            .collect::<Vec<_>>()
            .join(", ")
    );
    program.terminate().await?;
    rig.log_in_as(&Account::of("k8s"))?;
    rig.cloud.operator.delete_user(&user.id).await?;
    for server in &servers {
        nodes::delete(&rig.client, &server.name).await?;
    }
    sleep(Duration::from_secs(1)).await;
    rig.cloud.user.delete_servers(servers.iter().map(|server| server.id.as_str())).await
}
