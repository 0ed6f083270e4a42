//! The figures of Quartet, counted and printed: `make bench`, or one of them by
//! `make bench BENCH=takeover`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

mod arena;
mod blind;
mod burst;
mod corrections;
mod histories;
mod large;
mod lifecycle;
mod openstack;
mod plain;
mod pressure;
mod race;
mod routes;
mod scale;
mod services;
mod takeover;

use arena::Arena;

/// Prints Quartet's figures. Counts do not depend on the machine; seconds do.
#[derive(Parser)]
struct Arguments {
    /// The measurement.
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// How many nodes the large measurements have.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// How many Services with large annotations there are.
    #[arg(long, default_value_t = 5000)]
    large: usize,
    /// How many rounds the race has.
    #[arg(long, default_value_t = 1000)]
    rounds: usize,
    /// How many random histories the deletion policy decides.
    #[arg(long, default_value_t = 1_000_000)]
    histories: u64,
    /// The seed of the first of them.
    #[arg(long, default_value_t = 0)]
    first_history: u64,
    /// The seed of the race's faults; by default a new one, which is printed. For histories: the
    /// seed to replay.
    #[arg(long)]
    seed: Option<u64>,
    /// The releases of OpenStack: debian (old) or pypi (current).
    #[arg(long, default_value = "debian")]
    flavour: String,
    /// The figures of OpenStack; without it all of them.
    #[arg(long, value_enum)]
    part: Option<openstack::Part>,
    /// The figures of service-ccm; without it all of them.
    #[arg(long, value_enum)]
    services: Option<services::Part>,
    /// The `--record-bytes` of the programs; without it their default.
    #[arg(long)]
    record_bytes: Option<u64>,
    /// The figures of route-ccm; without it all of them.
    #[arg(long, value_enum)]
    routes: Option<routes::Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Everything.
    All,
    /// The kinds of patch.
    Patches,
    /// Nodes registering at once.
    Burst,
    /// Nodes that wait when the controller starts.
    Backlog,
    /// Memory, refresh, restart.
    Fleet,
    /// The deletion court over random histories; needs no API server.
    Histories,
    /// lifecycle-ccm: memory, calls a pass, deletions, a restart.
    Lifecycle,
    /// A cloud that takes its time.
    SlowCloud,
    /// A change of the whole fleet while new nodes arrive.
    Corrections,
    /// Watches that do not work, and who leads then; only by name.
    Blind,
    /// Only that part of `blind` in which the watches of no replica work.
    BlindBoth,
    /// The gap between two leaders.
    Takeover,
    /// Two candidates for a Lease, and everything that can happen to them.
    Race,
    /// The Leases while another account takes all seats of their former priority level.
    Pressure,
    /// service-ccm: joining nodes, restarts, many Services at once, faults, memory.
    Services,
    /// service-ccm: memory beside Services with large annotations, on the simulated API server; only by
    /// name.
    LargeServices,
    /// route-ccm: routes from nothing, a node that joins, a quiet cluster, pod CIDRs, memory.
    Routes,
    /// Calls to the real services of OpenStack; as root on Debian 12, and only by name.
    Openstack,
}

/// Prints the figures that a debug build shows as well: times of the protocol, and the cost of
/// objects.
async fn of_any_build(arguments: &Arguments) -> Option<Result<()>> {
    match arguments.what {
        What::Blind | What::BlindBoth => Some(blind::measure(arguments.what == What::Blind).await),
        What::LargeServices => Some(large::measure(arguments.large).await),
        _ => None,
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(measured) = of_any_build(&arguments).await {
        return measured;
    }
    if cfg!(debug_assertions) {
        bail!("figures of a debug build are meaningless: use `make bench`");
    }
    let wants = |what| arguments.what == what || arguments.what == What::All;
    if wants(What::Histories) {
        match arguments.seed.filter(|_| arguments.what == What::Histories) {
            Some(seed) => histories::replay(seed)?,
            None => histories::run(arguments.first_history, arguments.histories)?,
        }
    }
    match arguments.what {
        What::Histories => return Ok(()),
        What::Pressure => return pressure::measure().await,
        What::Openstack => return openstack::measure(&arguments.flavour, arguments.part).await,
        _ => (),
    }
    let arena = Arena::start(arguments.record_bytes).await?;
    if wants(What::Patches) {
        plain::compare_patches(&arena.cluster, 500).await?;
    }
    if wants(What::Burst) {
        scale::registering(&arena, arguments.nodes).await?;
    }
    if wants(What::Backlog) {
        scale::backlog(&arena, arguments.nodes).await?;
    }
    if wants(What::SlowCloud) {
        scale::slow_cloud(&arena, 1000).await?;
    }
    if wants(What::Corrections) {
        corrections::measure(&arena, arguments.nodes).await?;
    }
    if wants(What::Fleet) {
        scale::fleet(&arena, arguments.nodes).await?;
    }
    if wants(What::Lifecycle) {
        lifecycle::measure(&arena, arguments.nodes).await?;
    }
    if wants(What::Services) {
        services::measure(&arena, arguments.services).await?;
    }
    if wants(What::Routes) {
        routes::measure(&arena, arguments.routes, arguments.nodes).await?;
    }
    if wants(What::Takeover) {
        takeover::measure(&arena).await?;
    }
    if wants(What::Race) {
        race::run(&arena, arguments.rounds, arguments.seed).await?;
    }
    arena.stop().await?;
    if wants(What::Pressure) {
        pressure::measure().await?;
    }
    Ok(())
}
