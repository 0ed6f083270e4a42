//! Pod CIDRs and conditions that an admission policy or another controller takes back.

use super::*;

#[tokio::test(start_paused = true)]
async fn pod_cidrs_that_a_policy_takes_back_cost_a_write_a_minute() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    for field in ["/spec/podCIDRs", "/spec/podCIDR"] {
        world.api.faults().add(World::fault(Action::TakeBack(field)));
    }
    let node = world.add(0);
    sleep(Duration::from_mins(10)).await;
    let ours = world.patches();
    assert!((9..=12).contains(&ours), "{ours} writes in ten minutes");
    let failed: Vec<_> =
        world.events(&node).into_iter().filter(|(why, _)| why != "CIDRAssignmentFailed").collect();
    assert_eq!(failed, [], "one event, and no other");
    let events = world.events(&node);
    let expect =
        "the API server did not store podCIDRs 10.64.0.0/24: an admission policy or webhook?";
    assert!(events.len() == 1 && events[0].1.contains(expect), "{events:?}");
    leader.shows("ccm_ipam_writes_total{result=\"ok\"}", 0.0);
    leader.shows("ccm_ipam_writes_total{result=\"not_stored\"}", ours as f64);
    leader.shows("ccm_ipam_time_to_pod_cidrs_seconds_count", 0.0);
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    let (status, reason, text) = world.condition(&node).unwrap();
    assert_eq!((&*status, &*reason), ("True", "CIDRNotAvailable"));
    assert!(text.contains(expect), "{text}");
    assert!(matches!(leader.health("pod-cidrs"), Verdict::Failed(why) if why.contains("policy")));
    // Without the policy the node gets its pod CIDRs within a minute, and other nodes at once.
    world.api.faults().clear();
    let other = world.add(1);
    sleep(Duration::from_secs(2)).await;
    assert!(!world.cidrs(&other).is_empty());
    sleep(Duration::from_mins(1)).await;
    world.assigned(&[node, other]).await;
    leader.shows("ccm_ipam_nodes_waiting", 0.0);
    leader.shows("ccm_ipam_time_to_pod_cidrs_seconds_count", 2.0);
    leader.shows("ccm_ipam_writes_total{result=\"ok\"}", 2.0);
}

/// A webhook may hide from the answer what the API server stores: the watch shows it later.
#[tokio::test(start_paused = true)]
async fn pod_cidrs_that_only_the_watch_shows_are_not_another_allocators() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    for (number, cidr) in ["10.64.0.0/24", "10.64.1.0/24"].into_iter().enumerate() {
        for field in ["/spec/podCIDRs", "/spec/podCIDR"] {
            world.api.faults().add(World::fault(Action::TakeBack(field)).times(1));
        }
        let node = world.add(number);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(
            (world.cidrs(&node), world.count_events(&node, "CIDRAssignmentFailed")),
            (String::new(), 1)
        );
        let stored = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
        world.api.patch("nodes", &node, "", PatchKind::Merge, stored).unwrap();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.count_events(&node, "ForeignPodCIDR"), 0);
    }
    leader.shows("ccm_ipam_stopped", 0.0);
    let next = world.add(2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.cidrs(&next), "10.64.2.0/24");
}

/// How often the condition of this node was written.
fn conditions(world: &World, node: &str) -> usize {
    let records = world.api.audit().records();
    let is_own = |record: &&Record| {
        record.verb == Verb::Patch
            && record.subresource == "status"
            && record.name == node
            && record.user_agent.starts_with(AGENT)
    };
    records.iter().filter(is_own).count()
}

fn shows(world: &World, node: &str, status: &str, reason: &str) -> bool {
    world.condition(node).is_some_and(|(is, why, _)| is == status && why == reason)
}

/// Without routes no list brings the node back, which shows that it has no pod CIDRs.
#[tokio::test(start_paused = true)]
async fn a_condition_that_a_policy_takes_back_is_written_once_a_minute() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    let nodes = world.add_many(0..4);
    world.assigned(&nodes).await;
    let last = world.add(4);
    sleep(Duration::from_secs(5)).await;
    assert!(shows(&world, &last, "True", "CIDRNotAvailable"), "{:?}", world.condition(&last));
    let field = Action::TakeBack("/status/conditions");
    world.api.faults().add(Fault::new(field).verb(Verb::Patch).subresource("status"));
    let before = conditions(&world, &last);
    world.remove(&nodes[0]);
    sleep(FREE).await;
    assert_eq!(world.cidrs(&last), "10.64.0.0/24");
    sleep(Duration::from_mins(10)).await;
    let writes = conditions(&world, &last) - before;
    assert!((9..=12).contains(&writes), "{writes} writes in ten minutes");
    assert_eq!(world.count_events(&last, "RepeatedWrite"), 1);
    leader.shows(
        "ccm_repeated_writes_total{object=\"Node\",write=\"NetworkUnavailable\"}",
        writes as f64,
    );
    world.api.faults().clear();
    sleep(Duration::from_mins(1)).await;
    assert!(shows(&world, &last, "False", "CIDRAssigned"), "{:?}", world.condition(&last));
    let writes = conditions(&world, &last);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(conditions(&world, &last), writes);
}

/// Another controller sets the wrong condition on a node that waits for a block, or that has got one.
#[tokio::test(start_paused = true)]
async fn a_contested_condition_costs_few_writes_and_is_right_in_the_end() {
    for arguments in [&[NO_ROUTES][..], &[]] {
        let world = World::new();
        let _leader = world.lead(&[&SMALL[..], arguments].concat()).await;
        let nodes = world.add_many(0..4);
        world.assigned(&nodes).await;
        let last = world.add(4);
        sleep(Duration::from_secs(10)).await;
        let (_, reason, _) = world.condition(&last).unwrap();
        assert!(shows(&world, &last, "True", &reason));
        let before = conditions(&world, &last);
        for _ in 0..6000 {
            if shows(&world, &last, "True", &reason) {
                let is_up =
                    json!([{"type": "NetworkUnavailable", "status": "False", "reason": "IsUp"}]);
                let patch = json!({"status": {"conditions": is_up}});
                world.api.patch("nodes", &last, "status", PatchKind::Strategic, patch).unwrap();
            }
            sleep(Duration::from_millis(100)).await;
        }
        let writes = conditions(&world, &last) - before;
        assert!((3..=12).contains(&writes), "{writes} writes in ten minutes, {arguments:?}");
        assert_eq!(world.count_events(&last, "RepeatedWrite"), 1);
        sleep(Duration::from_mins(5)).await;
        assert!(shows(&world, &last, "True", &reason), "{:?}", world.condition(&last));
    }
}
