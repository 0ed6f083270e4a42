//! The page `/explain` about nodes and routes.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, SimCloud},
    faults::{Effect, Fault, Trouble},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, cidr, foreign, name, node};

/// The page has these parts in its first three lines: how it fares, the cause and the fix.
fn says(page: &str, [fares, cause, mend]: [&str; 3]) {
    let lines: Vec<&str> = page.lines().take(3).collect();
    let [first, second, third] = lines[..] else { panic!("{page}") };
    assert!(first.ends_with(&format!(": {fares}")), "{fares:?}: {page}");
    assert!(second.starts_with("cause:") && second.contains(cause), "{cause:?}: {page}");
    assert!(third.starts_with("mend:") && third.contains(mend), "{mend:?}: {page}");
}

fn explains(world: &World, kind: &str, name: &str, lines: [&str; 3]) -> String {
    let page = world.running().explain(kind, name);
    says(&page, lines);
    page
}

fn without(mut node: Value, section: &str, field: &str) -> Value {
    node[section][field] = Value::Null;
    node
}

/// Refuses the routes of these nodes.
fn refuse(cloud: &SimCloud, names: &[usize], error: CloudError) {
    let names = names.iter().map(|number| name(*number)).collect();
    let fails = Effect::Routes(names, Trouble::Fail(error));
    cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes));
}

#[tokio::test(start_paused = true)]
async fn each_node_says_why_its_route_is_there_or_not() {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| settings.traits.target_ids = true);
    let world = World::start(&cloud, "c-1", &["--node-selector=!edge"]).await;
    let error = |kind, text: &str| CloudError::new(kind, text).with_request_id("req-7");
    refuse(&cloud, &[6], error(ErrorKind::QuotaExceeded, "60 routes are too many"));
    refuse(&cloud, &[7], error(ErrorKind::Forbidden, "the role reader may not"));
    cloud.router().add_port("10.9.9.9".parse().unwrap());
    cloud.router().add(foreign(&cidr(8), "10.9.9.9"));
    world.add_nodes([1, 6, 7, 8]);
    world.add(without(without(node(&name(2), &[]), "spec", "podCIDR"), "spec", "podCIDRs"));
    world.add(without(node(&name(3), &[&cidr(3)]), "status", "addresses"));
    let mut new = without(node(&name(4), &[&cidr(4)]), "spec", "providerID");
    new["spec"]["taints"] = json!([{
        "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule",
    }]);
    world.add(new);
    let mut edge = node("edge-5", &[&cidr(5)]);
    edge["spec"]["providerID"] = json!("kubeedge://edge-5");
    world.api.create(edge).unwrap();
    let mut labelled = node(&name(9), &[&cidr(9)]);
    labelled["metadata"]["labels"] = json!({"edge": "yes"});
    world.add(labelled);
    world.add(node(&name(10), &["10.99.1.0/24"]));
    world.reachable([1]).await;
    sleep(Duration::from_mins(4)).await;
    let explains = |name: &str, lines| explains(&world, "Node", name, lines);
    let fine = explains(
        &name(1),
        ["fine", "the route of 10.244.1.0/24 to 10.0.0.1 is there, by the list", "nothing has to"],
    );
    assert!(fine.contains("condition NetworkUnavailable=False"), "{fine}");
    explains(&name(2), ["blocked", "the node has no podCIDRs", "set --allocate-node-cidrs=true"]);
    explains(&name(3), ["blocked", "no InternalIP of family IPv4", "node-ccm sets the addresses"]);
    explains(&name(4), ["work is under way", "no provider ID", "node-ccm sets spec.providerID"]);
    explains("edge-5", ["not responsible", "provider ID kubeedge://edge-5", "nothing has to"]);
    let refused = explains(
        &name(6),
        ["blocked", "quota_exceeded: 60 routes are too many (request req-7)", "raise the quota"],
    );
    assert!(refused.contains("next:    it is tried again at "), "{refused}");
    explains(&name(7), ["blocked", "forbidden: the role reader", "give the cloud user the perm"]);
    explains(&name(8), ["blocked", "there is a route of 10.244.8.0/24 to 10.9.9.9", "remove it"]);
    explains(&name(9), ["not responsible", "--node-selector does not", "nothing has to"]);
    explains(&name(10), ["blocked", "not inside --cluster-cidr", "extend --cluster-cidr"]);
    explains("nope", ["unknown", "the API server does not show a node \"nope\"", "check the name"]);
}

#[tokio::test(start_paused = true)]
async fn each_route_says_whose_it_is_and_what_is_decided() {
    let cloud = SimCloud::new();
    let router = cloud.router();
    router.add_port("10.9.9.9".parse().unwrap());
    router.add(foreign("192.168.0.0/24", "10.9.9.9"));
    router.add(foreign("10.244.210.0/24", "10.9.9.10"));
    let world = World::start(&cloud, "c-1", &[]).await;
    refuse(&cloud, &[2], CloudError::new(ErrorKind::QuotaExceeded, "no more"));
    world.add_nodes([1, 2]);
    world.reachable([1]).await;
    sleep(Duration::from_secs(30)).await;
    let explains = |name: &str, lines| explains(&world, "Route", name, lines);
    let fine = explains(&cidr(1), ["fine", "the route of 10.244.1.0/24", "nothing has to"]);
    assert!(fine.contains("this cluster's: its target is node node-01"), "{fine}");
    let refused = explains(&cidr(2), ["blocked", "quota_exceeded: no more", "raise the quota"]);
    assert!(refused.contains("decided: create"), "{refused}");
    explains("192.168.0.0/24", ["not responsible", "not inside --cluster-cidr", "nothing has to"]);
    explains("10.244.210.0/24", ["work is under way", "asking the cloud if", "wait: if"]);
    explains("10.244.77.0/24", ["unknown", "there is no route of 10.244.77.0/24", "check the"]);
    explains(
        "node-01",
        ["unknown", "\"node-01\" is not a CIDR", "use kind=Route&name=10.244.1.0/24"],
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_brake_holds_says_how_it_is_let_go() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-loss=3"]).await;
    for number in 1..10 {
        let mut node = node(&name(number), &[&cidr(number)]);
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name(number)});
        world.add(node);
    }
    world.reachable(1..10).await;
    world.delete_nodes(1..9);
    world.until("three routes are gone", |world| world.routes().len() == 6).await;
    sleep(Duration::from_secs(5)).await;
    let held = [
        "held",
        "as many routes have gone as --route-loss allows",
        "kubectl -n kube-system annotate lease route-ccm --overwrite 'quartet.dev/approved-selector=kubernetes.io/hostname=node-08' \"quartet.dev/approved-until=$(date -u -d '+10 minutes' +%FT%TZ)\"",
    ];
    let page = explains(&world, "Node", &name(8), held);
    assert!(page.contains("next:    the budget may allow it at "), "{page}");
    let page = explains(&world, "Route", &cidr(8), held);
    assert!(page.contains("decided: delete"), "{page}");
    explains(&world, "Node", &name(9), ["fine", "10.244.9.0/24", "nothing has to be done"]);
    // It is as the page says.
    world
        .running()
        .annotate_lease("quartet.dev/approved-selector", Some("kubernetes.io/hostname=node-08"));
    let until = ccm_base::clock::wall() + Duration::from_mins(10);
    world.running().annotate_lease("quartet.dev/approved-until", Some(&until.to_string()));
    world.until("another one is gone", |world| !world.routes().contains_key(&cidr(8))).await;
    explains(
        &world,
        "Node",
        &name(8),
        ["unknown", "not show a node \"node-08\"", "check the name"],
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_list_the_page_says_why() {
    let cloud = SimCloud::new();
    let down = Fault::new(Effect::Hang).on(Operation::ListRoutes);
    let hangs = cloud.faults().add(down.times(1));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([1]);
    sleep(Duration::from_secs(5)).await;
    let lines = ["work is under way", "the routes are not listed yet", "wait for the first list"];
    explains(&world, "Node", &name(1), lines);
    explains(&world, "Route", &cidr(1), lines);
    let error = CloudError::new(ErrorKind::Unauthorized, "the token is over");
    let error = Effect::Error(error.with_request_id("req-9"));
    let fails = cloud.faults().add(Fault::new(error).on(Operation::ListRoutes));
    cloud.faults().remove(hangs);
    sleep(Duration::from_mins(2)).await;
    let lines = ["blocked", "cannot list the routes: unauthorized: the token", "renew the cred"];
    let page = explains(&world, "Node", &name(1), lines);
    assert!(
        page.contains("(request req-9)") && page.contains("next:    the cloud's routes are listed"),
        "{page}"
    );
    let (standby, _program) = world.stand_by().await;
    says(
        &standby.explain("Node", &name(1)),
        ["unknown", "this replica does not lead", "ask the replica that leads"],
    );
    cloud.faults().remove(fails);
    sleep(Duration::from_mins(1)).await;
    world.reachable([1]).await;
    explains(&world, "Node", &name(1), ["fine", "10.244.1.0/24", "nothing has to be done"]);
}
