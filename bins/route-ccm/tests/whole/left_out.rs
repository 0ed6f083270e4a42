//! Nodes of another provider, and nodes that `--node-selector` excludes.

use std::time::Duration;

use ccm_sim::cloud::SimCloud;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, cidr, name, node};

const HELD: &str = "ccm_route_changes_held";
const ANOTHERS: &str = "ccm_route_nodes_left_out{reason=\"another_provider\"}";
const NOT_SELECTED: &str = "ccm_route_nodes_left_out{reason=\"not_selected\"}";
const A_WHILE: Duration = Duration::from_mins(20);

/// Returns a machine at the edge, which the cloud does not know.
fn edge(number: usize, id: &str) -> Value {
    let mut edge = node(&format!("edge-{number}"), &[&cidr(number)]);
    edge["spec"]["providerID"] = json!(id);
    edge
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_provider_gets_no_route_and_no_condition() {
    for records_owner in [true, false] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| settings.records_owner = records_owner);
        let mut world = World::start(&cloud, "c-1", &[]).await;
        world.add_nodes(1..4);
        world.reachable(1..4).await;
        world.api.create(edge(9, "kubeedge://edge-9")).unwrap();
        world.api.create(edge(12, "kubeedge-12")).unwrap();
        let mut bare = edge(10, "kubeedge://edge-10");
        bare["spec"]["podCIDRs"] = Value::Null;
        bare["spec"]["podCIDR"] = Value::Null;
        world.api.create(bare).unwrap();
        sleep(A_WHILE).await;
        for name in ["edge-9", "edge-10", "edge-12"] {
            assert_eq!((world.condition(name), world.writes_to(name)), (None, 0), "{name}");
            assert_eq!(world.events(name), [""; 0], "{name}");
        }
        assert_eq!((world.routes().len(), world.metric(HELD), world.metric(ANOTHERS)), (3, 0, 3));
        assert_eq!(world.metric("ccm_route_nodes{state=\"incomplete\"}"), 0);
        assert_eq!(world.metric("ccm_route_nodes{state=\"without_pod_cidrs\"}"), 0);
        // It got a route before its owner was known: the route stays until a person approves its
        // removal.
        world.api.create(edge(11, "")).unwrap();
        world.until("it has a route", |world| world.routes().len() == 4).await;
        world.patch("edge-11", "", json!({"spec": {"providerID": "kubeedge://edge-11"}}));
        sleep(A_WHILE).await;
        assert_eq!((world.routes().len(), world.metric(HELD), world.metric(ANOTHERS)), (4, 1, 4));
        let line = world.line("brake");
        assert!(
            line.contains("the provider ID of node edge-11 is not one of this provider"),
            "{line}"
        );
        world.restart().await;
        sleep(A_WHILE).await;
        assert_eq!((world.routes().len(), world.metric(HELD)), (4, 1));
        let told = |world: &World| {
            let events = world.events("edge-11");
            events.iter().filter(|one| one.starts_with("RoutesHeld: ")).count()
        };
        assert!((1..=2).contains(&told(&world)), "once by each leader");
        world.approve_all();
        sleep(A_WHILE).await;
        assert_eq!((world.routes().len(), world.metric(HELD)), (3, 0));
    }
}

/// If no node has a scheme of the provider, the provider uses other schemes than it names.
#[tokio::test(start_paused = true)]
async fn a_provider_that_names_other_schemes_than_it_has_leaves_out_no_node() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    for number in 0..3 {
        world.api.create(edge(number, &format!("metal://edge-{number}"))).unwrap();
    }
    for number in 0..3 {
        world.shows(&format!("edge-{number}"), "False", "RouteCreated").await;
    }
    assert_eq!(world.metric(ANOTHERS), 0);
}

fn labelled(number: usize, pool: &str) -> Value {
    let mut node = node(&name(number), &[&cidr(number)]);
    node["metadata"]["labels"] = json!({"pool": pool});
    node
}

#[tokio::test(start_paused = true)]
async fn a_selector_decides_which_nodes_get_routes() {
    let world = World::start(&SimCloud::new(), "c-1", &["--node-selector=pool=a"]).await;
    (0..3).for_each(|number| world.add(labelled(number, "a")));
    (3..6).for_each(|number| world.add(labelled(number, "b")));
    world.reachable(0..3).await;
    sleep(A_WHILE).await;
    assert_eq!((world.routes().len(), world.metric(NOT_SELECTED)), (3, 3));
    assert!((3..6).all(|number| world.condition(&name(number)).is_none()));
    // The cases are a label, and the setting while the program runs.
    world.patch(&name(3), "", json!({"metadata": {"labels": {"pool": "a"}}}));
    world.reachable([3]).await;
    world.configure(|settings| settings.node_selector = "pool in (a,b)".parse().unwrap());
    world.reachable(0..6).await;
    world.patch(&name(3), "", json!({"metadata": {"labels": {"pool": "c"}}}));
    sleep(A_WHILE).await;
    assert_eq!((world.routes().len(), world.metric(HELD)), (6, 1), "its route is held");
    assert_eq!(world.condition(&name(3)).unwrap()[0], "False", "and its condition stays");
    // The node is deleted, and its route with it.
    world.delete_nodes([3]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((world.routes().len(), world.metric(HELD)), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn the_page_says_why_a_node_gets_no_route() {
    for mode in ["--mode=observe", "--mode=control"] {
        let arguments = [mode, "--node-selector=pool=a", "--cluster-cidr=10.244.0.0/16"];
        let world = World::start(&SimCloud::new(), "c-1", &arguments).await;
        world.add(labelled(1, "a"));
        world.add(labelled(2, "b"));
        let mut edge = edge(3, "kubeedge://edge-3");
        edge["metadata"]["labels"] = json!({"pool": "a"});
        world.api.create(edge).unwrap();
        let mut outside = labelled(4, "a");
        outside["spec"]["podCIDRs"] = json!(["10.9.4.0/24"]);
        outside["spec"]["podCIDR"] = json!("10.9.4.0/24");
        world.add(outside);
        let mut bare = labelled(5, "a");
        bare["spec"].as_object_mut().unwrap().retain(|key, _| key == "providerID");
        world.add(bare);
        sleep(A_WHILE).await;
        for (name, why) in [
            (name(2), "blocked: --node-selector does not select it"),
            ("edge-3".to_owned(), "blocked: provider ID kubeedge://edge-3 has no scheme of this"),
            (name(4), "blocked: pod CIDR 10.9.4.0/24 is not inside --cluster-cidr"),
            (name(5), "blocked: the node has no podCIDRs"),
        ] {
            let page = world.page(&name);
            assert!(page.contains(why), "{mode}: {page}");
        }
        assert!(!world.page(&name(1)).contains("blocked"), "{mode}: {}", world.page(&name(1)));
        world.patch(&name(2), "", json!({"metadata": {"labels": {"pool": "a"}}}));
        world.delete_nodes([4]);
        sleep(A_WHILE).await;
        for number in [2, 4] {
            let page = world.page(&name(number));
            assert!(!page.contains("blocked"), "{mode}: {page}");
        }
    }
}

const LEFT_OVER: &str = "ccm_route_conditions_left_over";

/// Returns the node with what an earlier controller, or another component, has said of its network.
fn marked(mut node: Value, reason: &str) -> Value {
    node["status"]["conditions"] =
        json!([{"type": "NetworkUnavailable", "status": "True", "reason": reason}]);
    node
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_an_earlier_controller_has_left_is_named() {
    let off = ["--configure-cloud-routes=false", "--allocate-node-cidrs"];
    for (arguments, is_off) in [(&off[..], true), (&["--node-selector=pool=a"], false)] {
        let world = World::start(&SimCloud::new(), "c-1", arguments).await;
        world.add(marked(node(&name(1), &[&cidr(1)]), "NoRouteCreated"));
        world.add(marked(node(&name(2), &[&cidr(2)]), "CiliumIsDown"));
        world.add(marked(labelled(3, "a"), "NoRouteCreated"));
        sleep(A_WHILE).await;
        // If routes are made, the third node gets its own.
        let count = if is_off { 2 } else { 1 };
        assert_eq!(world.metric(LEFT_OVER), count, "{is_off}");
        let line = world.line("left-over-conditions");
        assert!(line.starts_with(&format!("[!]{count} nodes")), "{line}");
        let [event] = world.events(&name(1)).try_into().unwrap();
        assert!(event.starts_with("NetworkUnavailableLeftOver: "), "{event}");
        assert_eq!(world.events(&name(2)), [""; 0]);
        for number in [1, 2] {
            assert_eq!(world.condition(&name(number)).unwrap()[0], "True", "it stays");
            assert_eq!(world.writes_to(&name(number)), 0);
        }
        for number in [1, 3] {
            let cleared =
                json!([{"type": "NetworkUnavailable", "status": "False", "reason": "NotNeeded"}]);
            world.patch(&name(number), "status", json!({"status": {"conditions": cleared}}));
        }
        sleep(A_WHILE).await;
        assert_eq!((world.metric(LEFT_OVER), &*world.line("left-over-conditions")), (0, "[+]none"));
    }
}
