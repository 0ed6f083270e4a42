//! The page `/explain` about the pod CIDRs of nodes.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault as CloudFault},
};

use super::*;

/// The part of node-ipam on the page has these texts in its first three lines.
fn explains(replica: &Replica, name: &str, [fares, cause, mend]: [&str; 3]) -> String {
    let page = replica.process.explain("Node", name);
    let head = format!("Node {name}, node-ipam: ");
    let own = page.split("\n\n").find(|part| part.starts_with(&head));
    let own = own.unwrap_or_else(|| panic!("{page}"));
    let lines: Vec<&str> = own.lines().take(3).collect();
    let [first, second, third] = lines[..] else { panic!("{page}") };
    assert_eq!(first, format!("{head}{fares}"), "{page}");
    assert!(second.starts_with("cause:") && second.contains(cause), "{cause:?}: {page}");
    assert!(third.starts_with("mend:") && third.contains(mend), "{mend:?}: {page}");
    own.to_owned()
}

/// Creates a node that has this pod CIDR from the start.
fn with(world: &World, name: &str, cidr: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
    });
    world.api.create(node).unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_node_says_why_it_has_its_pod_cidrs_or_none() {
    let world = World::new();
    let arguments = [&SMALL[..], &[NO_ROUTES]].concat();
    let leader = world.lead(&arguments).await;
    sleep(Duration::from_secs(3)).await;
    with(&world, "outside", "10.99.1.0/24");
    let nodes = world.add_many(0..4);
    world.assigned(&nodes).await;
    with(&world, "twin", &world.cidrs(&nodes[1]));
    let last = world.add(5);
    sleep(Duration::from_secs(5)).await;
    let explains = |name: &str, lines| explains(&leader, name, lines);
    let fine = explains(
        &nodes[0],
        ["fine", "podCIDRs 10.64.0.0/24, inside of --cluster-cidr 10.64.0.0/22", "nothing has to"],
    );
    assert!(fine.contains("there:   4 of 4 blocks of 10.64.0.0/22 are taken"), "{fine}");
    let full = "10.64.0.0/22 has no free IPv4 block of /24: all 4 are taken";
    explains(&last, ["blocked", full, "set --cluster-cidr to a larger network"]);
    explains("outside", ["blocked", "10.99.1.0/24 is not in --cluster-cidr", "add its network"]);
    let shared = "overlaps 10.64.1.0/24 of node node-00001";
    explains("twin", ["blocked", shared, "delete one of the nodes"]);
    explains("nope", ["unknown", "does not show a node \"nope\"", "check the name"]);
    world.remove("twin");
    world.remove(&nodes[0]);
    sleep(Duration::from_secs(5)).await;
    let freed = explains(&last, ["blocked", "by 2 nodes that are gone", "set --cluster-cidr to a"]);
    assert!(freed.contains("next:    blocks of nodes that are gone become free at "), "{freed}");
    explains(
        &nodes[0],
        ["work is under way", "its blocks 10.64.0.0/24 are not given to another", "wait"],
    );
    world.assigned(std::slice::from_ref(&last)).await;
    explains(&last, ["fine", "podCIDRs 10.64.0.0/24", "nothing has to be done"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_under_way_or_refused_says_so() {
    let world = World::new();
    let arguments = [&LARGE[..], &[NO_ROUTES]].concat();
    let leader = world.lead(&arguments).await;
    sleep(Duration::from_secs(3)).await;
    let stalled = world.api.faults().add(World::fault(Action::Stall));
    let node = world.add(0);
    sleep(Duration::from_secs(1)).await;
    let written = ["work is under way", "podCIDRs 10.64.0.0/24 are being written", "wait"];
    explains(&leader, &node, written);
    world.api.faults().remove(stalled);
    for (code, lines) in [
        (403, ["blocked", "10.64.0.0/24 has failed: forbidden", "the right, or exempt it"]),
        (422, ["blocked", "10.64.0.0/24 has failed: rejected as invalid", "find what refuses it"]),
        (503, ["work is under way", "has failed: unavailable", "wait: it is tried again"]),
    ] {
        let refusal = Action::Status { code, retry_after: None };
        let fault = world.api.faults().add(World::fault(refusal));
        sleep(Duration::from_mins(10)).await;
        let page = explains(&leader, &node, lines);
        assert!(page.contains("next:    the write is repeated "), "{page}");
        world.api.faults().remove(fault);
    }
    world.assigned(std::slice::from_ref(&node)).await;
    explains(&leader, &node, ["fine", "podCIDRs 10.64.0.0/24", "nothing has to be done"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_says_for_what() {
    let world = World::new();
    let down = CloudFault::new(Effect::Unavailable).on(Operation::ListRoutes);
    let down = world.cloud.faults().add(down);
    let leader = world.lead(&LARGE).await;
    let node = world.add(0);
    sleep(Duration::from_mins(3)).await;
    let unlisted = ["work is under way", "before the first list of routes", "wait for the first"];
    explains(&leader, &node, unlisted);
    let page = leader.process.explain("Node", &node);
    let of_routes =
        "Node node-00000, routes: work is under way\ncause:   cannot list the routes: unavailable";
    assert!(page.contains(of_routes), "{page}");
    world.cloud.faults().remove(down);
    world.assigned(std::slice::from_ref(&node)).await;
    let standby = world.stand_by(&[&LARGE[..], &[NO_ROUTES]].concat(), None).await;
    world.api.faults().add(World::fault(Action::Stall));
    let other = world.add(7);
    sleep(Duration::from_secs(1)).await;
    explains(&standby, &other, ["unknown", "this replica does not lead", "ask the replica"]);
    explains(&standby, &node, ["fine", "podCIDRs 10.64.0.0/24; this replica does not", "nothing"]);
}

/// The parts of routes and node-ipam on the page fare alike.
fn fare_alike(replica: &Replica, name: &str, fares: &str) {
    let page = replica.process.explain("Node", name);
    for part in ["node-ipam", "routes"] {
        assert!(page.contains(&format!("Node {name}, {part}: {fares}\n")), "{fares}: {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_routes_of_a_node_without_pod_cidrs_fare_like_these() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(3)).await;
    let refusal = Action::Status { code: 403, retry_after: None };
    let refused = world.api.faults().add(World::fault(refusal));
    let node = world.add(0);
    sleep(Duration::from_mins(10)).await;
    fare_alike(&leader, &node, "blocked");
    world.api.faults().remove(refused);
    world.assigned(std::slice::from_ref(&node)).await;
    let world = World::new();
    let arguments = ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator"];
    let leader = world.lead(&[&arguments[..], &["--cluster-cidr=10.64.0.0/10"]].concat()).await;
    sleep(Duration::from_secs(3)).await;
    let node = world.add(0);
    for (kind, fares) in
        [(ErrorKind::Forbidden, "blocked"), (ErrorKind::Timeout, "work is under way")]
    {
        let error = CloudError::new(kind, "no");
        let fault = CloudFault::new(Effect::Error(error)).on(Operation::Lookup);
        let fault = world.cloud.faults().add(fault);
        sleep(Duration::from_mins(10)).await;
        fare_alike(&leader, &node, fares);
        world.cloud.faults().remove(fault);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_says_what_it_would_do() {
    let world = World::new();
    let observer = world.lead(&[&LARGE[..], &["--mode=observe"]].concat()).await;
    let node = world.add(0);
    sleep(Duration::from_secs(5)).await;
    let promise = "--mode=observe does not write; the line decided says which step is due";
    let page = explains(&observer, &node, ["work is under way", promise, "or this one with"]);
    assert!(page.contains("decided: ") && page.contains("10.64.0.0/24"), "{page}");
    world.assign(&node, "10.64.0.0/24");
    sleep(Duration::from_secs(5)).await;
    let page = observer.process.explain("Node", &node);
    let of_routes = "routes: work is under way\ncause:   --mode=observe does not write; the line decided says which step is due\nmend:    the controller that leads does it, or this one with --mode=control\n";
    assert!(page.contains(of_routes), "{page}");
}

#[tokio::test(start_paused = true)]
async fn another_allocator_is_named() {
    let world = World::new();
    let leader = world.lead(&[&LARGE[..], &[NO_ROUTES]].concat()).await;
    sleep(Duration::from_secs(3)).await;
    let nodes = world.add_many(0..3);
    world.assigned(&nodes).await;
    world.assigned_by_another(&[(3, "10.64.4.0/24"), (4, "10.64.5.0/24")]).await;
    sleep(Duration::from_secs(1)).await;
    let stopped = "another allocator gives out the same blocks";
    let mend = "set --allocate-node-cidrs in one program only";
    let late = world.add(5);
    sleep(Duration::from_secs(1)).await;
    explains(&leader, &late, ["blocked", stopped, mend]);
}

#[tokio::test(start_paused = true)]
async fn what_the_cloud_decides_has_the_words_of_the_cloud() {
    let world = World::new();
    let arguments = ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", NO_ROUTES];
    let leader = world.lead(&arguments).await;
    let node = world.add(0);
    sleep(Duration::from_mins(1)).await;
    let words = "the cloud names no pod CIDR of instance node-00000";
    explains(&leader, &node, ["blocked", words, "assign it one, or set --cidr-allocator-type"]);
    let error = CloudError::new(ErrorKind::Forbidden, "not you").with_request_id("req-3");
    let error = CloudFault::new(Effect::Error(error)).on(Operation::Lookup);
    world.cloud.faults().add(error);
    sleep(Duration::from_mins(3)).await;
    let words = "cannot look up its instance: forbidden: not you (request req-3)";
    explains(&leader, &node, ["blocked", words, "give the cloud user the permission"]);
    let edge = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"},
        "spec": {"providerID": "kubeedge://edge"},
    });
    world.api.create(edge).unwrap();
    sleep(Duration::from_secs(5)).await;
    explains(&leader, "edge", ["not responsible", "provider ID kubeedge://edge", "nothing has"]);
}
