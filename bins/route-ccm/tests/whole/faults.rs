//! A cloud that is full, lies, or fails; nodes that vanish.

use std::time::Duration;

use ccm_sim::{
    apiserver::{Action, Fault as ServerFault, Verb},
    cloud::{Operation, SimCloud, SimInstance, routes::RouteWriteKind},
    faults::{Effect, Fault, Trouble},
};
use tokio::time::{Instant, sleep};

use crate::world::{World, cidr, name, net, node};

/// The calls that hang have as many routes as may be under way at once.
#[tokio::test(start_paused = true)]
async fn calls_that_hang_hold_up_no_other() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--cluster-cidr=10.64.0.0/10"]).await;
    cloud.faults().add(Fault::new(Effect::Hang).on(Operation::ApplyRoutes).times(2));
    let add = |number: usize| {
        let instance = SimInstance::numbered(number);
        let (name, address) = (instance.name.clone(), instance.addresses[0].address.clone());
        let mut node = node(&name, &[&format!("10.{}.{}.0/24", 64 + number / 256, number % 256)]);
        node["spec"]["providerID"] = instance.provider_id().as_str().into();
        node["status"]["addresses"][0]["address"] = address.into();
        cloud.add(instance);
        world.api.create(node).unwrap();
        name
    };
    (0..1000).for_each(|number| drop(add(number)));
    sleep(Duration::from_secs(3)).await;
    let (start, late) = (Instant::now(), add(1000));
    world.shows(&late, "False", "RouteCreated").await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!((world.routes().len(), world.writes_to(&late)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_full_table_takes_what_fits() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.quota = Some(5));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..7);
    sleep(Duration::from_mins(1)).await;
    let mut full = Vec::new();
    for number in 0..7 {
        let [status, _, why] = world.condition(&name(number)).unwrap();
        if status == "True" {
            assert!(why.contains("no room"), "{why}");
            full.push(number);
        }
    }
    assert_eq!((full.len(), world.routes().len()), (2, 5));
    // A table that is full is not asked again until a list shows room.
    let before = cloud.calls().routes;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(cloud.calls().routes.apply, before.apply);
    cloud.router().configure(|settings| settings.quota = Some(20));
    sleep(Duration::from_secs(90)).await;
    world.reachable(0..7).await;
    // Without the cloud's word for its room, its refusal is the word.
    cloud.router().configure(|settings| settings.quota = Some(7));
    world.add_nodes([7]);
    let why = world.shows(&name(7), "True", "NoRouteCreated").await;
    assert!(why.contains("quota") || why.contains("no room"), "{why}");
    // A route that goes makes room at once.
    let begun = Instant::now();
    world.delete_nodes([6]);
    world.reachable([7]).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Lists that are empty although the table is not, and lists that fail or end early.
#[tokio::test(start_paused = true)]
async fn a_list_that_lies_changes_nothing() {
    for effect in [Effect::EmptyList, Effect::TruncatedList(2), Effect::Unavailable] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| settings.traits.records_owner = true);
        let world = World::start(&cloud, "c-1", &[]).await;
        world.add_nodes(0..6);
        world.reachable(0..6).await;
        cloud.router().reset_writes();
        let fault = cloud.faults().add(Fault::new(effect.clone()).on(Operation::ListRoutes));
        sleep(Duration::from_mins(25)).await;
        // What is known is enough for a new node.
        world.add_nodes([6]);
        world.reachable([6]).await;
        cloud.faults().remove(fault);
        sleep(Duration::from_mins(25)).await;
        assert_eq!(world.routes().len(), 7, "{effect:?}");
        assert_eq!(cloud.router().writes().len(), 1, "{effect:?}: one for the new node");
        for number in 0..7 {
            assert_eq!(world.writes_to(&name(number)), 1, "{effect:?}: {number}");
        }
    }
}

/// A shorter period holds at once, and not after the longer one.
#[tokio::test(start_paused = true)]
async fn a_shorter_period_needs_no_restart() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-reconciliation-period=24h"]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    cloud.router().remove(net(&cidr(1)));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.routes().len(), 2, "nothing has looked yet");
    world.configure(|settings| settings.route_reconciliation_period = Duration::from_mins(10));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.routes().len(), 3);
    let lists = cloud.calls().routes.list;
    sleep(Duration::from_hours(1)).await;
    let lists = cloud.calls().routes.list - lists;
    assert!((5..=6).contains(&lists), "{lists} in an hour");
}

/// Answers are lost, or the write is carried out later, as by a process that was frozen.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_nothing_twice() {
    for trouble in [Trouble::LoseAnswer, Trouble::Late(Duration::from_secs(7))] {
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| settings.traits.replaces = true);
        let world = World::start(&cloud, "c-1", &["--cloud-call-timeout=2s"]).await;
        let lost = Effect::Routes(vec![name(1), name(2)], trouble.clone());
        cloud.faults().add(Fault::new(lost).on(Operation::ApplyRoutes).times(2));
        world.add_nodes(0..4);
        world.reachable(0..4).await;
        sleep(Duration::from_mins(10)).await;
        assert_eq!(cloud.router().written(RouteWriteKind::Create), 4, "{trouble:?}");
        let calls = cloud.calls().routes;
        assert!(calls.list <= 5, "{trouble:?}: {calls:?}");
    }
}

/// All nodes vanish while the leader watches, or while the API server cannot be read.
#[tokio::test(start_paused = true)]
async fn nodes_that_vanish_keep_their_routes() {
    let cloud = SimCloud::new();
    let mut world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..12);
    world.reachable(0..12).await;
    let refused = Action::Status { code: 500, retry_after: None };
    let fault = ServerFault::new(refused).verb(Verb::List).verb(Verb::Watch).resource("nodes");
    let fault = world.api.faults().add(fault);
    world.api.cut_watches("", true);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.routes().len(), 12, "what cannot be read is not gone");
    world.api.faults().remove(fault);
    sleep(Duration::from_mins(5)).await;

    world.delete_nodes(0..12);
    sleep(Duration::from_hours(1)).await;
    let left = world.routes().len();
    assert!(left >= 9, "{left} of 12 routes are left");
    world.restart().await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.routes().len(), left, "the next leader sees no node either");
}

/// Their instances vanish from the cloud, and not the nodes.
#[tokio::test(start_paused = true)]
async fn instances_that_vanish_cost_no_route() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..12);
    world.reachable(0..12).await;
    cloud.clear();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(world.routes().len(), 12);
}

/// The watch of a standby is silent: it does not show a new node. As the leader, the standby reads
/// the nodes before it plans routes.
#[tokio::test(start_paused = true)]
async fn the_route_of_a_node_that_the_standby_did_not_see_stays() {
    let agent = "route-ccm/standby";
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.records_owner = true);
    let mut world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..5);
    world.reachable(0..5).await;
    let standby = world.stand_by().await;
    sleep(Duration::from_mins(1)).await;
    let silent = ServerFault::new(Action::SilentWatch).verb(Verb::Watch).resource("nodes");
    world.api.faults().add(silent.user_agent(agent).times(1));
    world.api.cut_watches(agent, false);
    sleep(Duration::from_secs(2)).await;
    world.add_nodes(5..6);
    world.reachable(5..6).await;
    world.take_over(standby);
    for second in 0..60 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.routes().len(), 6, "after {second} s");
    }
}
