//! The whole controller in one process and paused time: cases that need more than the machine,
//! because they are about queues, lanes, requests or texts for users.
//!
//! The random histories cover the machine alone: `src/machine/tests/histories.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "histories/adoption.rs"]
mod adoption;
#[path = "histories/another_cloud.rs"]
mod another_cloud;
#[path = "histories/cases.rs"]
mod cases;
#[path = "histories/conditions.rs"]
mod conditions;
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
#[path = "histories/meant.rs"]
mod meant;
#[path = "histories/mistakes.rs"]
mod mistakes;
#[path = "histories/orphans.rs"]
mod orphans;
#[path = "histories/patches.rs"]
mod patches;
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
#[path = "histories/without.rs"]
mod without;
#[path = "histories/world.rs"]
mod world;
