//! Exhaustion, release, wide pod CIDRs, and the next leader's knowledge of blocks.

use super::*;

impl World {
    /// Registers a node that has this pod CIDR from the start, as of a backup or of its kubelet.
    fn add_assigned(&self, number: usize, cidr: &str) -> String {
        let name = SimInstance::numbered(number).name;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        });
        self.api.create(node).unwrap();
        name
    }
}

/// Gives the four blocks to four nodes; the fifth one waits.
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

    // The node costs nothing while it waits.
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

/// Without routes only the grace time counts, and the condition is ours only in this case.
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

/// Two nodes bring all blocks. Nodes that existed before the blocks had their size keep larger
/// ones.
#[tokio::test(start_paused = true)]
async fn a_pod_cidr_that_is_wider_than_a_block_takes_no_block() {
    let world = World::new();
    let older = world.add_assigned(9, "10.64.2.0/23");
    sleep(Duration::from_secs(2)).await;
    let first = world.lead(&[SMALL.as_slice(), &[NO_ROUTES]].concat()).await;
    sleep(Duration::from_secs(2)).await;
    let wide = world.add_assigned(10, "10.64.0.0/23");
    let nodes = world.add_many(0..1);
    world.assigned(&nodes).await;
    // The next leader must know since when, also if it does not begin within the same second.
    let note = first.process.context.leadership.annotations().handed_over().found();
    assert!(note.contains("\"sizes\":{\"v4\":24"), "{note}");
    let next = world.stand_by(&[SMALL.as_slice(), &[NO_ROUTES]].concat(), Some(&first)).await;
    drop(first);
    next.lead();
    let nodes = [nodes, world.add_many(1..2)].concat();
    world.assigned(&nodes).await;
    assert_eq!(world.cidrs(&nodes[0]), "10.64.0.0/24");
    assert_eq!(world.cidrs(&nodes[1]), "10.64.1.0/24");
    let more = world.add(2);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cidrs(&more), "", "the older node keeps its own");
    for (name, expect) in [(&wide, "is wider than a block of /24"), (&older, "it stays")] {
        let events = world.events(name);
        let mut strange = events.iter().filter(|(reason, _)| reason == "InvalidPodCIDR");
        assert!(strange.any(|(_, text)| text.contains(expect)), "{events:?}");
    }
}

/// W11: the next leader holds what the last one held.
#[tokio::test(start_paused = true)]
async fn the_next_leader_knows_which_blocks_are_held() {
    let world = World::new();
    let arguments = [&SMALL[..], &[NO_ROUTES]].concat();
    let first = world.lead(&arguments).await;
    let nodes = world.add_many(0..4);
    world.assigned(&nodes).await;
    world.remove(&nodes[3]);
    sleep(Duration::from_secs(5)).await;
    let second = world.stand_by(&arguments, Some(&first)).await;
    drop(first);
    second.lead();
    let last = world.add(4);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.cidrs(&last), "", "within the grace time");
    second.shows("ccm_ipam_nodes_held", 1.0);
    sleep(FREE).await;
    assert_eq!(world.cidrs(&last), "10.64.3.0/24");
}
