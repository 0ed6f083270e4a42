//! The deletion court over a million random histories, on all processors.

use std::{
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::{Result, bail};
use ccm_tests::histories::{Tally, Variant, play};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How many histories a thread takes at a time.
const CHUNK: u64 = 1000;
/// How many failures are printed whole.
const SHOWN: usize = 3;

/// Plays the histories of this seed alone, and prints what was wrong with them.
pub fn replay(seed: u64) -> Result<()> {
    for variant in Variant::ALL {
        match play(seed, variant, None) {
            Ok(tally) => println!("{variant:?}, seed {seed}: {tally:?}"),
            Err(what) => bail!("{variant:?}: {what}"),
        }
    }
    Ok(())
}

/// Plays this number of histories of each variant, with the seeds from 0.
pub fn run(count: u64) -> Result<()> {
    Variant::ALL.into_iter().try_for_each(|variant| run_variant(variant, count))
}

fn run_variant(variant: Variant, count: u64) -> Result<()> {
    let about = match variant {
        Variant::Listed => "lookups and lists do not lie together about few nodes",
        Variant::Living => {
            "lookups and lists deny any share of the machines; kubelets renew their Leases"
        }
        Variant::Listless => "a cloud without a list",
    };
    println!("\n-- {count} random histories before the deletion court: {about}");
    let (start, next) = (Instant::now(), AtomicU64::new(0));
    let (total, failures) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= count {
                return;
            }
            let mut chunk = Tally::default();
            for seed in from..count.min(from + CHUNK) {
                match play(seed, variant, None) {
                    Ok(tally) => chunk.add(&tally),
                    Err(what) => failures.lock().push((seed, what)),
                }
            }
            total.lock().add(&chunk);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let Tally { steps, deletions, breaker, budget, leaders, marked, replaced, alive } =
        total.into_inner();
    println!(
        "{steps} passes, {deletions} rightful deletions ({marked} of marked nodes, {replaced} of Ready nodes on replaced machines), {leaders} leader changes; held back by the breaker {breaker} times, by the budget {budget} times, by a kubelet's Lease {alive} times; {:.0} s",
        start.elapsed().as_secs_f64()
    );
    let mut failures = failures.into_inner();
    failures.sort_unstable();
    println!(
        "wrongful deletions, lost cases and other broken rules: {} (wanted: 0)",
        failures.len()
    );
    for (seed, what) in failures.iter().take(SHOWN) {
        println!("replay with --seed {seed}: {variant:?}: {what}");
    }
    if !failures.is_empty() {
        bail!("{} of {count} histories ended wrongly", failures.len());
    }
    Ok(())
}
