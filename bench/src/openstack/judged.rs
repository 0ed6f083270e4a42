//! The cloud errs while twenty nodes are not Ready; then one server is really deleted.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::{poll, program::Program};
use ccm_tests::{
    nodes,
    openstack::{
        Service,
        admin::{Account, NewServer, Server},
        proxy::{Effect, Fault},
        rig::Rig,
        services::Frozen,
    },
};
use tokio::time::{Instant, sleep};

use super::{initialised, register, seconds};

/// The nodes are new. The grace period of new nodes is not part of the measurement.
const YOUNG: &str = "--node-grace-period=1s";
/// How many nodes are not Ready.
const NODES: usize = 20;
/// The default of `--node-deletion-confirmation-period`.
const CONFIRMATION: Duration = Duration::from_secs(20);
/// Within this time a working program has seen the cloud answer.
const RECOVERY: Duration = Duration::from_mins(2);

/// The fault of the cloud.
#[derive(Clone, Copy, Debug)]
enum Outage {
    NovaFrozen,
    KeystoneRefusing,
    EmptyList,
    WrongProject,
}

impl Outage {
    const ALL: [Self; 4] =
        [Self::NovaFrozen, Self::KeystoneRefusing, Self::EmptyList, Self::WrongProject];

    const fn lasts(self) -> Duration {
        match self {
            Self::NovaFrozen => Duration::from_mins(2),
            _ => Duration::from_mins(1),
        }
    }

    /// Begins the outage. The returned value ends the freezing when it is dropped.
    async fn begin(self, rig: &Rig) -> Result<Option<Frozen>> {
        let proxy = &rig.cloud.proxy;
        match self {
            Self::NovaFrozen => return rig.cloud.services.freeze("nova-api").map(Some),
            Self::KeystoneRefusing => {
                proxy.faults().add(Fault::new(Effect::unauthorized()).on(Service::Identity));
                let token = proxy.log().last_token().context("the program has logged in")?;
                rig.cloud.operator.revoke_token(&token).await?;
            }
            Self::EmptyList => {
                proxy.faults().add(Fault::new(Effect::EmptyList).on(Service::Compute));
            }
            Self::WrongProject => rig.log_in_as(&Account::of("other"))?,
        }
        Ok(None)
    }

    async fn end(self, rig: &Rig, frozen: Option<Frozen>) -> Result<()> {
        drop(frozen);
        rig.log_in_as(&Account::of("k8s"))?;
        rig.cloud.proxy.restore().await
    }
}

/// Prints the effect of outages on nodes that are not Ready.
pub async fn measure(rig: &Rig) -> Result<()> {
    let new: Vec<_> =
        (0..NODES).map(|number| NewServer::named(&format!("judged-{number}"))).collect();
    let servers = rig.cloud.user.create_servers(&new).await?;
    register(rig, initialised(&servers)).await?;
    let program = rig.start(&rig.launch("lifecycle-ccm").arg(YOUNG)).await?;
    for outage in Outage::ALL {
        suffer(rig, &program, &servers, outage).await?;
    }
    println!("resident memory in the end: {:.1} MB", program.resident_bytes()? as f64 / 1e6);
    at_start(rig, program, &servers).await?;
    rig.cloud.user.delete_servers(servers.iter().map(|server| server.id.as_str())).await
}

async fn suffer(rig: &Rig, program: &Program, servers: &[Server], outage: Outage) -> Result<()> {
    let frozen = outage.begin(rig).await?;
    all_ready(rig, servers, "Unknown").await?;
    sleep(outage.lasts()).await;
    let left = nodes::names(&rig.client).await?.len();
    println!(
        "{outage:?} for {} s with {NODES} nodes not Ready: {} deletions (wanted: 0)",
        outage.lasts().as_secs(),
        servers.len() - left
    );
    tell(program).await?;
    outage.end(rig, frozen).await?;
    recovered(program).await
}

/// A program that starts in the wrong project has never seen the nodes' servers.
async fn at_start(rig: &Rig, program: Program, servers: &[Server]) -> Result<()> {
    program.terminate().await?;
    rig.log_in_as(&Account::of("other"))?;
    let program = rig.start(&rig.launch("lifecycle-ccm").arg(YOUNG)).await?;
    sleep(Duration::from_mins(1)).await;
    let left = nodes::names(&rig.client).await?.len();
    println!(
        "started in the wrong project, 60 s with {NODES} nodes not Ready: {} deletions (wanted: 0)",
        servers.len() - left
    );
    tell(&program).await?;
    rig.log_in_as(&Account::of("k8s"))?;
    recovered(&program).await?;
    all_ready(rig, servers, "True").await?;
    program.terminate().await?;
    Ok(())
}

async fn all_ready(rig: &Rig, servers: &[Server], status: &str) -> Result<()> {
    for server in servers {
        nodes::set_ready(&rig.client, &server.name, status).await?;
    }
    Ok(())
}

/// Prints what readiness and metrics show.
async fn tell(program: &Program) -> Result<()> {
    let (status, page) = program.get("/readyz?verbose").await?;
    println!("  /readyz {status}");
    for line in page.lines().filter(|line| line.contains("cloud") || line.contains("breaker")) {
        println!("  {line}");
    }
    let wanted = ["errors_total", "breaker_open", "refused", "ccm_lifecycle_nodes"];
    for (name, value) in program.metrics().await? {
        if value > 0.0 && wanted.iter().any(|part| name.contains(part)) {
            println!("  {name} {value}");
        }
    }
    Ok(())
}

/// Waits until the program is ready, believes the cloud and judges again.
async fn recovered(program: &Program) -> Result<()> {
    let start = Instant::now();
    poll::until("the program to have recovered", RECOVERY, || async {
        let (status, page) = program.get("/readyz?verbose").await?;
        // Warnings are marked by an exclamation mark.
        Ok((status == 200 && !page.contains("[!]")).then_some(()))
    })
    .await?;
    println!("  recovered on its own after {}", seconds(start.elapsed()));
    Ok(())
}

/// Prints how long the node of a deleted server stays.
pub async fn deletion(rig: &Rig) -> Result<()> {
    let servers = rig.cloud.user.create_servers(&[NewServer::named("deleted")]).await?;
    let server = servers.first().context("a server")?;
    register(rig, initialised(rig.cloud.fleet.iter().chain(&servers))).await?;
    let program = rig.start(&rig.launch("lifecycle-ccm").arg(YOUNG)).await?;
    sleep(Duration::from_secs(3)).await; // This is past the grace period.
    rig.cloud.user.delete_server(&server.id).await?;
    let start = Instant::now();
    let all = rig.cloud.user.servers().await?.len();
    let nova = start.elapsed();
    let start = Instant::now();
    nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    nodes::gone(&rig.client, &server.name, 3 * CONFIRMATION).await?;
    println!(
        "server deleted in Nova, node not Ready: node gone after {} (wanted: within {} s, given that Nova answers: its list of {all} servers took {})",
        seconds(start.elapsed()),
        CONFIRMATION.as_secs() + 2,
        seconds(nova)
    );
    program.terminate().await?;
    Ok(())
}
