//! Exhaustion, release, strange pod CIDRs, another allocator.

use ccm_sim::{
    cloud::Operation,
    faults::{self, Effect},
};

use super::*;

/// Four nodes have the four blocks; the fifth one waits.
async fn full(world: &World) -> (Vec<String>, String) {
    let nodes = world.add_many(0..4);
    world.assigned(&nodes).await;
    let last = world.add(4);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cidrs(&last), "");
    (nodes, last)
}

/// Scenarios 16 and 17, W1 and W11.
#[tokio::test(start_paused = true)]
async fn a_node_waits_for_a_block_and_gets_the_one_that_becomes_free() {
    let world = World::new();
    let leader = world.lead(&SMALL).await;
    let (nodes, last) = full(&world).await;
    let (status, reason, text) = world.condition(&last).unwrap();
    assert_eq!((&*status, &*reason), ("True", "NoRouteCreated"));
    for part in ["IPv4", "10.64.0.0/22", "all 4 are taken"] {
        assert!(text.contains(part), "{text}");
    }
    let events = world.events(&last);
    let expect = "Node node-00004 status is now: CIDRNotAvailable: 10.64.0.0/22";
    assert!(events.iter().any(|(_, text)| text.starts_with(expect)), "{events:?}");
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    assert!(leader.health("pod-cidrs").detail().contains("1 nodes wait"));

    // It costs nothing while it waits.
    let writes = world.writes().len();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.writes().len(), writes);

    let block = world.cidrs(&nodes[2]);
    world.remove(&nodes[2]);
    sleep(Duration::from_secs(25)).await;
    assert_eq!(world.cidrs(&last), "", "within the grace time");
    assert_eq!(world.cloud.router().len(), 3, "its route is gone");
    sleep(FREE).await;
    assert_eq!(world.cidrs(&last), block);
    assert_eq!(world.cloud.router().len(), 4);
    let (status, reason, _) = world.condition(&last).unwrap();
    assert_eq!((&*status, &*reason), ("False", "RouteCreated"));
    leader.shows("ccm_ipam_nodes_waiting", 0.0);
    assert_eq!(leader.health("pod-cidrs"), Verdict::Passed("every node gets its pod CIDRs".into()));
}

/// W11.
#[tokio::test(start_paused = true)]
async fn a_block_waits_for_the_end_of_its_route() {
    let world = World::new();
    let _leader = world.lead(&SMALL).await;
    let (nodes, last) = full(&world).await;
    let down = faults::Fault::new(Effect::Unavailable).on(Operation::ApplyRoutes);
    let down = world.cloud.faults().add(down);
    let block = world.cidrs(&nodes[1]);
    world.remove(&nodes[1]);
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.cidrs(&last), "", "there is a route to the old node");
    assert_eq!(world.cloud.router().len(), 4);
    world.cloud.faults().remove(down);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.cidrs(&last), block);
}

/// Without routes the grace time alone counts, and the condition is ours only for this case.
#[tokio::test(start_paused = true)]
async fn without_routes_a_block_waits_for_the_grace_time() {
    let world = World::new();
    let _leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    let (nodes, last) = full(&world).await;
    let (status, reason, _) = world.condition(&last).unwrap();
    assert_eq!((&*status, &*reason), ("True", "CIDRNotAvailable"));
    assert!(nodes.iter().all(|name| world.condition(name).is_none()));
    world.remove(&nodes[0]);
    sleep(Duration::from_secs(25)).await;
    assert_eq!(world.cidrs(&last), "");
    sleep(FREE).await;
    assert_eq!(world.cidrs(&last), "10.64.0.0/24");
    let (status, reason, _) = world.condition(&last).unwrap();
    assert_eq!((&*status, &*reason), ("False", "CIDRAssigned"));
}

/// W1: a full family takes nothing of the other one.
#[tokio::test(start_paused = true)]
async fn a_full_family_is_named_and_the_other_one_is_not_eaten() {
    let world = World::new();
    let leader = world
        .lead(&["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/16,fd00::/63", NO_ROUTES])
        .await;
    let nodes = world.add_many(0..2);
    world.assigned(&nodes).await;
    assert_eq!(world.cidrs(&nodes[1]), "10.64.1.0/24,fd00:0:0:1::/64");
    let last = world.add(2);
    sleep(Duration::from_hours(1)).await;
    let (_, _, text) = world.condition(&last).unwrap();
    assert!(text.contains("no free IPv6 block"), "{text}");
    let used = "node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR=\"10.64.0.0/16\"}";
    leader.shows(used, 2.0);
    assert_eq!(world.count_events(&last, "CIDRNotAvailable"), 1);
}

/// W3.
#[tokio::test(start_paused = true)]
async fn a_strange_node_is_reported_and_the_others_go_on() {
    let world = World::new();
    let strange = world.add(0);
    world.assign(&strange, "192.168.0.0/24");
    let taken = world.add(1);
    world.assign(&taken, "10.64.0.0/24");
    let leader = world.lead(&SMALL).await;
    let nodes = world.add_many(2..4);
    world.assigned(&nodes).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cidrs(&nodes[0]), "10.64.1.0/24");
    let events = world.events(&strange);
    assert!(events.iter().any(|(reason, _)| reason == "InvalidPodCIDR"), "{events:?}");
    leader.shows("ccm_ipam_stopped", 0.0);
}
