//! Tests the rights of node-ccm and lifecycle-ccm in the cloud.

use ccm_cloud::Instances as _;
use ccm_openstack_client::{api::Service, scripted::port};
use http::Method;
use serde_json::json;

use super::*;
use crate::tests::access_rules;

/// Records the list of one server that shows whether Nova answers.
fn probed(rig: &Rig) {
    rig.cloud.world.lock().seen.insert((Service::Compute, Method::GET, "servers".to_owned()));
}

#[tokio::test]
async fn the_access_rules_of_the_page_are_exactly_enough() {
    let new = Rig::shaped(Scripted::with_servers(0..20), |config| {
        config.networking.internal_networks = vec!["k8s".to_owned()];
        config.labels.flavor_id = true;
    });
    {
        // Only Neutron reports the names of the networks of a trunk's sub-ports.
        let mut world = new.cloud.world.lock();
        world.networks.push(json!({"id": uuid(77), "name": "k8s"}));
        world.ports[0]["trunk_details"] = json!({"sub_ports": [{"port_id": uuid(5_000)}]});
        let mut carried = port(5_000);
        carried["id"] = json!(uuid(5_000));
        world.ports.push(carried);
    }
    // This Nova does not show flavors with their servers.
    let old = Rig::new(Scripted::with_servers(0..4));
    for number in 0..4 {
        old.cloud.change(number, "flavor", json!({"id": "f0", "links": []}));
    }
    old.cloud.world.lock().flavors = vec![json!({"id": "f0", "name": "m1.tiny"})];
    for rig in [&new, &old] {
        rig.refresh().await;
        for node in [known(1), fresh(2), named(3), known(99), named(99)] {
            let _answer = rig.look(node).await;
        }
        probed(rig);
    }
    access_rules::are_exactly_enough("node-ccm", &[&new.cloud, &old.cloud]);

    let rig = Rig::new(Scripted::with_servers(0..20));
    let nodes: Vec<_> = (0..20).map(known).collect();
    for node in [known(1), fresh(2), named(3), known(99), named(99)] {
        rig.instances.lookup(&[node], Detail::Presence, call()).await;
    }
    rig.instances.lookup(&nodes, Detail::Presence, call()).await;
    rig.instances.list(call()).await.unwrap();
    probed(&rig);
    access_rules::are_exactly_enough("lifecycle-ccm", &[&rig.cloud]);
}
