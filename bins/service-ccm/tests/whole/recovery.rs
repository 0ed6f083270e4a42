//! After a call that hangs, Services are served as fast as before it.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect},
};
use tokio::time::{Instant, sleep};

use crate::world::{NODES, World};

const MANY: usize = 300;
const HANG: Duration = Duration::from_secs(45);

/// Returns many Services with load balancers, in a cloud that takes two seconds for a call about
/// members.
async fn many() -> World {
    let world = World::new().await;
    (0..MANY).for_each(|number| world.create(number));
    sleep(Duration::from_mins(1)).await;
    (0..MANY).for_each(|number| assert!(world.has_address(number), "{number}"));
    let slow = Fault::new(FaultEffect::Latency(Duration::from_secs(2))).on(Operation::SetMembers);
    world.cloud.faults().add(slow);
    world
}

/// Returns how long it takes until all load balancers have this many members.
async fn until_all_have(world: &World, members: usize) -> Duration {
    let begin = Instant::now();
    let has = |world: &World| world.ours().iter().all(|one| one.members.len() == members);
    while !has(world) {
        assert!(begin.elapsed() < Duration::from_mins(10), "{} s", begin.elapsed().as_secs());
        sleep(Duration::from_millis(500)).await;
    }
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn after_a_hang_all_load_balancers_get_a_new_node_soon() {
    let world = many().await;
    world.add_node(NODES);
    let usual = until_all_have(&world, NODES + 1).await;
    sleep(Duration::from_mins(1)).await;
    let hang = Fault::new(FaultEffect::Hang).on(Operation::SetMembers).lasting(HANG);
    world.cloud.faults().add(hang);
    world.add_node(NODES + 1);
    sleep(HANG).await;
    world.add_node(NODES + 2);
    let took = until_all_have(&world, NODES + 3).await;
    eprintln!("{MANY} load balancers: {usual:?} without a hang, {took:?} after its end");
    // The last calls that hang end by their time limit.
    assert!(took <= Duration::from_secs(50), "{took:?} after the end of the hang");
}

/// Items that a call had no time for do not fail: they go with the next call.
#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_no_failure() {
    for (lasting, is_shown) in [(10, false), (150, true)] {
        let world = World::new().await;
        let error = CloudError::new(ErrorKind::Timeout, "not sent: no time was left");
        let effect = FaultEffect::Error(error.that_was_not_sent());
        let fault = Fault::new(effect).on(Operation::EnsureLoadBalancers);
        world.cloud.faults().add(fault.lasting(Duration::from_secs(lasting)));
        (0..3).for_each(|number| world.create(number));
        sleep(Duration::from_secs(lasting)).await;
        let shown = world.service(0).unwrap()["status"]["conditions"].to_string();
        assert!(!shown.contains("CloudUnavailable"), "{shown}");
        assert_eq!(shown.contains("WaitingForCloud"), is_shown, "{shown}");
        assert_eq!(world.metric::<String>("workqueue_adds_total{name=\"service-slow\"} "), "0");
        let failing = "ccm_service_load_balancers{state=\"failing\"} ";
        assert_eq!(world.metric::<String>(failing), "0.0");
        sleep(Duration::from_secs(11)).await;
        (0..3).for_each(|number| assert!(world.has_address(number), "{number}"));
        assert!(world.events("SyncLoadBalancerFailed").is_empty());
    }
}
