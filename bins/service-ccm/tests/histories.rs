//! Random histories of Services, nodes and a cloud with faults, with the whole controller in one
//! process and paused time. After each history everything converges; at no time is a foreign load
//! balancer touched, or a load balancer emptied by nodes that are gone.
//!
//! `cases` has single cases in the same world.
//!
//! A history that fails is replayed with `QUARTET_HISTORY=<seed>`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "histories/cases.rs"]
mod cases;
#[path = "histories/events.rs"]
mod events;
#[path = "histories/rules.rs"]
mod rules;
#[path = "histories/world.rs"]
mod world;

use std::time::Duration;

use tokio::time::sleep;

use crate::{rules::Rules, world::World};

/// The histories of one run, unless `QUARTET_HISTORIES` says how many.
const HISTORIES: u64 = 24;
/// The events of one history.
const EVENTS: usize = 60;

/// Plays one history. Returns the broken rules.
async fn play(seed: u64, arguments: &[&str]) -> Vec<String> {
    let mut world = World::start(seed, arguments).await;
    let mut rules = Rules::new(&world);
    for _ in 0..EVENTS {
        events::next(&mut world, &mut rules).await;
        for _ in 0..world.seconds() {
            sleep(Duration::from_secs(1)).await;
            rules.look(&world);
        }
    }
    world.end_faults().await;
    rules.converge(&world).await;
    rules.broken()
}

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("QUARTET_HISTORY") {
        Some(seed) => vec![seed],
        None => (0..number("QUARTET_HISTORIES").unwrap_or(HISTORIES)).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn no_history_breaks_a_rule() {
    for seed in seeds() {
        let broken = play(seed, &[]).await;
        assert!(broken.is_empty(), "history {seed}: {broken:#?}");
    }
}

/// The same test finds a brake that is taken out.
#[tokio::test(start_paused = true)]
async fn a_missing_brake_is_found() {
    for seed in 0..HISTORIES {
        if !play(seed, &["--load-balancer-member-loss=100%"]).await.is_empty() {
            return;
        }
    }
    panic!("{HISTORIES} histories without a brake, and no rule is broken");
}
