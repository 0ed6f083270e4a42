//! Pod CIDRs that something takes back.

use super::*;

/// Another client takes the pod CIDRs back as soon as they are there, for ten minutes.
#[tokio::test(start_paused = true)]
async fn pod_cidrs_that_are_taken_back_cost_few_writes() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    let node = world.add(0);
    for _ in 0..60_000 {
        if !world.cidrs(&node).is_empty() {
            let none = json!({"spec": {"podCIDR": null, "podCIDRs": null}});
            world.api.patch("nodes", &node, "", PatchKind::Merge, none).unwrap();
        }
        sleep(Duration::from_millis(10)).await;
    }
    let records = world.api.audit().records();
    let is_own = |record: &&Record| {
        record.user_agent.starts_with(AGENT) && record.what() == "patch nodes"
    };
    let ours = records.iter().filter(is_own).count();
    assert!((3..=9).contains(&ours), "{ours} writes in ten minutes");
    assert_eq!(world.count_events(&node, "RepeatedWrite"), 1);
    let repeated = (ours - 2) as f64;
    leader.shows("ccm_repeated_writes_total{object=\"Node\",write=\"podCIDRs\"}", repeated);
    // It ends.
    world.assigned(&[node]).await;
}
