//! The time at which blocks become free.

use std::time::Duration;

use ccm_controller::machine::{Door, log_unexpected};
use tokio::time::{sleep, sleep_until};

use crate::node_ipam::{
    ipam::HeldBlocks,
    machine::{Effect, Event, Machine},
    perform::Performer,
};

/// How long to wait for more nodes that are deleted at the same time.
const COALESCE: Duration = Duration::from_millis(100);
/// How long to sleep when nothing is due. Any change wakes the task.
const IDLE: Duration = Duration::from_mins(1);

/// Looks at the time. Never returns.
pub(crate) async fn run(
    door: &Door<Machine>,
    performer: &Performer,
    leave: &(dyn Fn(Vec<HeldBlocks>) + Send + Sync),
) {
    loop {
        let mut due = door.timeline().now() + IDLE;
        for request in performer.perform(door.apply(Event::Time)) {
            match request {
                Effect::Leave(held) => leave(held),
                Effect::Due(at) => due = due.min(at),
                other => log_unexpected(&other),
            }
        }
        tokio::select! {
            () = sleep_until(door.timeline().instant(due)) => {}
            () = performer.wake.notified() => {}
        }
        sleep(COALESCE).await;
    }
}
