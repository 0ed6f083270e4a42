//! A wrong setting that affects all routes is in force for a night.

use std::{collections::BTreeMap, time::Duration};

use ccm_sim::cloud::SimCloud;
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{World, address, cidr, foreign, name};

/// The time in which nobody looks.
const NIGHT: Duration = Duration::from_hours(6);
/// Within this time the alerts begin.
const MINUTES: Duration = Duration::from_mins(2);
const HOUR: Duration = Duration::from_hours(1);
const NODES: usize = 20;
/// The number of routes that people have made outside of the cluster CIDRs, to machines that are
/// nodes.
const STRAYS: usize = 2;
const LEASE: &str = "--leader-elect-resource";
const HELD: &str = "ccm_route_changes_held ";
const OURS: &str = "ccm_route_routes{kind=\"ours\"} ";
const LENT: &str = "ccm_route_routes{kind=\"other_uid\"} ";

/// Returns a cluster with its routes, on a router that has routes of persons as well.
async fn cluster(records_owner: bool) -> World {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.records_owner = records_owner);
    for number in 0..STRAYS {
        let destination = format!("10.9.{number}.0/24");
        cloud.router().add(foreign(&destination, &address(&name(number)).to_string()));
    }
    let world = World::start(&cloud, "c-1", &["--cluster-cidr=10.244.0.0/16"]).await;
    world.add_nodes(0..NODES);
    world.reachable(0..NODES).await;
    world
}

/// The serving state: the routes, and each node's statements about its network and its pods'
/// addresses.
type Serves = (BTreeMap<String, String>, Vec<(Value, Option<String>)>);

fn serves(world: &World) -> Serves {
    let node = |number| {
        let node = world.api.get("nodes", &name(number)).unwrap();
        let status = world.condition(&name(number)).map(|[status, ..]| status);
        (node["spec"]["podCIDRs"].clone(), status)
    };
    (world.routes(), (0..NODES).map(node).collect())
}

/// Runs one night with the setting, and an hour with the right one again. Each of these is shown
/// within minutes of the first one.
async fn nothing_changes(world: &mut World, [wrong, right]: [&str; 2], shown: &[(&str, usize)]) {
    let before = serves(world);
    for setting in [wrong, right] {
        world.restart_with(setting, setting.starts_with(LEASE)).await;
        sleep(MINUTES).await;
        for (metric, count) in shown {
            let count = if setting == wrong { *count } else { 0 };
            assert_eq!(world.metric(metric), count as u64, "{metric} {setting}");
        }
        sleep(if setting == wrong { NIGHT } else { HOUR }).await;
        assert_eq!(serves(world), before, "{setting}");
    }
    assert_eq!(world.metric(OURS), NODES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cluster_cidr_changes_no_route() {
    let recorded = ["10.245.0.0/16", "10.244.0.0/21", "fd00:10:244::/56"];
    for (records_owner, wrong) in [(true, &recorded[..]), (false, &["10.244.0.0/21", "10.0.0.0/8"])]
    {
        let mut world = cluster(records_owner).await;
        for wrong in wrong {
            let held = if wrong.ends_with("/8") { STRAYS } else { 0 };
            let settings = [&format!("--cluster-cidr={wrong}"), "--cluster-cidr=10.244.0.0/16"];
            nothing_changes(&mut world, settings, &[(HELD, held)]).await;
        }
        let told = (0..STRAYS).flat_map(|number| world.events(&name(number)));
        let told = told.filter(|event| event.starts_with("RoutesHeld: ")).count();
        assert_eq!(told, usize::from(!records_owner));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_change_of_the_network_would_take_goes_when_a_person_approves_it() {
    let mut world = cluster(false).await;
    world.restart_with("--cluster-cidr=10.0.0.0/8", false).await;
    sleep(MINUTES).await;
    assert_eq!((world.metric(HELD), world.routes().len()), (STRAYS as u64, NODES + STRAYS));
    assert!(world.line("brake").starts_with("[!]2 held, first: delete 10.9.0.0/24 to 10.0.0.0"));
    world.approve_all();
    sleep(MINUTES).await;
    assert_eq!((world.metric(HELD), world.routes().len()), (0, NODES));
    assert!(world.line("brake").starts_with("[+]"));
}

/// The remains of nodes that have registered again while nobody watched are removed if the network
/// is still the same.
#[tokio::test(start_paused = true)]
async fn routes_of_no_pod_cidr_go_by_themselves_while_the_network_is_the_same() {
    let mut world = cluster(false).await;
    for number in 200..203 {
        world.cloud.router().add(foreign(&cidr(number), &address(&name(1)).to_string()));
    }
    world.restart().await;
    sleep(MINUTES).await;
    assert_eq!((world.metric(HELD), world.routes().len()), (0, NODES + STRAYS));
}

#[tokio::test(start_paused = true)]
async fn another_name_or_uid_of_the_cluster_changes_no_route() {
    for records_owner in [true, false] {
        let mut world = cluster(records_owner).await;
        let uid = if records_owner { NODES } else { 0 };
        for (settings, lent) in [
            (["--cluster-name=another", "--cluster-name=kubernetes"], 0),
            (["--cluster-uid=another", "--cluster-uid=c-1"], uid),
        ] {
            nothing_changes(&mut world, settings, &[(HELD, 0), (LENT, lent)]).await;
        }
        let told = world.events(&name(7)).iter().any(|event| event.contains("check --cluster-uid"));
        assert_eq!(told, records_owner);
    }
}

/// The next leader does not find the data of the last one, and the last one may still lead.
#[tokio::test(start_paused = true)]
async fn another_lease_changes_no_route() {
    for records_owner in [true, false] {
        let mut world = cluster(records_owner).await;
        for (flag, right) in [("name", "route-ccm"), ("namespace", "kube-system")] {
            let [wrong, right] = ["another", right].map(|value| format!("{LEASE}-{flag}={value}"));
            nothing_changes(&mut world, [&wrong, &right], &[(HELD, 0)]).await;
        }
        let (mut former, program) = world.stand_by().await;
        former.take_over(program, None);
        let before = serves(&world);
        let writes = world.cloud.router().writes().len();
        sleep(NIGHT).await;
        assert_eq!(serves(&world), before);
        // Both use their own budget for a list that lacks nodes.
        world.delete_nodes(NODES / 2..NODES);
        sleep(MINUTES).await;
        let gone = before.0.len() - world.routes().len();
        assert!((3..=6).contains(&gone), "{gone}");
        assert_eq!(world.cloud.router().writes().len(), writes + gone);
    }
}

/// Nodes that a selector excludes keep their routes, however long that lasts. A node that is
/// deleted in that time loses its route.
#[tokio::test(start_paused = true)]
async fn a_wrong_node_selector_changes_no_route() {
    for records_owner in [true, false] {
        let mut world = cluster(records_owner).await;
        let settings = ["--node-selector=pool=none", "--node-selector="];
        nothing_changes(&mut world, settings, &[(HELD, NODES)]).await;
        world.restart_with("--node-selector=pool=none", false).await;
        world.delete_nodes([7]);
        sleep(MINUTES).await;
        assert_eq!(world.metric(HELD), NODES as u64 - 1);
        assert!(!world.routes().contains_key(&cidr(7)));
    }
}
