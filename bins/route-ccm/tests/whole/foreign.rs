//! Routes of others on the same router.

use std::time::Duration;

use ccm_cloud::{CloudError, ClusterId, ErrorKind, Owner};
use ccm_sim::{
    cloud::{
        Operation, SimCloud,
        routes::{RouteWriteKind, SimRoute},
    },
    faults::{Effect, Fault, Trouble},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::world::{World, address, cidr, foreign, instance, name, net, node};

/// A route that another cluster's controller has made for its node.
fn of_another_cluster(destination: &str, target: &str) -> SimRoute {
    let owner = Owner {
        cluster: ClusterId { name: "kubernetes".to_owned(), uid: "c-2".to_owned() },
        uid: "1".to_owned(),
        namespace: String::new(),
        name: name(0),
    };
    SimRoute { owner: Some(owner), ..foreign(destination, target) }
}

/// Five outside of our networks, five inside that others need, and one to nowhere.
fn add_others(cloud: &SimCloud) {
    let router = cloud.router();
    router.add_port("10.9.9.9".parse().unwrap());
    cloud.add(instance("other-9"));
    for outside in ["0.0.0.0/0", "10.0.0.0/8", "10.244.0.0/15", "192.168.0.0/24", "fd00::/8"] {
        router.add(foreign(outside, "10.9.9.9"));
    }
    router.add(foreign("10.244.200.0/24", "10.9.9.9"));
    router.add(foreign("10.244.201.0/24", &address("other-9").to_string()));
    router.add(SimRoute::foreign("drops", net("10.244.202.0/24"), None));
    router.add(of_another_cluster("10.244.203.0/24", "10.9.9.9"));
    // Even to one of our nodes: it is not ours.
    router.add(of_another_cluster("10.244.204.0/24", &address(&name(1)).to_string()));
    router.add(foreign("10.244.210.0/24", "10.9.9.10"));
}

#[tokio::test(start_paused = true)]
async fn foreign_routes_are_counted_and_never_touched() {
    let cloud = SimCloud::new();
    add_others(&cloud);
    let mut expected = World::start(&cloud, "c-0", &[]).await.routes();
    let mut world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    // Until the end of its target is proven, it is not touched; then it is in the way.
    sleep(Duration::from_secs(50)).await;
    assert_eq!(world.routes().len(), expected.len() + 3);
    for (kind, count) in [("ours", 3), ("foreign", 5), ("unknown", 1), ("other_networks", 5)] {
        assert_eq!(world.metric(&format!("ccm_route_routes{{kind=\"{kind}\"}}")), count, "{kind}");
    }
    world.until("it goes", |world| !world.routes().contains_key("10.244.210.0/24")).await;
    expected.remove("10.244.210.0/24");

    // What stands where a node needs its own is in the way until a person removes it.
    world.add(node("in-the-way", &["10.244.201.0/24"]));
    let why = world.shows("in-the-way", "True", "NoRouteCreated").await;
    assert!(why.contains("10.244.201.0/24") && why.contains("remove it"), "{why}");
    cloud.router().remove(net("10.244.201.0/24"));
    sleep(Duration::from_mins(10)).await;
    world.shows("in-the-way", "False", "RouteCreated").await;
    expected.insert("10.244.201.0/24".to_owned(), address("in-the-way").to_string());

    world.delete_nodes([2]);
    expected.extend([0, 1].map(|number| (cidr(number), address(&name(number)).to_string())));
    world.until("its route goes", |world| world.routes() == expected).await;
    cloud.router().reset_writes();
    sleep(Duration::from_hours(6)).await;
    world.restart().await;
    sleep(Duration::from_hours(6)).await;
    assert_eq!(world.routes(), expected);
    assert_eq!(cloud.router().writes(), [], "steady state");
    let lists = cloud.calls().routes.list;
    assert!(lists <= 75 + 5, "{lists} lists in twelve hours");
}

/// The cloud answers like that of another project: nothing exists, and that proves nothing.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_denies_our_nodes_proves_nothing() {
    for effect in [Effect::WrongProject, Effect::EmptyList, Effect::Unavailable, Effect::Hang] {
        let cloud = SimCloud::new();
        cloud.router().add_port("10.9.9.9".parse().unwrap());
        cloud.router().add(foreign("10.244.210.0/24", "10.9.9.9"));
        cloud.faults().add(Fault::new(effect.clone()).on(Operation::FindTargets));
        let world = World::start(&cloud, "c-1", &[]).await;
        world.add_nodes(0..3);
        world.reachable(0..3).await;
        sleep(Duration::from_hours(1)).await;
        assert_eq!(world.routes().len(), 4, "{effect:?}");
        assert_eq!(cloud.router().written(RouteWriteKind::Delete), 0, "{effect:?}");
        let calls = cloud.calls().routes.find_targets;
        assert!(calls <= 65, "{effect:?}: {calls} questions in an hour");
    }
}

/// Others write the table, so that what was decided on it is refused: it is listed at once.
#[tokio::test(start_paused = true)]
async fn a_write_of_others_delays_no_node() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.compares_version = true);
    let slow = Effect::LatencyBetween(Duration::from_millis(300), Duration::from_millis(300));
    cloud.faults().add(Fault::new(slow).on(Operation::ListRoutes));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    sleep(Duration::from_mins(1)).await;
    for number in 1..6 {
        cloud.router().add(foreign(&format!("10.244.{}.0/24", 200 + number), "10.9.9.9"));
        let (start, before) = (Instant::now(), cloud.calls().routes);
        world.add_nodes([number]);
        world.reachable([number]).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        let after = cloud.calls().routes;
        assert_eq!((after.apply - before.apply, after.list - before.list), (2, 1));
        assert_eq!(world.writes_to(&name(number)), 1);
        assert_eq!(world.events(&name(number)), [""; 0]);
        sleep(Duration::from_mins(1)).await;
    }
}

/// Others write the table all the time.
#[tokio::test(start_paused = true)]
async fn many_writes_of_others_keep_no_node_waiting() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.compares_version = true);
    let slow = Effect::LatencyBetween(Duration::from_millis(10), Duration::from_millis(30));
    cloud.faults().add(Fault::new(slow));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    let theirs = cloud.clone();
    let mut others = JoinSet::new();
    others.spawn(async move {
        for number in 0..1000 {
            let destination = format!("10.{}.{}.0/24", 10 + number / 250, number % 250);
            theirs.router().add(foreign(&destination, "10.9.9.9"));
            sleep(Duration::from_millis(150)).await;
        }
    });
    let start = Instant::now();
    world.add_nodes(1..20);
    world.reachable(1..20).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for number in 1..20 {
        assert_eq!(world.writes_to(&name(number)), 1, "{number}");
    }
}

/// A table that others write all the time is not listed all the time.
#[tokio::test(start_paused = true)]
async fn a_table_that_is_always_busy_is_listed_with_back_off() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.compares_version = true);
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    let busy = CloudError::new(ErrorKind::Busy, "the table is being changed");
    let fault = Effect::Routes(vec![name(1)], Trouble::Fail(busy));
    let fault = cloud.faults().add(Fault::new(fault).on(Operation::ApplyRoutes));
    let before = cloud.calls().routes;
    world.add_nodes([1]);
    sleep(Duration::from_hours(1)).await;
    let after = cloud.calls().routes;
    let (applies, lists) = (after.apply - before.apply, after.list - before.list);
    assert!((60..=150).contains(&applies) && lists <= 160, "{applies} calls, {lists} lists");
    cloud.faults().remove(fault);
    sleep(Duration::from_mins(1)).await;
    world.reachable([1]).await;
}

/// Two clusters write the same table, and the cloud refuses what was decided on an older version.
#[tokio::test(start_paused = true)]
async fn two_clusters_share_a_router() {
    const NODES: usize = 24;
    for records_owner in [true, false] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| {
            settings.traits.records_owner = records_owner;
            settings.traits.compares_version = true;
        });
        let slow = Effect::LatencyBetween(Duration::ZERO, Duration::from_millis(100));
        cloud.faults().add(Fault::new(slow));
        // Each takes the networks of both for its own.
        let cidrs = ["--cluster-cidr=10.244.0.0/15"];
        let ours = World::start(&cloud, "c-1", &cidrs).await;
        let theirs = World::start(&cloud, "c-2", &cidrs).await;
        for number in 0..NODES {
            ours.add_nodes([number]);
            theirs.add(node(&format!("other-{number}"), &[&format!("10.245.{number}.0/24")]));
            // In waves: what is decided on a table that others keep changing has to wait.
            if number % 6 == 5 {
                sleep(Duration::from_secs(4)).await;
            }
        }
        ours.reachable(0..NODES).await;
        for number in 0..NODES {
            theirs.shows(&format!("other-{number}"), "False", "RouteCreated").await;
        }
        sleep(Duration::from_hours(1)).await;
        let router = cloud.router();
        let (created, all) = (router.written(RouteWriteKind::Create), router.writes().len());
        assert_eq!((router.len(), created, all), (2 * NODES, 2 * NODES, 2 * NODES));
        // A conflict is no failure: no node was shown as unreachable.
        for number in 0..NODES {
            assert_eq!(ours.writes_to(&name(number)), 1, "{number}");
            assert_eq!(theirs.writes_to(&format!("other-{number}")), 1, "{number}");
            assert_eq!(ours.events(&name(number)), [""; 0], "{number}");
        }
        // One of the two clusters is torn down: its routes go, within its budget, and no other.
        cloud.router().reset_writes();
        for number in 0..3 {
            theirs.api.delete("nodes", &format!("other-{number}")).unwrap();
        }
        sleep(Duration::from_mins(1)).await;
        assert_eq!(router.len(), 2 * NODES - 3, "{:?}", router.writes());
        ours.reachable(0..NODES).await;
    }
}
