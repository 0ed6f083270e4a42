//! Routes of others on the same router.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, SimCloud, routes::RouteWriteKind},
    faults::{Fault, FaultEffect, Trouble},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::world::{World, cidr, foreign, name, node};

/// Others write the table all the time.
#[tokio::test(start_paused = true)]
async fn many_writes_of_others_keep_no_node_waiting() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.compares_version = true);
    let slow = FaultEffect::LatencyBetween(Duration::from_millis(10), Duration::from_millis(30));
    cloud.faults().add(Fault::new(slow));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    let theirs = cloud.clone();
    let mut others = JoinSet::new();
    others.spawn(async move {
        for number in 0..1000 {
            let destination = format!("10.{}.{}.0/24", 10 + number / 250, number % 250);
            theirs.router().add(foreign(&destination, "10.9.9.9"));
            sleep(Duration::from_millis(150)).await;
        }
    });
    let start = Instant::now();
    world.add_nodes(1..20);
    world.reachable(1..20).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for number in 1..20 {
        assert_eq!(world.writes_to(&name(number)), 1, "{number}");
    }
}

/// A table that others write all the time is not listed all the time.
#[tokio::test(start_paused = true)]
async fn a_table_that_is_always_busy_is_listed_with_back_off() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.compares_version = true);
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    let busy = CloudError::new(ErrorKind::Busy, "the table is being changed");
    let fault = FaultEffect::Routes(vec![name(1)], Trouble::Fail(busy));
    let fault = cloud.faults().add(Fault::new(fault).on(Operation::ApplyRoutes));
    let before = cloud.calls().routes;
    world.add_nodes([1]);
    sleep(Duration::from_hours(1)).await;
    let after = cloud.calls().routes;
    let (applies, lists) = (after.apply - before.apply, after.list - before.list);
    assert!((60..=150).contains(&applies) && lists <= 160, "{applies} calls, {lists} lists");
    cloud.faults().remove(fault);
    sleep(Duration::from_mins(1)).await;
    world.reachable([1]).await;
}

/// A route that cannot be read exists, but the program does not know its target.
#[tokio::test(start_paused = true)]
async fn a_route_that_cannot_be_read_turns_the_line_of_the_list() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0, 1]);
    world.reachable([0, 1]).await;
    let fault = FaultEffect::Routes(vec![name(1), cidr(1)], Trouble::Malformed);
    let fault = cloud.faults().add(Fault::new(fault).on(Operation::ListRoutes));
    sleep(Duration::from_mins(15)).await;
    let line = world.line("routes");
    assert!(line.starts_with("[!]1 routes listed; 1 more cannot be read, first: "), "{line}");
    cloud.faults().remove(fault);
    sleep(Duration::from_mins(15)).await;
    assert_eq!(world.line("routes"), "[+]2 routes listed");
}

/// Two clusters write the same table, and the cloud refuses writes that were decided on an older
/// version.
#[tokio::test(start_paused = true)]
async fn two_clusters_share_a_router() {
    const NODES: usize = 24;
    for records_owner in [true, false] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| {
            settings.records_owner = records_owner;
            settings.traits.compares_version = true;
        });
        let slow = FaultEffect::LatencyBetween(Duration::ZERO, Duration::from_millis(100));
        cloud.faults().add(Fault::new(slow));
        // Each cluster mistakes the networks of both for its own.
        let cidrs = ["--cluster-cidr=10.244.0.0/15"];
        let ours = World::start(&cloud, "c-1", &cidrs).await;
        let theirs = World::start(&cloud, "c-2", &cidrs).await;
        for number in 0..NODES {
            ours.add_nodes([number]);
            theirs.add(node(&format!("other-{number}"), &[&format!("10.245.{number}.0/24")]));
            // The nodes come in waves, because decisions on a table that others keep changing have
            // to wait.
            if number % 6 == 5 {
                sleep(Duration::from_secs(4)).await;
            }
        }
        ours.reachable(0..NODES).await;
        for number in 0..NODES {
            theirs.shows(&format!("other-{number}"), "False", "RouteCreated").await;
        }
        sleep(Duration::from_hours(1)).await;
        let router = cloud.router();
        let (created, all) = (router.written(RouteWriteKind::Create), router.writes().len());
        assert_eq!((router.len(), created, all), (2 * NODES, 2 * NODES, 2 * NODES));
        // A conflict does not count as a failure: no node was shown as unreachable.
        for number in 0..NODES {
            assert_eq!(ours.writes_to(&name(number)), 1, "{number}");
            assert_eq!(theirs.writes_to(&format!("other-{number}")), 1, "{number}");
            assert_eq!(ours.events(&name(number)), [""; 0], "{number}");
        }
        // One of the two clusters is torn down: only its routes are removed, within its budget.
        cloud.router().reset_writes();
        for number in 0..3 {
            theirs.api.delete("nodes", &format!("other-{number}")).unwrap();
        }
        sleep(Duration::from_mins(1)).await;
        assert_eq!(router.len(), 2 * NODES - 3, "{:?}", router.writes());
        ours.reachable(0..NODES).await;
    }
}
