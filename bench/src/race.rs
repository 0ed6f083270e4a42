//! Lets two candidates race for a Lease on the real API server, and checks that they never lead at
//! the same time.
//!
//! The candidates are the product's electors over the product's client stack. Before each write
//! they ask whether their term covers it; a referee with a clock that they share sees whether the
//! writes of the two can ever overlap. The faults are drawn from a seed, which replays them, but
//! not the scheduling of the machine.
//!
//! Wall clocks are always wrong where the candidates write and read the Lease's times: by up to an
//! hour, and each by a different amount. A frozen candidate is frozen between two steps of its
//! program, not inside of a step; `scenarios` stops real processes.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use ccm_runtime::settings::ElectionSettings;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::arena::Arena;

mod candidate;
mod contest;
mod fault;
mod line;
mod referee;

use candidate::Manners;
use contest::Contest;
use fault::Fault;
use referee::Referee;

/// The number of races at the same time, each for its own Lease.
const LEASES: usize = 20;
/// The same for the check of the referee.
const BROKEN_LEASES: usize = 6;
/// Within this number of rounds a broken candidate must be caught.
const BROKEN_ROUNDS: usize = 8;

/// Returns the shortest terms, in the default's proportions: the lease counts in whole seconds.
fn terms(lease: String) -> ElectionSettings {
    ElectionSettings {
        enabled: true,
        lease,
        namespace: "kube-system".to_owned(),
        lease_duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(667),
        retry_period: Duration::from_millis(133),
        allows_others: false,
    }
}

/// Runs the races. Fails if two candidates lead at once, or if no candidate leads for a long time.
pub async fn run(arena: &Arena, rounds: usize, seed: Option<u64>) -> Result<()> {
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("\n-- race: two candidates per lease, terms of 1 s, 0.667 s, 0.133 s, --seed {seed}");
    let kubeconfig = arena.cluster.kubeconfig();
    for manners in [Manners::Overstays, Manners::Unguarded] {
        let caught = catches(kubeconfig, manners, seed).await?;
        println!("referee catches a broken candidate ({}): yes, {caught}", describe(manners));
    }
    let start = Instant::now();
    let (probe, slowest) = Probe::start(arena).await?;
    let mut races = start_races(kubeconfig, LEASES, rounds, Manners::Good, seed).await?;
    let mut referees = Vec::new();
    while let Some(race) = races.join_next().await {
        match race? {
            Ok(referee) => referees.push(referee),
            Err(error) => bail!("{error:#}; replay with --seed {seed}"),
        }
    }
    drop(probe);
    report(&referees, start.elapsed());
    let slowest = slowest.lock().as_secs_f64();
    println!(
        "slowest write of a bystander in that time: {slowest:.2} s (gaps may be longer by as much)"
    );
    let stories: Vec<_> = referees.iter().filter_map(|referee| referee.story()).collect();
    ensure!(
        stories.is_empty(),
        "two leaders at once; replay with --seed {seed}\n{}",
        stories.join("\n")
    );
    Ok(())
}

/// A bystander that writes its own Lease. It shows which part of the gaps the API server causes.
struct Probe {
    _tasks: JoinSet<()>,
}

impl Probe {
    /// Starts it. The time is the duration of the slowest write so far.
    async fn start(arena: &Arena) -> Result<(Self, Arc<Mutex<Duration>>)> {
        let api = Api::<Lease>::namespaced(arena.client.clone(), "kube-system");
        let mut lease = Lease::default();
        lease.metadata.name = Some("race-bystander".to_owned());
        api.create(&PostParams::default(), &lease).await?;
        let slowest = Arc::<Mutex<Duration>>::default();
        let (mut tasks, noted) = (JoinSet::new(), slowest.clone());
        tasks.spawn(async move {
            for turn in 1_u32.. {
                let patch = Patch::Merge(json!({"spec": {"leaseTransitions": turn}}));
                let start = Instant::now();
                // A failed write counts as well.
                api.patch("race-bystander", &PatchParams::default(), &patch).await.ok();
                note(&noted, start.elapsed());
                sleep(Duration::from_millis(50)).await;
            }
        });
        Ok((Self { _tasks: tasks }, slowest))
    }
}

fn note(longest: &Mutex<Duration>, time: Duration) {
    let mut longest = longest.lock();
    *longest = longest.max(time);
}

/// Starts races that have `rounds` together.
async fn start_races(
    kubeconfig: &Path,
    leases: usize,
    rounds: usize,
    manners: Manners,
    seed: u64,
) -> Result<JoinSet<Result<Arc<Referee>>>> {
    let mut races = JoinSet::new();
    for (number, race_seed) in (0..leases).zip(seed..) {
        let terms = terms(format!("race-{manners:?}-{number}").to_lowercase());
        let contest = Contest::start(kubeconfig, &terms, manners, race_seed).await?;
        let share = rounds / leases + usize::from(number < rounds % leases);
        races.spawn(contest.run(share));
    }
    Ok(races)
}

/// Checks that broken candidates are caught, and returns on how many Leases.
async fn catches(kubeconfig: &Path, manners: Manners, seed: u64) -> Result<String> {
    let rounds = BROKEN_LEASES * BROKEN_ROUNDS;
    let mut races = start_races(kubeconfig, BROKEN_LEASES, rounds, manners, seed).await?;
    let mut caught = 0;
    while let Some(race) = races.join_next().await {
        // A candidate without the guard may also leave a Lease that no candidate takes.
        caught += race?.map_or(0, |referee| usize::from(referee.overlaps() > 0));
    }
    ensure!(caught > 0, "the referee does not catch a candidate that {}", describe(manners));
    Ok(format!("on {caught} of {BROKEN_LEASES} leases"))
}

fn describe(manners: Manners) -> &'static str {
    match manners {
        Manners::Good => "keeps to its term",
        Manners::Overstays => "writes on after its term",
        Manners::Unguarded => "believes the Lease's times and patches without a version",
    }
}

fn report(referees: &[Arc<Referee>], took: Duration) {
    let faults: Vec<_> = referees.iter().flat_map(|referee| referee.faults()).collect();
    let gaps: Vec<_> = referees.iter().flat_map(|referee| referee.gaps()).collect();
    let line = |name: &str, fault: Option<Fault>| {
        let concerns = |other: Option<Fault>| fault.is_none() || other == fault;
        let rounds = faults.iter().filter(|other| concerns(Some(**other))).count();
        let concerned = || gaps.iter().filter(|gap| concerns(gap.fault));
        let takeovers = concerned().filter(|gap| gap.takeover).count();
        let longest = concerned().map(|gap| gap.length).max().unwrap_or_default();
        println!("{name:30} {rounds:6} {takeovers:10} {:10.2} s", longest.as_secs_f64());
    };
    println!("{:30} {:>6} {:>10} {:>12}", "fault", "rounds", "takeovers", "longest gap");
    for fault in Fault::ALL {
        line(fault.name(), Some(fault));
    }
    line("all", None);
    let writes: usize = referees.iter().map(|referee| referee.writes()).sum();
    let overlaps: usize = referees.iter().map(|referee| referee.overlaps()).sum();
    println!("{} leases, {:.0} s, {writes} writes judged", referees.len(), took.as_secs_f64());
    println!("writes while another candidate's could be under way: {overlaps} (wanted: 0)");
}
