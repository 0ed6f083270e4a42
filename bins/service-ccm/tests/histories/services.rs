//! Random changes of Services by users.

use ccm_objects::service_keys::SOURCE_RANGES;
use ccm_sim::apiserver::PatchKind;
use rand::{Rng as _, seq::IndexedRandom as _};
use serde_json::{Value, json};

use crate::{
    neighbours::THEIRS,
    world::{OURS, SERVICES, World},
};

/// The labels of the nodes that may be members, if the provider needs labels.
pub(crate) const SELECTOR: &str = "sim/node-selector";

/// One random change of a Service.
pub(crate) fn next(world: &mut World) {
    let number = world.dice.random_range(0..SERVICES);
    let Some(service) = world.service(number) else { return create(world, number) };
    let is_external = service["spec"]["type"] == "LoadBalancer";
    match world.dice.random_range(0..24) {
        0..3 => world.api.delete("services", &World::service_key(number)).unwrap_or_default(),
        3 | 4 => become_internal(world, number),
        5 | 6 => become_external(world, number, &service),
        7 => annotate(world, number, json!({SOURCE_RANGES: "10.0.0.0/8"})),
        8 => annotate(world, number, json!({SOURCE_RANGES: "nonsense"})),
        9 => annotate(world, number, json!({SOURCE_RANGES: null})),
        10 => annotate(world, number, json!({"sim/floating": "true"})),
        11 => annotate(world, number, json!({"sim/floating": null})),
        12 | 13 => ports(world, number),
        14 if is_external => traffic(world, number),
        15 if is_external => families(world, number),
        16 => affinity(world, number),
        17 if is_external => address(world, number),
        18 => class(world, number),
        19 => elsewhere(world, number, &service),
        20 => take_all_away(world, number, &service),
        21 => annotate(world, number, json!({SELECTOR: "pool=blue"})),
        22 => annotate(world, number, json!({SELECTOR: null})),
        _ => annotate(world, number, json!({"sim/note": "of a user"})),
    }
}

/// Ignores errors: a Service that is being deleted may go at any time, and some changes are invalid.
fn patch(world: &World, number: usize, patch: Value) {
    let key = World::service_key(number);
    world.api.patch("services", &key, "", PatchKind::Merge, patch).ok();
}

fn annotate(world: &World, number: usize, annotations: Value) {
    patch(world, number, json!({"metadata": {"annotations": annotations}}));
}

fn some_class(world: &mut World) -> Value {
    [Value::Null, Value::Null, json!(OURS), json!(THEIRS)][world.dice.random_range(0..4)].clone()
}

fn create(world: &mut World, number: usize) {
    let mut spec = json!({"type": "LoadBalancer", "ports": some_ports(world, number)});
    if world.dice.random_bool(0.4) {
        spec["loadBalancerClass"] = some_class(world);
    }
    if world.dice.random_bool(0.15) {
        spec["loadBalancerIP"] = some_address(world, number);
    }
    if world.addresses.v6 && world.dice.random_bool(0.3) {
        spec["ipFamilies"] = json!(["IPv6"]);
    }
    if world.dice.random_bool(0.2) {
        spec["externalTrafficPolicy"] = json!("Local");
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("web-{number}"), "namespace": "default"}, "spec": spec,
    });
    world.api.create(service).unwrap();
}

/// Like the real API server, this removes the class together with the type.
fn become_internal(world: &mut World, number: usize) {
    let kind = ["ClusterIP", "NodePort"].choose(&mut world.dice).unwrap();
    patch(world, number, json!({"spec": {"type": kind, "loadBalancerClass": null}}));
}

fn become_external(world: &mut World, number: usize, service: &Value) {
    let mut spec = json!({"type": "LoadBalancer"});
    if service["spec"]["type"] != "LoadBalancer" {
        spec["loadBalancerClass"] = some_class(world);
    }
    patch(world, number, json!({"spec": spec}));
}

/// Changes the class in two writes with nothing between them.
fn class(world: &mut World, number: usize) {
    become_internal(world, number);
    let class = some_class(world);
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": class});
    patch(world, number, json!({"spec": spec}));
}

/// Ports with names, and node ports that no other Service has.
fn some_ports(world: &mut World, number: usize) -> Value {
    let sets: [&[(u16, &str)]; 5] = [
        &[(80, "TCP")],
        &[(80, "TCP"), (443, "TCP")],
        &[(8080, "TCP")],
        &[(53, "TCP"), (53, "UDP")],
        &[(80, "UDP")],
    ];
    let set = sets[world.dice.random_range(0..sets.len())];
    let first = 30_100 + 40 * number + world.dice.random_range(0..2) * 10;
    let port = |(at, (port, protocol)): (usize, &(u16, &str))| json!({"name": format!("p{at}"), "port": port, "protocol": protocol, "nodePort": first + at});
    set.iter().enumerate().map(port).collect()
}

fn ports(world: &mut World, number: usize) {
    let ports = some_ports(world, number);
    patch(world, number, json!({"spec": {"ports": ports}}));
}

fn traffic(world: &mut World, number: usize) {
    let policy = ["Local", "Cluster"].choose(&mut world.dice).unwrap();
    patch(world, number, json!({"spec": {"externalTrafficPolicy": policy}}));
}

fn families(world: &mut World, number: usize) {
    let policy = ["SingleStack", "PreferDualStack"].choose(&mut world.dice).unwrap();
    patch(world, number, json!({"spec": {"ipFamilyPolicy": policy}}));
}

fn affinity(world: &mut World, number: usize) {
    let affinity = ["None", "ClientIP"].choose(&mut world.dice).unwrap();
    let seconds = (*affinity == "ClientIP").then(|| json!({"clientIP": {"timeoutSeconds": 600}}));
    let spec = json!({"sessionAffinity": affinity, "sessionAffinityConfig": seconds});
    patch(world, number, json!({"spec": spec}));
}

fn some_address(world: &mut World, number: usize) -> Value {
    let other = world.dice.random_range(0..SERVICES);
    [
        json!(format!("10.250.0.{number}")),
        // An address that another Service asks for as well.
        json!(format!("10.250.0.{other}")),
        json!("nonsense"),
        Value::Null,
    ][world.dice.random_range(0..4)]
    .clone()
}

fn address(world: &mut World, number: usize) {
    let address = some_address(world, number);
    patch(world, number, json!({"spec": {"loadBalancerIP": address}}));
}

fn elsewhere(world: &World, number: usize, service: &Value) {
    let is_set = !service["metadata"]["annotations"]["sim/elsewhere"].is_null();
    let reason = if is_set { Value::Null } else { json!("an appliance") };
    annotate(world, number, json!({"sim/elsewhere": reason}));
}

/// A person removes the finalizer and the type in one update.
fn take_all_away(world: &mut World, number: usize, service: &Value) {
    if world.neighbours.has(service) {
        return;
    }
    let uid = service["metadata"]["uid"].as_str().unwrap().to_owned();
    world.persons.release(uid);
    let spec = json!({"type": "ClusterIP", "loadBalancerClass": null});
    patch(world, number, json!({"metadata": {"finalizers": null}, "spec": spec}));
}
