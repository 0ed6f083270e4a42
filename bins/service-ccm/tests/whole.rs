//! The whole controller in one process and paused time: cases that need more than the machine,
//! because they are about queues, lanes, requests or texts for users.
//!
//! The random histories cover the machine alone: `src/machine/tests/histories.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "whole/adoption.rs"]
mod adoption;
#[path = "whole/another_cloud.rs"]
mod another_cloud;
#[path = "whole/cases.rs"]
mod cases;
#[path = "whole/conditions.rs"]
mod conditions;
#[path = "whole/explained.rs"]
mod explained;
#[path = "whole/fairness.rs"]
mod fairness;
#[path = "whole/finalizers.rs"]
mod finalizers;
#[path = "whole/fleet.rs"]
mod fleet;
#[path = "whole/going_back.rs"]
mod going_back;
#[path = "whole/kept.rs"]
mod kept;
#[path = "whole/labelled.rs"]
mod labelled;
#[path = "whole/lies.rs"]
mod lies;
#[path = "whole/meant.rs"]
mod meant;
#[path = "whole/mistakes.rs"]
mod mistakes;
#[path = "whole/orphans.rs"]
mod orphans;
#[path = "whole/patches.rs"]
mod patches;
#[path = "whole/recovery.rs"]
mod recovery;
#[path = "whole/refused.rs"]
mod refused;
#[path = "whole/releases.rs"]
mod releases;
#[path = "whole/repeated.rs"]
mod repeated;
#[path = "whole/restored.rs"]
mod restored;
#[path = "whole/room.rs"]
mod room;
#[path = "whole/sharing.rs"]
mod sharing;
#[path = "whole/taken_back.rs"]
mod taken_back;
#[path = "whole/takeover.rs"]
mod takeover;
#[path = "whole/troubles.rs"]
mod troubles;
#[path = "whole/unfinished.rs"]
mod unfinished;
#[path = "whole/world.rs"]
mod world;
