//! Plays a million random histories with the machine of lifecycle-ccm, on all processors.

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
/// How many failures are printed.
const SHOWN: usize = 3;
/// How many lines of each failure are printed: the last passes, and a line for each node.
const LINES: usize = 40;

/// Plays only the histories of this seed, and prints their mistakes.
pub fn replay(seed: u64) -> Result<()> {
    let mut failed = 0;
    for variant in Variant::ALL {
        match play(seed, variant, None) {
            Ok(tally) => println!("{variant:?}, seed {seed}: {tally:?}"),
            Err(what) => {
                println!("{variant:?}: {what}");
                failed += 1;
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} histories ended wrongly", Variant::ALL.len());
    }
    Ok(())
}

/// Plays this number of histories of each variant, with the seeds from `first`.
pub fn run(first: u64, count: u64) -> Result<()> {
    let failed: usize =
        Variant::ALL.into_iter().map(|variant| run_variant(variant, first, count)).sum();
    if failed > 0 {
        bail!("{failed} histories ended wrongly");
    }
    Ok(())
}

/// Returns the number of failures.
fn run_variant(variant: Variant, first: u64, count: u64) -> usize {
    let about = match variant {
        Variant::Listed => "lookups and lists do not lie together about few nodes",
        Variant::Living => {
            "lookups and lists deny any share of the machines; kubelets renew their Leases"
        }
        Variant::Listless => "a cloud without a list",
    };
    println!("\n-- {count} random histories of lifecycle-ccm: {about}");
    let (start, next, end) = (Instant::now(), AtomicU64::new(first), first + count);
    let (total, failures) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= end {
                return;
            }
            let mut chunk = Tally::default();
            for seed in from..end.min(from + CHUNK) {
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
    let Tally { events, passes, deletions, held, kept, leaders, undone, marks } =
        total.into_inner();
    println!(
        "{events} events, {passes} passes, {deletions} rightful deletions, {leaders} leader changes, {undone} deletions without effect or without an answer, {marks} marks; held back by the breaker or the budget {held} times, by a kubelet's Lease {kept} times; {:.0} s",
        start.elapsed().as_secs_f64()
    );
    let mut failures = failures.into_inner();
    failures.sort_unstable();
    println!(
        "wrongful deletions, lost cases and other broken rules: {} (wanted: 0)",
        failures.len()
    );
    for (seed, what) in failures.iter().take(SHOWN) {
        println!("replay with --seed {seed}: {variant:?}: {}", shortened(what));
    }
    failures.len()
}

/// Returns the headline and the end of a report.
fn shortened(report: &str) -> String {
    let lines: Vec<&str> = report.lines().collect();
    match lines.as_slice() {
        [headline, rest @ ..] if rest.len() > LINES => {
            let end = rest.get(rest.len() - LINES..).unwrap_or_default().join("\n");
            format!("{headline}\n... {} lines ...\n{end}", rest.len() - LINES)
        }
        _ => report.to_owned(),
    }
}
