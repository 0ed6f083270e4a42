//! Random histories of Services, nodes and a cloud with faults, with the whole controller in one
//! process and paused time. At no time is a rule broken ([`rules::Rule`]), and after each history
//! everything converges.
//!
//! A variant of the program without one of its protections breaks the rule that stands for it: a
//! rule that no variant breaks finds nothing.
//!
//! The other modules have single cases in the same world.
//!
//! A history that fails is replayed with `QUARTET_HISTORY=<seed>`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "histories/adoption.rs"]
mod adoption;
#[path = "histories/cases.rs"]
mod cases;
#[path = "histories/conditions.rs"]
mod conditions;
#[path = "histories/events.rs"]
mod events;
#[path = "histories/finalizers.rs"]
mod finalizers;
#[path = "histories/going_back.rs"]
mod going_back;
#[path = "histories/lies.rs"]
mod lies;
#[path = "histories/orphans.rs"]
mod orphans;
#[path = "histories/patches.rs"]
mod patches;
#[path = "histories/repeated.rs"]
mod repeated;
#[path = "histories/rules.rs"]
mod rules;
#[path = "histories/sharing.rs"]
mod sharing;
#[path = "histories/takeover.rs"]
mod takeover;
#[path = "histories/troubles.rs"]
mod troubles;
#[path = "histories/unfinished.rs"]
mod unfinished;
#[path = "histories/variants.rs"]
mod variants;
#[path = "histories/watched.rs"]
mod watched;
#[path = "histories/without.rs"]
mod without;
#[path = "histories/world.rs"]
mod world;

use std::time::Duration;

use ccm_tests::variants::none_breaks_a_rule;
use tokio::time::sleep;

use crate::{
    rules::{Rule, Rules},
    world::{Variant, World},
};

/// The histories of one run, unless `QUARTET_HISTORIES` says how many.
const HISTORIES: u64 = 24;
/// The events of one history.
const EVENTS: usize = 60;

/// Plays one history. Returns the broken rules, and how.
async fn play(seed: u64, variant: Variant) -> Vec<(Rule, String)> {
    let mut world = World::start(seed, variant).await;
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
    world.broken.take()
}

#[tokio::test(start_paused = true)]
async fn no_history_breaks_a_rule() {
    none_breaks_a_rule(HISTORIES, play).await;
}
