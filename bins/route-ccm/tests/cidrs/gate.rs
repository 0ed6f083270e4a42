//! The four cases of what route-ccm does, but the idle one, which the settings' tests have.

use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault as FaultOfCloud},
};

use super::*;

/// A node registers, gets its pod CIDR, its route and its condition.
#[tokio::test(start_paused = true)]
async fn cidr_route_and_condition_of_a_node_are_one_path() {
    let world = World::new();
    let _leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(10)).await;
    let lists = world.api.audit().count(AGENT, Verb::List, "nodes");
    let node = world.add(0);
    world.assigned(std::slice::from_ref(&node)).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.cidrs(&node), "10.64.0.0/24");
    assert_eq!(world.cloud.router().to("10.64.0.0/24".parse().unwrap()).len(), 1);
    let (status, reason, _) = world.condition(&node).unwrap();
    assert_eq!((&*status, &*reason), ("False", "RouteCreated"));
    assert_eq!(world.writes(), ["patch nodes", "patch nodes/status"]);
    assert_eq!(world.api.audit().count(AGENT, Verb::List, "nodes"), lists);
    assert_eq!(world.api.audit().count(AGENT, Verb::Get, "nodes"), 0);
    assert_eq!(world.cloud.calls().routes.apply, 1);
}

/// No block is given out before the routes are known: if that lasts, the nodes say so.
#[tokio::test(start_paused = true)]
async fn nodes_that_wait_for_the_first_list_of_routes_are_reported() {
    let world = World::new();
    let fault = FaultOfCloud::new(Effect::Unavailable).on(Operation::ListRoutes);
    let fault = world.cloud.faults().add(fault);
    let _leader = world.lead(&LARGE).await;
    let nodes = world.add_many(0..3);
    sleep(Duration::from_secs(30)).await;
    assert_eq!((world.events(&nodes[0]), world.condition(&nodes[0])), (Vec::new(), None));
    sleep(Duration::from_mins(10)).await;
    for node in &nodes {
        let (status, _, why) = world.condition(node).unwrap();
        assert_eq!(status, "True");
        assert!(why.contains("the cloud's routes are not known yet"), "{why}");
        assert_eq!(world.count_events(node, "CIDRNotAvailable"), 1);
    }
    world.cloud.faults().remove(fault);
    world.assigned(&nodes).await;
    sleep(Duration::from_secs(10)).await;
    for node in &nodes {
        assert_eq!(world.condition(node).unwrap().0, "False");
    }
}

/// The steps of many nodes go on side by side, and of a late one as well.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_many_costs_one_call_and_two_writes() {
    const NODES: usize = 600;
    let world = World::new();
    let _leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(10)).await;
    let lists = world.api.audit().count(AGENT, Verb::List, "nodes");
    let nodes = world.add_many(0..NODES);
    world.assigned(&nodes).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.api.audit().count(AGENT, Verb::List, "nodes"), lists);
    assert_eq!((world.cloud.router().len(), world.writes().len()), (NODES, 2 * NODES));
    let before = world.cloud.calls();
    assert!(before.routes.apply <= 3, "{before}");
    let late = world.add(NODES);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.condition(&late).unwrap().0, "False");
    let calls = world.cloud.calls().since(&before);
    assert_eq!((calls.total(), calls.routes.apply, calls.routes.items), (1, 1, 1), "{calls}");
    assert_eq!(world.writes().len(), 2 * NODES + 2);
}

#[tokio::test(start_paused = true)]
async fn without_routes_the_cloud_is_not_called() {
    let world = World::new();
    let leader = world.lead(&[&LARGE[..], &[NO_ROUTES]].concat()).await;
    let nodes = world.add_many(0..50);
    world.assigned(&nodes).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(world.cloud.calls().total(), 0, "{}", world.cloud.calls());
    assert_eq!(world.writes(), vec!["patch nodes"; 50]);
    assert_eq!(world.api.audit().count(AGENT, Verb::Get, "namespaces"), 0);
    assert!(leader.health("routes").detail().contains("--configure-cloud-routes=false"));
    assert_eq!(leader.health("pod-cidrs"), Verdict::Passed("every node gets its pod CIDRs".into()));
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_routes_gives_pod_cidrs_alone() {
    let world = World::new();
    world.cloud.router().configure(|router| router.offered = false);
    let leader = world.lead(&LARGE).await;
    let nodes = world.add_many(0..5);
    world.assigned(&nodes).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(world.cloud.calls().total(), 0, "{}", world.cloud.calls());
    assert!(leader.health("routes").detail().contains("offers none"));
}

#[tokio::test(start_paused = true)]
async fn routes_alone_assign_nothing() {
    let world = World::new();
    let _leader = world.lead(&["--cluster-cidr=10.64.0.0/10"]).await;
    let (bare, given) = (world.add(0), world.add(1));
    world.assign(&given, "10.64.7.0/24");
    sleep(Duration::from_mins(1)).await;
    assert_eq!((world.cidrs(&bare), world.patches()), (String::new(), 0));
    assert_eq!(world.cloud.router().len(), 1);
}

/// What it would do is on `/plan`; nothing is written.
#[tokio::test(start_paused = true)]
async fn an_observer_publishes_what_it_would_assign() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &["--mode=observe"]].concat()).await;
    let nodes = world.add_many(0..5);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.writes(), [""; 0]);
    let page: Value = serde_json::from_str(&leader.process.context.plans.json(None)).unwrap();
    assert_eq!((&page["due"]["pod-cidrs"], &page["held"]["pod-cidrs"]), (&json!(4), &json!(1)));
    // Another program assigns them: that is no rival of an observer.
    world.assign(&nodes[0], "10.64.3.0/24");
    sleep(Duration::from_mins(1)).await;
    let page: Value = serde_json::from_str(&leader.process.context.plans.json(None)).unwrap();
    // Four nodes need a block, and three blocks are free.
    assert_eq!((&page["due"]["pod-cidrs"], &page["held"]["pod-cidrs"]), (&json!(3), &json!(1)));
    leader.shows("ccm_ipam_stopped", 0.0);
}
