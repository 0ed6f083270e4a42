//! Writes that fail, or whose answer is lost.

use super::*;

/// W4: the same block again, until the node shows it.
#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_confirmed_by_the_node() {
    for action in [Action::DropAfterApply, Action::DropBeforeApply, Action::Stall] {
        let world = World::new();
        let leader = world.lead(&LARGE).await;
        sleep(Duration::from_secs(3)).await;
        let fault = world.api.faults().add(World::fault(action.clone()).times(1));
        let nodes = vec![world.add(0)];
        world.assigned(&nodes).await;
        let more = world.add_many(1..4);
        world.assigned(&more).await;
        sleep(Duration::from_mins(1)).await;
        assert_eq!(world.api.faults().hits(fault), 1);
        assert_eq!(world.cidrs(&nodes[0]), "10.64.0.0/24", "{action:?}");
        assert_eq!(world.cidrs(&more[0]), "10.64.1.0/24", "{action:?}");
        leader.shows("ccm_ipam_stopped", 0.0);
        assert!(world.patches() <= 6, "{action:?}: {:?}", world.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_again_with_the_same_block() {
    let world = World::new();
    let _leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(3)).await;
    let conflict = Action::Status { code: 409, retry_after: None };
    world.api.faults().add(World::fault(conflict).times(4));
    let node = world.add(0);
    world.assigned(std::slice::from_ref(&node)).await;
    assert_eq!((world.cidrs(&node), world.patches()), ("10.64.0.0/24".to_owned(), 5));
    assert_eq!(world.count_events(&node, "CIDRAssignmentFailed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reported_and_stops_no_other_node() {
    let world = World::new();
    let _leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(3)).await;
    let refusal = Action::Status { code: 422, retry_after: None };
    let name = SimInstance::numbered(0).name;
    let fault = world.api.faults().add(World::fault(refusal).name(&name));
    let (bad, others) = (world.add(0), world.add_many(1..20));
    world.assigned(&others).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(world.cidrs(&bad), "");
    let failed = world.events(&bad);
    assert!(
        failed.iter().any(|(reason, text)| reason == "CIDRAssignmentFailed"
            && text.starts_with("Node node-00000 status is now: CIDRAssignmentFailed")),
        "{failed:?}"
    );
    assert!(world.patches() < 30, "{}", world.patches());
    world.api.faults().remove(fault);
    world.assigned(&[bad]).await;
}

/// Every write carries UID and version: another program's change in between is a conflict.
#[tokio::test(start_paused = true)]
async fn one_write_a_node_however_many_register() {
    const NODES: usize = 2000;
    let world = World::new();
    let leader = world.lead(&[&LARGE[..], &[NO_ROUTES]].concat()).await;
    let nodes = world.add_many(0..NODES);
    world.assigned(&nodes).await;
    assert_eq!(world.patches(), NODES);
    let set = "{clusterCIDR=\"10.64.0.0/10\"}";
    for (name, expect) in [
        ("node_ipam_controller_cidrset_cidrs_allocations_total", NODES as f64),
        ("node_ipam_controller_cidrset_cidrs_releases_total", 0.0),
        ("node_ipam_controller_cidrset_usage_cidrs", NODES as f64 / 16384.0),
        ("node_ipam_controller_cirdset_max_cidrs", 16384.0),
        ("node_ipam_controller_cidrset_allocation_tries_per_request_count", NODES as f64),
    ] {
        leader.shows(&format!("{name}{set}"), expect);
    }
    leader.shows("ccm_ipam_nodes_without_pod_cidrs", 0.0);
}

/// A write that waits for our own limiter was not sent, and has not failed.
#[tokio::test(start_paused = true)]
async fn a_low_rate_of_requests_fails_no_write() {
    const NODES: usize = 100;
    let world = World::new();
    let rate = ["--kube-api-qps=4", "--kube-api-burst=4"];
    let leader = world.lead(&[&LARGE[..], &[NO_ROUTES], &rate].concat()).await;
    let nodes = world.add_many(0..NODES);
    world.assigned(&nodes).await;
    assert_eq!(world.patches(), NODES);
    leader.shows("ccm_ipam_writes_total{result=\"ok\"}", NODES as f64);
    assert!(!leader.process.context.metrics.encode().unwrap().contains("result=\"timeout\""));
    for node in &nodes {
        assert_eq!(world.events(node), [], "{node}");
    }
}
