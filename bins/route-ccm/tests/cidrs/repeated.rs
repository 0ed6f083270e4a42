//! Pod CIDRs that an admission policy removes.

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
