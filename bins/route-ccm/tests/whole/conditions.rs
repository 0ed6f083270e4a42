//! The condition `NetworkUnavailable`, and nodes with which something is wrong.

use std::time::Duration;

use ccm_cloud::{CloudError, Cure, ErrorKind, IpFamily, NodeAddress, RouteTraits};
use ccm_sim::{
    apiserver::{Action, Fault as ServerFault, Verb},
    cloud::{
        Operation, SimCloud,
        routes::{RouteWriteKind, TargetKind},
    },
    faults::{Effect, Fault, Trouble},
};
use ccm_testing::Log;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{World, address, cidr, instance, name, net, node};

/// The node with this condition.
fn with_condition(mut node: Value, status: &str, reason: &str) -> Value {
    node["status"]["conditions"] =
        json!([{"type": "NetworkUnavailable", "status": status, "reason": reason}]);
    node
}

#[tokio::test(start_paused = true)]
async fn the_status_decides_whether_it_is_written() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    let refused = ServerFault::new(Action::Status { code: 503, retry_after: None });
    world.api.faults().add(refused.writes().name("refused").times(1));
    world.add(with_condition(node("by-cni", &[&cidr(1)]), "False", "CalicoIsUp"));
    world.add(with_condition(node("by-other", &[&cidr(2)]), "True", "Other"));
    // `times` above is used up by the registration if it is not the program's write.
    world.add(node("without", &[]));
    world.add(node("refused", &[&cidr(3)]));
    for name in ["by-other", "refused"] {
        world.shows(name, "False", "RouteCreated").await;
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!(world.metric("ccm_route_nodes{state=\"without_pod_cidrs\"}"), 1);
    assert_eq!(world.metric("ccm_route_nodes{state=\"complete\"}"), 3);
    let [status, reason, _] = world.condition("by-cni").unwrap();
    assert_eq!([&*status, &*reason], ["False", "CalicoIsUp"]);
    assert_eq!(world.condition("without"), None, "nothing is known of it");
    assert_eq!(world.routes().len(), 3);
    for (name, count) in [("by-cni", 0), ("by-other", 1), ("without", 0), ("refused", 2)] {
        assert_eq!(world.writes_to(name), count, "{name}");
    }
}

/// What a node's route waits for is shown after five seconds, once; a failure is shown at once.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_route_is_marked_once() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    let error = CloudError::new(ErrorKind::Invalid, "not this one");
    let fails = Effect::Routes(vec![name(2)], Trouble::Fail(error));
    cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes));
    let mut late = node(&name(1), &[&cidr(1)]);
    late["status"]["addresses"] = json!([{"type": "Hostname", "address": name(1)}]);
    let start = Instant::now();
    world.add(late);
    world.add_nodes([2]);
    world.shows(&name(2), "True", "NoRouteCreated").await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(world.condition(&name(1)), None, "a new node has a moment");
    let why = world.shows(&name(1), "True", "NoRouteCreated").await;
    assert!((5..8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(why.contains("InternalIP"), "{why}");
    sleep(Duration::from_mins(20)).await;
    assert_eq!((world.writes_to(&name(1)), world.writes_to(&name(2))), (1, 1), "marked once");
    let [event] = world.events(&name(2)).try_into().unwrap();
    assert!(event.starts_with("FailedToCreateRoute: ") && event.contains(&cidr(2)), "{event}");
    assert!(event.contains("not this one"), "{event}");
    cloud.faults().clear();
    // Any change of the node that matters for its routes is a reason to try again at once.
    for number in [1, 2] {
        let address = json!({"type": "InternalIP", "address": address(&name(number)).to_string()});
        let more = json!({"type": "ExternalIP", "address": "198.51.100.1"});
        world.patch(&name(number), "status", json!({"status": {"addresses": [address, more]}}));
    }
    world.reachable([1, 2]).await;
}

/// Before the first list nothing is known of the routes: a node that joins is marked, and what other
/// nodes show stays.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_is_marked_while_the_table_cannot_be_listed() {
    let cloud = SimCloud::new();
    let fault = cloud.faults().add(Fault::new(Effect::Unavailable).on(Operation::ListRoutes));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add(with_condition(node(&name(1), &[&cidr(1)]), "False", "RouteCreated"));
    let start = Instant::now();
    world.add_nodes([2]);
    world.add(node("without", &[]));
    let why = world.shows(&name(2), "True", "NoRouteCreated").await;
    assert!((5..8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(why.contains("cannot list the routes: unavailable"), "{why}");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.metric("ccm_route_nodes{state=\"incomplete\"}"), 1);
    assert_eq!(world.metric("ccm_route_nodes{state=\"without_pod_cidrs\"}"), 1);
    for (name, count) in [(&name(1), 0), (&name(2), 1), (&"without".to_owned(), 0)] {
        assert_eq!(world.writes_to(name), count, "{name}");
    }
    cloud.faults().remove(fault);
    sleep(Duration::from_mins(1)).await;
    world.reachable([1, 2]).await;
    assert_eq!((world.writes_to(&name(1)), world.writes_to(&name(2))), (0, 2));
}

/// Another program assigns pod CIDRs: if it does not, that is said, once.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_no_pod_cidr_is_reported() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    world.add(node("without", &[]));
    world.add(node("late", &[]));
    sleep(Duration::from_secs(50)).await;
    world.patch("late", "", json!({"spec": {"podCIDR": cidr(7), "podCIDRs": [cidr(7)]}}));
    assert_eq!(world.events("without"), [""; 0], "a new node has a moment");
    sleep(Duration::from_mins(30)).await;
    let [event] = world.events("without").try_into().unwrap();
    assert!(event.starts_with("NoPodCIDR: node without has no podCIDRs"), "{event}");
    assert!(event.contains("--allocate-node-cidrs"), "{event}");
    assert_eq!(world.events("late"), [""; 0]);
    assert_eq!(world.writes_to("without"), 0);
}

/// A route that does not let packets pass is repaired with back-off, and shown.
#[tokio::test(start_paused = true)]
async fn a_route_that_carries_no_traffic_is_shown() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    let broken = Effect::Routes(vec![name(1)], Trouble::Break(Cure::Person));
    cloud.faults().add(Fault::new(broken).on(Operation::ApplyRoutes));
    world.add_nodes(0..3);
    world.reachable([0, 2]).await;
    let why = world.shows(&name(1), "True", "NoRouteCreated").await;
    assert!(why.contains("does not allow"), "{why}");
    assert_eq!(world.metric("ccm_route_routes{kind=\"defective\"}"), 1);
    let before = cloud.calls().routes.apply;
    sleep(Duration::from_hours(1)).await;
    let calls = cloud.calls().routes.apply - before;
    assert!((5..=30).contains(&calls), "{calls} attempts in an hour");
    // A person mends it in the cloud; a list shows it.
    cloud.faults().clear();
    cloud.router().update(net(&cidr(1)), |route| route.defect = None);
    sleep(Duration::from_mins(10)).await;
    world.reachable([1]).await;
    assert_eq!(world.writes_to(&name(1)), 2, "not reachable, reachable");
}

/// A cloud that takes its time for a new route is waited for, and not called again and again.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_takes_its_time_is_waited_for() {
    for (seconds, writes) in [(1, 1), (10, 2)] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| settings.create = Duration::from_secs(seconds));
        let world = World::start(&cloud, "c-1", &[]).await;
        world.add_nodes(0..3);
        world.reachable(0..3).await;
        sleep(Duration::from_mins(1)).await;
        for number in 0..3 {
            assert_eq!(world.writes_to(&name(number)), writes, "{seconds} s: {number}");
        }
        let calls = cloud.calls().routes;
        assert!(calls.apply <= 6 && calls.list <= 6, "{seconds} s: {calls:?}");
        assert_eq!(cloud.router().writes().len(), 3, "{seconds} s");
    }
}

/// One clear reason for each; the other nodes go on.
#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_node_is_shown_there() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.families = vec![IpFamily::V4]);
    let world = World::start(&cloud, "c-1", &[]).await;
    let wrong = [
        ("b-same", vec!["10.244.1.0/24"], "also that of node a-first"),
        ("c-larger", vec!["10.244.0.0/23"], "overlaps 10.244.1.0/24 of node a-first"),
        ("d-outside", vec!["192.168.7.0/24"], "not inside --cluster-cidr"),
        ("e-family", vec!["10.244.5.0/24", "fd00:10:244:5::/64"], "no IPv6 routes"),
    ];
    world.add(node("a-first", &["10.244.1.0/24"]));
    for (name, cidrs, _) in &wrong {
        world.add(node(name, cidrs));
    }
    world.add(node("f-last", &["10.244.6.0/24"]));
    for name in ["a-first", "f-last"] {
        world.shows(name, "False", "RouteCreated").await;
    }
    sleep(Duration::from_mins(30)).await;
    for (name, _, why) in &wrong {
        let [status, reason, message] = world.condition(name).unwrap();
        assert_eq!([&*status, &*reason], ["True", "NoRouteCreated"], "{name}");
        assert!(message.contains(why), "{name}: {message}");
        let events = world.events(name);
        assert!(events.len() == 1 && events[0].contains(why), "{name}: {events:?}");
        assert!(events[0].starts_with("PodCIDRWithoutRoute: "), "{name}: {events:?}");
        assert_eq!(world.writes_to(name), 1, "{name}");
    }
    let destinations: Vec<_> = world.routes().into_keys().collect();
    assert_eq!(destinations, ["10.244.1.0/24", "10.244.5.0/24", "10.244.6.0/24"]);
}

/// A machine is rebuilt: its node comes again under the same name, with another instance, and
/// without a provider ID until node-ccm has written it.
#[tokio::test(start_paused = true)]
async fn a_node_with_another_instance_moves_its_route() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| {
        settings.targets = TargetKind::Instance;
        settings.traits =
            RouteTraits { target_ids: true, replaces: true, ..RouteTraits::default() };
    });
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    cloud.router().reset_writes();
    world.delete_nodes([1]);
    cloud.remove("i-node-01").unwrap();
    let mut again = instance(&name(1));
    again.id = "i-rebuilt".to_owned();
    again.addresses = vec![NodeAddress::new(ccm_cloud::AddressKind::InternalIp, "10.0.0.77")];
    let id = cloud.add(again);
    let mut rebuilt = node(&name(1), &[&cidr(1)]);
    rebuilt["spec"]["providerID"] = Value::Null;
    world.api.create(rebuilt).unwrap();
    let why = world.shows(&name(1), "True", "NoRouteCreated").await;
    assert!(why.contains("no provider ID"), "{why}");
    world.patch(&name(1), "", json!({"spec": {"providerID": id.as_str()}}));
    world.reachable([1]).await;
    assert_eq!(world.routes()[&cidr(1)], id.to_string());
    let writes = cloud.router().writes();
    let kinds: Vec<_> = writes.iter().map(|write| write.kind).collect();
    assert_eq!(kinds, [RouteWriteKind::Replace], "{writes:?}");
    assert_eq!(world.writes_to(&name(1)), 3, "reachable, not reachable, reachable");
}

/// The time from the creation of a node to its routes is counted once for each node.
#[tokio::test(start_paused = true)]
async fn the_way_to_the_routes_is_counted_once() {
    let count = |world: &World| world.metric("ccm_route_time_to_routes_seconds_count");
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-reconciliation-period=10s"]).await;
    world.add(node("without", &[]));
    world.add_nodes(1..4);
    world.reachable(1..4).await;
    assert_eq!(count(&world), 3);
    // A condition of another component, and a route that is made once more.
    let conditions = with_condition(json!({}), "True", "Other");
    world.patch(&name(1), "status", conditions);
    cloud.router().remove(net(&cidr(2)));
    sleep(Duration::from_secs(30)).await;
    world.reachable(1..4).await;
    assert_eq!((count(&world), world.routes().len()), (3, 3));
    // Another node of the same name is another one.
    world.delete_nodes([3]);
    sleep(Duration::from_secs(1)).await;
    world.add_nodes([3]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(count(&world), 4);
}

/// Like cilium-operator, another controller sets the condition whenever it differs. Its writes do
/// not make route-ccm retry a route that the cloud refuses.
#[tokio::test(start_paused = true)]
async fn another_writer_of_the_condition_costs_few_writes_and_no_calls() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    let error = CloudError::new(ErrorKind::QuotaExceeded, "no more routes");
    let fails = Effect::Routes(vec![name(1)], Trouble::Fail(error));
    cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes));
    world.add_nodes([1]);
    world.shows(&name(1), "True", "NoRouteCreated").await;
    let refused = |world: &World| -> u64 {
        let series = "ccm_route_changes_total{operation=\"create\",result=\"quota_exceeded\"}";
        world.metric(series)
    };
    let (writes, calls) = (world.writes_to(&name(1)), refused(&world));
    for _ in 0..6000 {
        if world.condition(&name(1)).is_some_and(|[status, ..]| status != "False") {
            let is_up =
                json!([{"type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp"}]);
            world.patch(&name(1), "status", json!({"status": {"conditions": is_up}}));
        }
        sleep(Duration::from_millis(100)).await;
    }
    let writes = world.writes_to(&name(1)) - writes;
    assert!((3..=9).contains(&writes), "{writes} writes in ten minutes");
    let calls = refused(&world) - calls;
    assert!(calls <= 2, "{calls} calls in ten minutes, although one waits for five");
    let told = world.events(&name(1)).iter().filter(|one| one.starts_with("RepeatedWrite")).count();
    assert_eq!(told, 1);
}

/// route-ccm logs a condition only if the node has it.
#[tokio::test(start_paused = true)]
async fn a_condition_that_is_not_stored_is_not_logged_as_written() {
    let log = Log::new();
    let _listening = log.listen(tracing::Level::INFO);
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    let policy = ServerFault::new(Action::TakeBack("/status/conditions"));
    let policy = world.api.faults().add(policy.verb(Verb::Patch).resource("nodes"));
    world.add(node(&name(1), &[&cidr(1)]));
    sleep(Duration::from_mins(3)).await;
    assert!(world.writes_to(&name(1)) > 0);
    assert_eq!(log.lines_with("NetworkUnavailable=False"), 0, "{}", log.text());
    world.api.faults().remove(policy);
    world.shows(&name(1), "False", "RouteCreated").await;
    assert_eq!(log.lines_with("NetworkUnavailable=False"), 1, "{}", log.text());
}
