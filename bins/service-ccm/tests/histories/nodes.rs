//! Random changes of nodes.

use ccm_base::clock;
use ccm_objects::{instance_gone, service_keys::EXCLUDE_NODE};
use ccm_sim::apiserver::PatchKind;
use rand::Rng as _;
use serde_json::{Value, json};

use crate::{
    rules::Rules,
    world::{NODES, World},
};

/// The finalizer of a node that is being deleted.
const HOLD: &str = "example.com/hold";

/// One random change of a node.
pub(crate) fn next(world: &mut World, rules: &mut Rules) {
    let number = world.dice.random_range(0..NODES);
    let name = World::node_name(number);
    let Some(node) = world.api.get("nodes", &name) else { return world.add_node(number) };
    let patch = |patch: Value| {
        world.api.patch("nodes", &name, "", PatchKind::Merge, patch).unwrap();
    };
    if !node["metadata"]["deletionTimestamp"].is_null() {
        return patch(json!({"metadata": {"finalizers": null}}));
    }
    match world.dice.clone().random_range(0..18) {
        0..4 => world.api.delete("nodes", &name).unwrap_or_default(),
        4 | 5 => {
            patch(json!({"spec": {"taints": [
                {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}));
            rules.marked(&name);
        }
        6 | 7 => patch(json!({"spec": {"taints": null}})),
        8 => {
            patch(json!({"metadata": {"labels": {EXCLUDE_NODE: "true"}}}));
            rules.marked(&name);
        }
        9 => patch(json!({"metadata": {"labels": {EXCLUDE_NODE: null}}})),
        10 => patch(json!({"metadata": {"labels": {"pool": "blue"}}})),
        14 => patch(json!({"metadata": {"labels": {"pool": null}}})),
        15 => {
            patch(json!({"spec": {"unschedulable": true}}));
            rules.cordoned(&name);
        }
        16 => {
            patch(json!({"spec": {"unschedulable": true}}));
            rules.cordoned(&name);
            world.api.delete("nodes", &name).unwrap_or_default();
        }
        17 => {
            let proof = instance_gone::value("by_id", clock::wall().into());
            patch(json!({"metadata": {"annotations": {instance_gone::KEY: proof}}}));
            rules.marked(&name);
            world.api.delete("nodes", &name).unwrap_or_default();
        }
        11 => move_to(world, number),
        12 => again(world, number),
        _ => {
            patch(json!({"metadata": {"finalizers": [HOLD]}}));
            world.api.delete("nodes", &name).unwrap();
        }
    }
    world.dice.random::<u32>();
}

/// Changes the first address of the node.
fn move_to(world: &mut World, number: usize) {
    let first = format!("10.0.{}.{}", world.dice.random_range(0..2), number + 1);
    let addresses = world.addresses.of(&first, number);
    let status = json!({"status": {"addresses": addresses}});
    let name = World::node_name(number);
    world.api.patch("nodes", &name, "status", PatchKind::Merge, status).unwrap();
}

/// Another machine gets the name of the node, or a machine without a known provider ID.
fn again(world: &mut World, number: usize) {
    let name = World::node_name(number);
    let mut node = world.api.get("nodes", &name).unwrap();
    world.api.delete("nodes", &name).unwrap_or_default();
    let other = format!("sim://i-{name}-{}", world.dice.random_range(0..3));
    let id = if world.dice.random_bool(0.3) { Value::Null } else { json!(other) };
    node["spec"] = json!({"providerID": id});
    node["metadata"] = json!({"name": name});
    world.api.create(node).ok();
}

/// Repairs all nodes.
pub(crate) fn all_are_back(world: &World) {
    for number in 0..NODES {
        let name = World::node_name(number);
        if let Some(node) = world.api.get("nodes", &name) {
            let no_id = node["spec"]["providerID"].is_null();
            let deleting = !node["metadata"]["deletionTimestamp"].is_null();
            if no_id || deleting {
                let none = json!({"metadata": {"finalizers": null}});
                world.api.patch("nodes", &name, "", PatchKind::Merge, none).ok();
                world.api.delete("nodes", &name).ok();
            }
        }
        world.add_node(number);
        let blue = json!({"metadata": {"labels": {"pool": "blue"}}});
        world.api.patch("nodes", &name, "", PatchKind::Merge, blue).unwrap();
    }
}
