//! Many load balancers on Octavia.

use std::time::Duration;

use anyhow::Result;
use ccm_tests::openstack::{many_balancers, rig::Rig};

/// The number of load balancers that a node joins.
const JOINED: usize = 50;
/// For how long one of them is held in `PENDING_UPDATE`.
const HELD: Duration = Duration::from_mins(10);
/// How many answers are cut off, with how many of them the leader is killed, and how many also
/// arrive late.
const LOST: [usize; 3] = [10, 5, 5];

/// Adds a node to many load balancers, one of which the cloud holds.
pub async fn joining(rig: &Rig) -> Result<()> {
    many_balancers::measure(rig, JOINED, HELD).await
}

/// Answers to creations are lost, and leaders killed.
pub async fn lost(rig: &Rig) -> Result<()> {
    many_balancers::lose_answers(rig, LOST).await
}
