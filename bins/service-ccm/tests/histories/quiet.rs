//! After a history has converged, no member and no Service is written any more.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    rules::{Rule, Rules},
    world::World,
};

/// Members are read again within this time, and what differs is changed.
const LAST: Duration = Duration::from_mins(40);

impl World {
    /// The changes of members and the writes to Services so far.
    fn writes(&self) -> [u32; 2] {
        let series = [
            "ccm_service_operations_total{operation=\"set_members\",result=\"done\"} ",
            "ccm_service_writes_total{kind=\"status\",result=\"ok\"} ",
        ];
        series.map(|series| self.metric(series))
    }
}

impl Rules {
    /// Waits for what is still to come, and then for an hour in which nothing comes.
    pub(crate) async fn stay_quiet(&self, world: &World) {
        sleep(LAST).await;
        let before = world.writes();
        sleep(Duration::from_hours(1)).await;
        let after = world.writes();
        if before != after {
            let how = format!("members and status: {before:?}, an hour later {after:?}");
            world.broken.add(Rule::Quiet, how);
        }
    }
}
