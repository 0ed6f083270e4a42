//! A kubelet writes false addresses, provider IDs and pod CIDRs to its own Node.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, SimCloud},
    faults::{Effect, Fault},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, address, cidr, foreign, name, node};

const THEIRS: &str = "10.244.200.0/24";
const PORT: &str = "10.0.9.99";
const REFUSED: &str = "ccm_route_pod_cidrs_refused";

/// Five nodes, and a route of others to something that exists. The cloud records no owners.
async fn cluster(arguments: &[&str]) -> World {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.records_owner = false);
    cloud.router().add_port(PORT.parse().unwrap());
    cloud.router().add(foreign(THEIRS, PORT));
    let world = World::start(&cloud, "c-1", arguments).await;
    world.add_nodes(0..5);
    world.reachable(0..5).await;
    sleep(Duration::from_mins(3)).await;
    world
}

fn says(world: &World, name: &str, addresses: &[&str]) {
    let one = |address: &&str| json!({"type": "InternalIP", "address": address});
    let status: Value = addresses.iter().map(one).collect();
    let node = world.api.get("nodes", name).unwrap();
    let mut node = node.clone();
    node["status"]["addresses"] = status;
    world
        .api
        .patch(
            "nodes",
            name,
            "status",
            ccm_sim::apiserver::PatchKind::Merge,
            json!({"status": node["status"]}),
        )
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_cannot_delete_the_route_of_others() {
    let mut world = cluster(&[]).await;
    let own = address(&name(3)).to_string();
    for restarts in [false, true] {
        if restarts {
            world.restart().await;
        }
        for addresses in [&[&*own, PORT][..], &[PORT], &[&own]] {
            says(&world, &name(3), addresses);
            sleep(Duration::from_mins(30)).await;
            let routes = world.routes();
            assert_eq!((routes[THEIRS].as_str(), routes.len()), (PORT, 6), "{addresses:?}");
        }
    }
    world.reachable(0..5).await;
    // Nor by a Node that goes.
    says(&world, &name(3), &[&own, PORT]);
    sleep(Duration::from_mins(1)).await;
    world.delete_nodes([3]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!((world.routes()[THEIRS].as_str(), world.routes().len()), (PORT, 5));
}

/// The route of an honest node is this cluster's, whichever leader has made it.
#[tokio::test(start_paused = true)]
async fn what_the_cloud_confirms_goes_and_moves_as_before() {
    let mut world = cluster(&[]).await;
    // Left by a node that had the address before.
    world.cloud.router().add(foreign(&cidr(210), &address(&name(1)).to_string()));
    world.restart().await;
    world.until("it goes", |world| world.routes().len() == 6).await;
    sleep(Duration::from_mins(1)).await;
    let lookups = world.cloud.calls().lookup;
    // A node moves, and another one goes while its machine stays.
    let mut moved = world.cloud.find(&name(1)).unwrap();
    moved.addresses[0].address = "10.0.7.7".to_owned();
    world.cloud.add(moved);
    says(&world, &name(1), &["10.0.7.7"]);
    world.until("it moves", |world| world.routes()[&cidr(1)] == "10.0.7.7").await;
    world.delete_nodes([2]);
    world.until("it goes", |world| !world.routes().contains_key(&cidr(2))).await;
    world.add_nodes([6]);
    world.reachable([6]).await;
    sleep(Duration::from_hours(2)).await;
    let more = world.cloud.calls().lookup - lookups;
    assert!(more <= 2, "{more} lookups, and a route that is made needs none");
}

/// Credentials that may not read instances: as without them.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_shows_no_instances_costs_no_route() {
    for kind in [ErrorKind::Forbidden, ErrorKind::Unauthorized] {
        let mut world = cluster(&[]).await;
        let refused = CloudError::new(kind, "not allowed");
        world.cloud.faults().add(Fault::new(Effect::Error(refused)).on(Operation::Lookup));
        world.cloud.router().add(foreign(&cidr(210), &address(&name(1)).to_string()));
        world.restart().await;
        world.until("it goes", |world| !world.routes().contains_key(&cidr(210))).await;
        world.delete_nodes([2]);
        world.until("it goes", |world| !world.routes().contains_key(&cidr(2))).await;
        world.reachable([0, 1, 3, 4]).await;
        sleep(Duration::from_hours(1)).await;
        assert!(world.cloud.calls().lookup < 30, "{kind:?}: {}", world.cloud.calls().lookup);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wide_pod_cidr_waits_for_a_person_and_takes_nothing_from_others() {
    let mut world = cluster(&[]).await;
    let wide = "10.244.128.0/17";
    world.add(node("rogue-9", &[wide]));
    let why = world.shows("rogue-9", "True", "NoRouteCreated").await;
    assert!(why.contains("is wider than those of most nodes (/24)"), "{why}");
    assert!(world.events("rogue-9")[0].starts_with("PodCIDRWithoutRoute: "));
    assert_eq!(world.metric(&format!("{REFUSED}{{reason=\"wider_than_most\"}}")), 1);
    assert!(world.line("brake").starts_with("[!]1 pod CIDRs get no route, first of node rogue-9"));
    assert!(world.page("rogue-9").contains("--max-pod-cidr"));
    sleep(Duration::from_mins(1)).await;
    world.add_nodes([130]);
    world.reachable([130]).await;
    world.restart().await;
    world.delete_nodes([130]);
    world.until("it goes", |world| !world.routes().contains_key(&cidr(130))).await;
    world.approve_all();
    world.shows("rogue-9", "False", "RouteCreated").await;
    // The approval is over.
    sleep(Duration::from_hours(1)).await;
    world.restart().await;
    sleep(Duration::from_hours(1)).await;
    assert!(world.routes().contains_key(wide));
    assert_eq!(world.metric(&format!("{REFUSED}{{reason=\"wider_than_most\"}}")), 0);
    assert!(world.line("brake").starts_with("[+]"));
}

#[tokio::test(start_paused = true)]
async fn the_flag_is_live() {
    let world = cluster(&["--max-pod-cidr=24"]).await;
    world.add(node("wide-9", &["10.244.64.0/22"]));
    let why = world.shows("wide-9", "True", "NoRouteCreated").await;
    assert!(why.contains("is wider than /24 of --max-pod-cidr"), "{why}");
    assert_eq!(world.metric(&format!("{REFUSED}{{reason=\"too_wide\"}}")), 1);
    world.configure(|settings| settings.max_pod_cidr = "22".parse().unwrap());
    world.shows("wide-9", "False", "RouteCreated").await;
    world.configure(|settings| settings.max_pod_cidr = "24".parse().unwrap());
    sleep(Duration::from_hours(1)).await;
    world.shows("wide-9", "False", "RouteCreated").await;
}

/// All nodes have what kube-controller-manager gives with another mask size.
#[tokio::test(start_paused = true)]
async fn pod_cidrs_of_one_size_are_as_before() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    for number in 0..6 {
        world.add(node(&name(number), &[&format!("10.244.{}.0/22", 4 * number)]));
    }
    world.reachable(0..6).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_with_one_provider_id_the_older_one_has_its_route() {
    let world = cluster(&[]).await;
    let mut rogue = node("rogue-9", &["10.244.99.0/24"]);
    rogue["spec"]["providerID"] = node(&name(1), &[])["spec"]["providerID"].clone();
    rogue["status"]["addresses"] = node(&name(1), &[])["status"]["addresses"].clone();
    // Creation times have no fractions.
    sleep(Duration::from_secs(2)).await;
    world.add(rogue);
    let why = world.shows("rogue-9", "True", "NoRouteCreated").await;
    assert!(
        why.contains("node node-01, which is initialised or older, has the same provider ID"),
        "{why}"
    );
    assert_eq!(world.metric(&format!("{REFUSED}{{reason=\"id_of_another_node\"}}")), 1);
    world.reachable([1]).await;
    // The machine has registered under another name, and its old Node goes.
    world.delete_nodes([1]);
    world.shows("rogue-9", "False", "RouteCreated").await;
}
