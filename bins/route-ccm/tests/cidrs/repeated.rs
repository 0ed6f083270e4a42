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
    assert!((9..=11).contains(&ours), "{ours} writes in ten minutes");
    assert_eq!(world.count_events(&node, "RepeatedWrite"), 1);
    let series = "ccm_repeated_writes_total{object=\"Node\",write=\"podCIDRs\"}";
    leader.shows(series, ours as f64);
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    assert!(matches!(leader.health("pod-cidrs"), Verdict::Failed(why) if why.contains("policy")));
    // Without the policy the node gets its pod CIDRs within a minute, and other nodes at once.
    world.api.faults().clear();
    let other = world.add(1);
    sleep(Duration::from_secs(2)).await;
    assert!(!world.cidrs(&other).is_empty());
    sleep(Duration::from_mins(1)).await;
    world.assigned(&[node, other]).await;
    leader.shows("ccm_ipam_nodes_waiting", 0.0);
}
