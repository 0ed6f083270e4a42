//! Nodes of other providers in the cluster.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

impl World {
    /// Adds a node with this provider ID and an address that the cloud does not reach.
    fn add_edge(&self, name: &str, provider_id: Value) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": provider_id},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.9"}]},
        });
        self.api.create(node).unwrap();
    }

    fn has_member(&self, number: usize, node: &str) -> bool {
        let uid = self.service(number).unwrap()["metadata"]["uid"].clone();
        let balancers = self.balancers_of(uid.as_str().unwrap());
        balancers.iter().any(|one| one.member_names().into_iter().any(|name| name == node))
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_provider_is_no_member() {
    let world = World::with_services(0..1).await;
    world.add_edge("edge-1", json!("kubeedge://edge-1"));
    // Of these nobody knows more than before.
    world.add_edge("bare-1", Value::Null);
    world.add_edge("odd-1", json!("no-scheme"));
    sleep(SOON).await;
    assert!(!world.has_member(0, "edge-1"));
    assert!(world.has_member(0, "bare-1") && world.has_member(0, "odd-1"));
    assert_eq!(world.members(0), NODES + 2);
    let line = world.line("members");
    let expect = "[+]14 of 15 nodes can be members of load balancers: 1 of another provider";
    assert_eq!(line, expect);
    // One setting makes it a member, and takes it out again.
    for (is_set, is_member) in [(true, true), (false, false)] {
        world.reload(|settings| settings.load_balancer_foreign_nodes = is_set);
        sleep(SOON).await;
        assert_eq!(world.has_member(0, "edge-1"), is_member);
    }
}

/// A provider that is replaced by one with another scheme, or nodes of an embedded controller.
#[tokio::test(start_paused = true)]
async fn where_no_node_has_the_providers_scheme_ids_say_nothing() {
    let world = World::with_services(0..1).await;
    for number in 0..NODES {
        let name = World::node_name(number);
        world.api.delete("nodes", &name).unwrap();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": format!("k3s://{name}")},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{}", number + 1)}]},
        });
        world.api.create(node).unwrap();
    }
    // A member with another provider ID is another one, and is replaced in the pace of the brake.
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.members(0), NODES);
    let line = world.line("members");
    assert_eq!(line, "[+]12 of 12 nodes can be members of load balancers");
}

/// The scheme of most nodes is a mistake: they leave in the pace of the brake.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_providers_scheme_is_braked() {
    let world = World::with_services(0..1).await;
    world.add_edge("edge-1", json!("kubeedge://edge-1"));
    world.reload(|settings| settings.load_balancer_foreign_nodes = true);
    for number in 1..NODES {
        let name = World::node_name(number);
        // Only a node without an ID can get one.
        world
            .api
            .patch("nodes", &name, "", PatchKind::Merge, json!({"spec": {"taints": null}}))
            .unwrap();
        world.api.delete("nodes", &name).unwrap();
        world.add_edge(&name, json!(format!("kubeedge://{name}")));
    }
    world.reload(|settings| settings.load_balancer_foreign_nodes = false);
    sleep(SOON).await;
    let left = world.members(0);
    assert!((NODES - 3..=NODES).contains(&left), "{left}");
    assert!(!world.events("LoadBalancerMembersHeld").is_empty());
}
