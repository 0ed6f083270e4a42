//! Requests that the cloud refuses as a user's mistake are retried rarely, and soon if something
//! that they depend on may have changed.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{cloud::Operation, faults::Trouble};
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::{NODES, World},
};

/// With a fleet that changes all the time, a failing call is not repeated more often than a call
/// that the cloud could not answer.
#[tokio::test(start_paused = true)]
async fn changes_without_end_do_not_repeat_a_refused_call_without_end() {
    let world = World::new().await;
    let error = CloudError::new(ErrorKind::Invalid, "no such subnet");
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, Trouble::Fail(error)));
    world.create(0);
    sleep(Duration::from_secs(30)).await;
    for number in 0..30 {
        world.add_node(NODES + number);
        sleep(SOON).await;
    }
    let calls = world.cloud.calls().load_balancers.ensure;
    assert!((5..10).contains(&calls), "{calls} calls in ten minutes");
}
