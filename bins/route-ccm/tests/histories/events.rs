//! What happens in a history.

use std::time::Duration;

use ccm_cloud::{CloudError, ClusterId, Cure, ErrorKind, Owner, RouteTarget};
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, PatchKind, Verb},
    cloud::{Operation, SimInstance, routes::SimRoute},
    faults::{Effect, Fault, Trouble},
};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    rules::Rules,
    truth::TrueNode,
    world::{CLUSTER, NODES, World, addresses, of_people, port},
};

const MARK: &str = "ToBeDeletedByClusterAutoscaler";

/// Lets one random thing happen.
pub(crate) async fn next(world: &mut World, rules: &mut Rules) {
    match world.dice.random_range(0..100) {
        0..20 => node(world),
        20..28 => replace_node(world),
        28..33 => incomplete_node(world),
        33..36 => odd_node(world),
        36..38 => lose_all_nodes(world),
        38..44 => (0..NODES).for_each(|number| world.add_node(number)),
        44..50 => lie(world),
        50..68 => fault(world),
        68..80 => person(world),
        80..84 => late_port(world),
        84..87 => deny(world),
        87..90 => stale_leader(world),
        90..92 => times(world),
        92..94 => crate::rival::toggle(world),
        94..97 => take_over(world, rules).await,
        _ => {
            world.restart().await;
            rules.restarted();
        }
    }
    // A list of the API server that is over.
    if world.truth.with(|memory| {
        memory.is_lying && memory.lied.is_some_and(|at| at.elapsed() > Duration::from_secs(90))
    }) {
        tell_the_truth(world);
    }
}

/// A standby takes over that has not seen the last changes of nodes.
async fn take_over(world: &mut World, rules: &mut Rules) {
    if world.truth.may_be_lied_to() {
        return;
    }
    let standby = world.stand_by().await;
    for _ in 0..world.dice.random_range(1..4) {
        if world.dice.random() {
            replace_node(world);
        } else {
            node(world);
        }
    }
    let seconds = world.dice.random_range(3..25);
    rules.watch(world, seconds).await;
    world.take_over(standby);
    rules.restarted();
}

/// A node goes, comes, moves to another address, or is marked.
fn node(world: &mut World) {
    let number = world.dice.random_range(0..NODES);
    let name = World::node_name(number);
    let Some(node) = world.api.get("nodes", &name) else { return world.add_node(number) };
    match world.dice.random_range(0..5) {
        0 | 1 => delete_node(world, &node),
        2 => mark(world, &node, true),
        3 => mark(world, &node, false),
        _ => {
            let Some(mut machine) = world.machine_of(&node) else { return };
            machine.addresses = world.free_addresses();
            world.cloud.add(machine.clone());
            set_addresses(world, &name, &machine);
        }
    }
}

/// Deletes a node, and most times its machine.
fn delete_node(world: &mut World, node: &Value) {
    if let Some(machine) = world.machine_of(node).filter(|_| world.dice.random_bool(0.8)) {
        world.cloud.remove(&machine.id);
    }
    let name = node["metadata"]["name"].as_str().unwrap();
    world.api.delete("nodes", name).unwrap();
}

fn mark(world: &World, node: &Value, is_marked: bool) {
    let name = node["metadata"]["name"].as_str().unwrap();
    let taints = is_marked.then(|| json!([{"key": MARK, "effect": "NoSchedule"}]));
    world
        .api
        .patch("nodes", name, "", PatchKind::Merge, json!({"spec": {"taints": taints}}))
        .unwrap();
    let now = crate::truth::nodes(&world.api).into_iter().find(|node| node.name == name);
    world.truth.with(|memory| {
        for target in now.iter().flat_map(TrueNode::targets) {
            memory.targets.insert(target, (Instant::now(), is_marked));
        }
    });
}

pub(crate) fn set_addresses(world: &World, name: &str, machine: &SimInstance) {
    let status = json!({"status": {"addresses": addresses(machine)}});
    world.api.patch("nodes", name, "status", PatchKind::Merge, status).unwrap();
}

/// A node comes back under the same name with another machine, and perhaps another pod CIDR.
fn replace_node(world: &mut World) {
    let number = world.dice.random_range(0..NODES);
    if let Some(node) = world.api.get("nodes", &World::node_name(number)) {
        delete_node(world, &node);
    }
    let free = (0..NODES + 6).filter(|cidr| {
        let cidr = &world.cidrs(*cidr)[0];
        let has = |node: &Value| node["spec"]["podCIDRs"].to_string().contains(&**cidr);
        !world.api.list("nodes").iter().any(has)
    });
    let free: Vec<u8> = free.collect();
    let cidr = free[world.dice.random_range(0..free.len())];
    world.add_node_with(number, cidr);
}

/// A node gets provider ID, addresses or pod CIDR after its registration.
fn incomplete_node(world: &mut World) {
    let incomplete = world.api.list("nodes").into_iter().find(|node| {
        node["spec"]["podCIDRs"].is_null()
            || node["spec"]["providerID"].is_null()
            || node["status"]["addresses"].is_null()
    });
    if let Some(node) = incomplete {
        let name = node["metadata"]["name"].as_str().unwrap();
        let machine = world.cloud.find(name).unwrap_or_else(|| world.add_machine(name));
        let number = name.trim_start_matches("node-").parse().unwrap();
        let spec = json!({"spec": {"providerID": machine.provider_id().to_string(), "podCIDRs": world.cidrs(number)}});
        // What it has cannot be changed.
        world.api.patch("nodes", name, "", PatchKind::Merge, spec).ok();
        set_addresses(world, name, &machine);
        return;
    }
    let number = world.dice.random_range(0..NODES);
    let name = World::node_name(number);
    if world.api.get("nodes", &name).is_some() {
        return;
    }
    let machine = world.add_machine(&name);
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}});
    if world.dice.random() {
        node["spec"]["podCIDRs"] = json!(world.cidrs(number));
    }
    if world.dice.random() {
        node["spec"]["providerID"] = json!(machine.provider_id().to_string());
    }
    if world.dice.random() {
        node["status"]["addresses"] = addresses(&machine);
    }
    world.register(node);
}

/// A node with the pod CIDR of another one, with a part of it, or with one outside.
fn odd_node(world: &mut World) {
    let number = world.dice.random_range(0..NODES);
    let name = World::node_name(number);
    if let Some(node) = world.api.get("nodes", &name) {
        return delete_node(world, &node);
    }
    let other = world.dice.random_range(0..NODES);
    let cidr = match world.dice.random_range(0..3) {
        0 => format!("10.120.{other}.0/24"),
        1 => format!("10.120.{other}.128/25"),
        _ => format!("10.99.{other}.0/24"),
    };
    let machine = world.add_machine(&name);
    world.register(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"providerID": machine.provider_id().to_string(), "podCIDRs": [cidr]},
        "status": {"addresses": addresses(&machine)},
    }));
}

fn lose_all_nodes(world: &World) {
    for node in world.api.list("nodes") {
        world.api.delete("nodes", node["metadata"]["name"].as_str().unwrap()).unwrap();
    }
}

/// The API server shows no node, or some, until it is asked again.
fn lie(world: &mut World) {
    if world.truth.with(|memory| memory.is_lying) {
        return tell_the_truth(world);
    }
    let count =
        if world.dice.random() { 0 } else { world.dice.random_range(1..usize::from(NODES)) };
    world
        .api
        .faults()
        .add(ApiFault::new(Action::ShortList(count)).verb(Verb::List).resource("nodes"));
    world.truth.with(|memory| (memory.is_lying, memory.lied) = (true, Some(Instant::now())));
    list_again(world);
}

/// All nodes are shown again.
pub(crate) fn tell_the_truth(world: &World) {
    world.api.faults().clear();
    world.truth.with(|memory| {
        if std::mem::take(&mut memory.is_lying) {
            memory.lied = Some(Instant::now());
        }
    });
    list_again(world);
}

/// The watch of nodes breaks, and cannot be continued.
fn list_again(world: &World) {
    let expired =
        ApiFault::new(Action::WatchError { code: 410 }).verb(Verb::Watch).resource("nodes");
    world.api.faults().add(expired.times(1));
    world.api.cut_watches("route-ccm", true);
}

fn fault(world: &mut World) {
    let operation = [Operation::ApplyRoutes, Operation::ListRoutes, Operation::FindTargets]
        [world.dice.random_range(0..5usize) / 2];
    let number = world.dice.random_range(0..NODES);
    let names = vec![World::node_name(number), world.cidrs(number)[0].clone()];
    let one = |trouble| Effect::Routes(names.clone(), trouble);
    let error = |kind| CloudError::new(kind, "the cloud says no");
    let mut late = false;
    let effect = match world.dice.random_range(0..14) {
        0 => Effect::Unavailable,
        1 => Effect::Throttle { retry_after: Some(Duration::from_secs(3)) },
        2 => Effect::Hang,
        3 => Effect::EmptyList,
        4 => Effect::TruncatedList(world.dice.random_range(0..20)),
        5 => one(Trouble::Hang),
        6 => one(Trouble::LoseAnswer),
        7 => {
            late = true;
            one(Trouble::Late(Duration::from_secs(45)))
        }
        8 => one(Trouble::Break(Cure::Ensure)),
        9 => one(Trouble::Fail(error(ErrorKind::Invalid))),
        10 => one(Trouble::Malformed),
        11 => Effect::Error(error(ErrorKind::QuotaExceeded)),
        12 => Effect::LatencyBetween(Duration::from_millis(100), Duration::from_secs(20)),
        _ => Effect::Routes(Vec::new(), Trouble::LoseAnswer),
    };
    // The program cannot know of late writes. A route that a list hides does not make a network available.
    if late {
        world.truth.with(|memory| memory.late = Some(Instant::now() + Duration::from_secs(60)));
    }
    let lasting = Duration::from_secs(world.dice.random_range(1..60));
    world.cloud.faults().add(Fault::new(effect).on(operation).lasting(lasting));
}

/// A person changes, doubles or deletes a route of ours, or makes a route of their own.
fn person(world: &mut World) {
    let ours = world.only_ours();
    let settings = world.cloud.router().settings();
    world.made += 1;
    let id = format!("of-people-{}", world.made);
    if ours.is_empty() || world.dice.random_bool(0.2) {
        let last = world.dice.random();
        world.cloud.router().add_port(port(last));
        let target = RouteTarget::Address(port(last));
        return world.add_foreign(SimRoute::foreign(id, of_people(world.made), target));
    }
    let route = ours[world.dice.random_range(0..ours.len())].clone();
    let other = ours[world.dice.random_range(0..ours.len())].target.clone();
    let destination = route.destination;
    world.truth.with(|memory| memory.touched.insert(destination.trunc(), Instant::now()));
    match world.dice.random_range(0..4) {
        0 => drop(world.cloud.router().remove(destination)),
        1 => drop(world.cloud.router().update(destination, |route| route.target = other)),
        2 if !settings.traits.records_owner => {
            let last = world.dice.random();
            world.cloud.router().add_port(port(last));
            world.cloud.router().remove(destination);
            let target = RouteTarget::Address(port(last));
            world.add_foreign(SimRoute::foreign(id, destination, target));
        }
        _ => world.cloud.router().add(SimRoute { id, ..route }),
    }
}

/// A person makes a route to something that comes a little later.
fn late_port(world: &mut World) {
    world.made += 1;
    let (id, address) = (format!("early-{}", world.made), port(world.dice.random()));
    if world.exists(&RouteTarget::Address(address)) {
        return;
    }
    let destination = of_people(world.made);
    let route = SimRoute::foreign(id, destination, RouteTarget::Address(address));
    world.add_foreign(route);
    let (cloud, after) = (world.cloud.clone(), Duration::from_secs(world.dice.random_range(5..50)));
    world.later.spawn(async move {
        tokio::time::sleep(after).await;
        cloud.router().add_port(address);
    });
}

/// The cloud says for a while that nothing exists.
fn deny(world: &mut World) {
    let end = Instant::now() + Duration::from_secs(world.dice.random_range(30..300));
    world.truth.with(|memory| memory.denies_until = Some(end));
}

/// A leader of the past changes the table.
fn stale_leader(world: &mut World) {
    let ours = world.only_ours();
    if ours.is_empty() {
        return;
    }
    let route = ours[world.dice.random_range(0..ours.len())].clone();
    let destination = route.destination.trunc();
    world.truth.with(|memory| memory.touched.insert(destination, Instant::now()));
    if world.dice.random_bool(0.3) {
        world.cloud.router().remove(destination);
        return;
    }
    // It knew another node, which is gone.
    world.made += 1;
    let records = world.cloud.router().settings().traits.records_owner;
    let owner = records.then(|| Owner {
        cluster: ClusterId { name: "kubernetes".to_owned(), uid: CLUSTER.to_owned() },
        uid: format!("stale-{}", world.made),
        namespace: String::new(),
        name: "node-gone".to_owned(),
    });
    let target = RouteTarget::Address(format!("10.7.0.{}", world.made % 250 + 1).parse().unwrap());
    let is_new = world.dice.random();
    let (id, destination) = if is_new {
        (format!("stale-{}", world.made), of_people(world.made + 20))
    } else {
        (route.id, destination)
    };
    if is_new && !world.cloud.router().to(destination).is_empty() {
        return;
    }
    if !is_new {
        world.cloud.router().remove(destination);
    }
    let mut stale = SimRoute::foreign(id, destination, target);
    stale.owner = owner;
    world.cloud.router().add(stale);
}

fn times(world: &mut World) {
    let create = Duration::from_secs(world.dice.random_range(0..10));
    world.cloud.router().configure(|settings| settings.create = create);
}
