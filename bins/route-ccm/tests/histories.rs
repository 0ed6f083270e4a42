//! Random histories of nodes, of a cloud with faults, and of the routes of others, with the whole
//! controller in one process and paused time. At no time is a rule broken ([`rules::Rule`]), and
//! after each history everything converges.
//!
//! A variant of the program without one of its protections breaks the rule that stands for it: a
//! rule that no variant breaks finds nothing.
//!
//! A history that fails is replayed with `QUARTET_HISTORY=<seed>`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "histories/calls.rs"]
mod calls;
#[path = "histories/events.rs"]
mod events;
#[path = "histories/lasting.rs"]
mod lasting;
#[path = "histories/rival.rs"]
mod rival;
#[path = "histories/rules.rs"]
mod rules;
#[path = "histories/settled.rs"]
mod settled;
#[path = "histories/truth.rs"]
mod truth;
#[path = "histories/variants.rs"]
mod variants;
#[path = "histories/watched.rs"]
mod watched;
#[path = "histories/without.rs"]
mod without;
#[path = "histories/world.rs"]
mod world;

use ccm_tests::variants::none_breaks_a_rule;

use crate::{
    rules::{Rule, Rules},
    world::{Variant, World},
};

/// The histories of one run, unless `QUARTET_HISTORIES` says how many.
const HISTORIES: u64 = 5;
/// The events of one history.
const EVENTS: usize = 50;

/// Plays one history. Returns the broken rules, and how.
async fn play(seed: u64, variant: Variant) -> Vec<(Rule, String)> {
    let mut world = World::start(seed, variant).await;
    let mut rules = Rules::new(&world);
    for _ in 0..EVENTS {
        events::next(&mut world, &mut rules).await;
        let seconds = world.seconds();
        rules.watch(&world, seconds).await;
    }
    world.end_faults();
    // Late writes.
    rules.watch(&world, 100).await;
    settled::converge(&mut rules, &mut world).await;
    world.broken.take()
}

#[tokio::test(start_paused = true)]
async fn no_history_breaks_a_rule() {
    none_breaks_a_rule(HISTORIES, play).await;
}
