//! What happens in a history.

use std::{net::Ipv4Addr, time::Duration};

use ccm_cloud::{CloudError, Cure, ErrorKind};
use ccm_sim::{
    apiserver::PatchKind,
    cloud::{Operation, balancers::Times},
    faults::{Effect, Fault, Trouble},
};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    rules::Rules,
    world::{NODES, SERVICES, World},
};

/// Lets one random thing happen.
pub(crate) async fn next(world: &mut World, rules: &mut Rules) {
    match world.dice.random_range(0..100) {
        0..30 => service(world),
        30..55 => node(world, rules),
        55..60 => lose_all_nodes(world),
        60..66 => (0..NODES).for_each(|number| world.add_node(number)),
        66..84 => fault(world),
        84..86 => stale_leader(world),
        86..92 => person(world, rules),
        92..96 => times(world),
        _ => {
            world.restart().await;
            rules.restarted();
        }
    }
}

fn service(world: &mut World) {
    let number = world.dice.random_range(0..SERVICES);
    let key = World::service_key(number);
    let Some(_) = world.service(number) else {
        world
            .api
            .create(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": format!("web-{number}"), "namespace": "default"},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080 + number}]},
            }))
            .unwrap();
        return;
    };
    let patch = |patch: Value| {
        // A Service that is being deleted may go at any time.
        world.api.patch("services", &key, "", PatchKind::Merge, patch).ok();
    };
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    match world.dice.clone().random_range(0..8) {
        0 | 1 => world.api.delete("services", &key).unwrap_or_default(),
        2 => patch(json!({"spec": {"type": "ClusterIP"}})),
        3 => patch(json!({"spec": {"type": "LoadBalancer"}})),
        4 => patch(json!({"metadata": {"annotations": {ranges: "10.0.0.0/8"}}})),
        5 => patch(json!({"metadata": {"annotations": {ranges: "nonsense"}}})),
        6 => patch(json!({"metadata": {"annotations": {ranges: null}}})),
        _ => patch(json!({"metadata": {"annotations": {"sim/floating": "true"}}})),
    }
    world.dice.random::<u32>();
}

fn node(world: &mut World, rules: &mut Rules) {
    let number = world.dice.random_range(0..NODES);
    let name = World::node_name(number);
    if world.api.get("nodes", &name).is_none() {
        return world.add_node(number);
    }
    match world.dice.random_range(0..3) {
        0 => world.api.delete("nodes", &name).unwrap_or_default(),
        1 => {
            let taint = json!({"spec": {"taints": [
                {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}});
            world.api.patch("nodes", &name, "", PatchKind::Merge, taint).unwrap();
            rules.marked(&name);
        }
        _ => {
            let none = json!({"spec": {"taints": null}});
            world.api.patch("nodes", &name, "", PatchKind::Merge, none).unwrap();
        }
    }
}

fn lose_all_nodes(world: &World) {
    for number in 0..NODES {
        world.api.delete("nodes", &World::node_name(number)).ok();
    }
}

fn fault(world: &mut World) {
    let operation = [
        Operation::EnsureLoadBalancers,
        Operation::SetMembers,
        Operation::DeleteLoadBalancers,
        Operation::ListLoadBalancers,
    ][world.dice.random_range(0..4)];
    let key = World::service_key(world.dice.random_range(0..SERVICES));
    let one = |trouble| Effect::LoadBalancers(vec![key.clone()], trouble);
    let error = |kind| CloudError::new(kind, "the cloud says no");
    let effect = match world.dice.random_range(0..9) {
        0 => Effect::Unavailable,
        1 => Effect::Throttle { retry_after: Some(Duration::from_secs(3)) },
        2 => Effect::Hang,
        3 => one(Trouble::Hang),
        4 => one(Trouble::LoseAnswer),
        5 => one(Trouble::Late(Duration::from_secs(45))),
        6 => one(Trouble::Break(Cure::Ensure)),
        7 => one(Trouble::Fail(error(ErrorKind::QuotaExceeded))),
        _ => Effect::Error(error(ErrorKind::NotFound)),
    };
    let lasting = Duration::from_secs(world.dice.random_range(1..60));
    world.cloud.faults().add(Fault::new(effect).on(operation).lasting(lasting));
}

/// A person changes or deletes a load balancer in the cloud.
fn person(world: &mut World, rules: &mut Rules) {
    let ours = world.ours();
    if ours.is_empty() {
        return;
    }
    let id = ours[world.dice.random_range(0..ours.len())].id.clone();
    rules.touched(&id);
    if world.dice.random_bool(0.5) {
        world.cloud.balancers().remove(&id);
    } else {
        let range = Ipv4Addr::new(203, 0, 113, 0);
        world.cloud.balancers().update(&id, |balancer| {
            balancer.configuration.source_ranges = vec![format!("{range}/24").parse().unwrap()];
        });
    }
}

/// A leader of the past, whose writes the cloud does not refuse, creates a load balancer: a second
/// one for a Service, or one for a Service that is gone.
fn stale_leader(world: &mut World) {
    let ours = world.ours();
    if ours.is_empty() {
        return;
    }
    let mut made = ours[world.dice.random_range(0..ours.len())].clone();
    let number = world.dice.random_range(0..u8::MAX);
    made.id = format!("stale-{number}");
    made.addresses = vec![Ipv4Addr::new(198, 51, 100, number).into()];
    made.created = Instant::now();
    if world.dice.random_bool(0.5) {
        made.owners.iter_mut().for_each(|owner| owner.uid = "gone".to_owned());
    }
    world.cloud.balancers().add(made);
}

fn times(world: &mut World) {
    let mut some = || Duration::from_secs(world.dice.random_range(0..20));
    let times = Times { create: some(), configure: some(), members: some(), delete: some() };
    world.cloud.balancers().configure(|settings| settings.times = times);
}
