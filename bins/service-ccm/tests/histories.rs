//! The whole controller in one process and paused time: single cases, and a few random histories of Services,
//! nodes and a cloud with faults. No event breaks a rule ([`rules::Rule`]), and after each history everything
//! converges.
//!
//! The random histories of the machine alone, `src/machine/tests/histories.rs`, are many more, and have the variants
//! without a protection that show that its rules find something.
//!
//! A history that fails is replayed with `QUARTET_HISTORY=<seed>`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "histories/adoption.rs"]
mod adoption;
#[path = "histories/another_cloud.rs"]
mod another_cloud;
#[path = "histories/cases.rs"]
mod cases;
#[path = "histories/claims.rs"]
mod claims;
#[path = "histories/clouds.rs"]
mod clouds;
#[path = "histories/cluster.rs"]
mod cluster;
#[path = "histories/conditions.rs"]
mod conditions;
#[path = "histories/events.rs"]
mod events;
#[path = "histories/explained.rs"]
mod explained;
#[path = "histories/fairness.rs"]
mod fairness;
#[path = "histories/finalizers.rs"]
mod finalizers;
#[path = "histories/fleet.rs"]
mod fleet;
#[path = "histories/going_back.rs"]
mod going_back;
#[path = "histories/kept.rs"]
mod kept;
#[path = "histories/labelled.rs"]
mod labelled;
#[path = "histories/lies.rs"]
mod lies;
#[path = "histories/losses.rs"]
mod losses;
#[path = "histories/meant.rs"]
mod meant;
#[path = "histories/mends.rs"]
mod mends;
#[path = "histories/mistakes.rs"]
mod mistakes;
#[path = "histories/neighbours.rs"]
mod neighbours;
#[path = "histories/nodes.rs"]
mod nodes;
#[path = "histories/orphans.rs"]
mod orphans;
#[path = "histories/patches.rs"]
mod patches;
#[path = "histories/quiet.rs"]
mod quiet;
#[path = "histories/recovery.rs"]
mod recovery;
#[path = "histories/refused.rs"]
mod refused;
#[path = "histories/releases.rs"]
mod releases;
#[path = "histories/repeated.rs"]
mod repeated;
#[path = "histories/restored.rs"]
mod restored;
#[path = "histories/room.rs"]
mod room;
#[path = "histories/rules.rs"]
mod rules;
#[path = "histories/services.rs"]
mod services;
#[path = "histories/sharing.rs"]
mod sharing;
#[path = "histories/taken_back.rs"]
mod taken_back;
#[path = "histories/takeover.rs"]
mod takeover;
#[path = "histories/troubles.rs"]
mod troubles;
#[path = "histories/unfinished.rs"]
mod unfinished;
#[path = "histories/wanted.rs"]
mod wanted;
#[path = "histories/watched.rs"]
mod watched;
#[path = "histories/whose.rs"]
mod whose;
#[path = "histories/without.rs"]
mod without;
#[path = "histories/world.rs"]
mod world;

use std::time::Duration;

use ccm_tests::variants::{is_found, none_breaks_a_rule, played};
use tokio::time::sleep;

use crate::{
    rules::{Rule, Rules},
    world::{Variant, World},
};

/// The histories of one run, unless `QUARTET_HISTORIES` says how many.
const HISTORIES: u64 = 4;
/// The events of one history.
const EVENTS: usize = 90;

/// Plays one history. Returns the broken rules, and how.
async fn play(seed: u64, variant: Variant) -> Vec<(Rule, String)> {
    let mut world = World::random(seed, variant).await;
    let mut rules = Rules::new(&world);
    for _ in 0..EVENTS {
        events::next(&mut world, &mut rules).await;
        for _ in 0..world.seconds() {
            sleep(Duration::from_secs(1)).await;
            world.neighbours_work();
            rules.look(&world);
        }
    }
    played(EVENTS);
    world.end_faults().await;
    quiet::converge(&mut world, &mut rules).await;
    if !world.broken.is_broken() {
        quiet::settle(&world, &mut rules, quiet::FULL).await;
        quiet::nothing_happens(&world, &mut rules, 60).await;
        quiet::a_node_comes_and_one_goes(&mut world, &mut rules).await;
        quiet::nothing_happens(&world, &mut rules, 20).await;
    }
    world.broken.take()
}

#[tokio::test(start_paused = true)]
async fn no_history_breaks_a_rule() {
    none_breaks_a_rule(HISTORIES, play).await;
}

/// A rule that no variant breaks finds nothing: this one needs the whole program.
#[tokio::test(start_paused = true)]
async fn the_class_of_another_controller_is_noticed() {
    let theirs = Variant::with(&["--load-balancer-classes=example.com/theirs"]);
    is_found(60, theirs, Rule::Neighbours, play).await;
}
