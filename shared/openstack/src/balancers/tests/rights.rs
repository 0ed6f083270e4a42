//! Tests the rights of service-ccm in the cloud.

use ccm_cloud::{Depth, IpFamily, Protocol, Scope, Traffic, Wanted};
use ccm_openstack_client::scripted::uuid;

use super::rig::{Rig, annotated, changed, members, port, wanted, with};
use crate::tests::access_rules;

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Goes through everything that changes another object of the cloud.
async fn live(rig: &Rig, cascade: bool) {
    let plain = wanted("web");
    let udp = |it: &mut ccm_cloud::FrontEnd| it.ports.push(port(53, Protocol::Udp));
    let local = |it: &mut ccm_cloud::FrontEnd| {
        it.traffic = Traffic::Local { health_check_port: 31_000 };
    };
    let checked = annotated(&plain, "enable-health-monitor", "true");
    let both = changed(&plain, |it| it.families = vec![IpFamily::V4, IpFamily::V6]);
    let states = [
        plain.clone(),
        changed(&plain, udp),
        changed(&plain, |it| it.ports.truncate(1)),
        checked.clone(),
        annotated(&checked, "health-monitor-delay", "9"),
        changed(&checked, local),
        annotated(&plain, "connection-limit", "7"),
        annotated(&plain, "lb-method", "SOURCE_IP"),
        annotated(&plain, "proxy-protocol", "true"),
        with(&plain, INTERNAL, "true"),
        annotated(&plain, "keep-floatingip", "true"),
        annotated(&with(&plain, INTERNAL, "true"), "keep-floatingip", "true"),
        both.clone(),
    ];
    for (state, digest) in states.into_iter().zip(1001..) {
        let state = changed(&state, |it| it.digest.hash = digest);
        let id = rig.settle(&state).await.id;
        rig.members_with(&state, &id, members(&[1, 2, 7], &[])).await;
        rig.members_with(&state, &id, members(&[1, 2, 3], &[7])).await;
    }
    rig.list(Scope::All, Depth::Members).await;
    let id = rig.settle(&plain).await.id;
    // A failed load balancer is replaced.
    rig.cloud.world.lock().octavia.break_down(&id);
    rig.settle(&Wanted { known: Some(id), ..plain.clone() }).await;
    // One load balancer has lost its floating IP, and lists omit another one.
    let id = rig.settle(&plain).await.id;
    rig.cloud.world.lock().octavia.break_down(&id);
    rig.cloud.world.lock().floating.ips.clear();
    rig.settle(&Wanted { known: Some(id.clone()), ..plain.clone() }).await;
    rig.deleted(&rig.unwanted(&plain)).await;
    if cascade {
        rig.settle(&both).await;
        rig.deleted(&rig.unwanted(&both)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_access_rules_of_the_page_are_exactly_enough() {
    let configured = Rig::new();
    live(&configured, true).await;
    // The provider finds the networks, and deletes children one by one.
    let found = Rig::with(|options| options.load_balancer.cascade_delete = false);
    for number in 1..=3 {
        let mut node = ccm_openstack_client::scripted::port(number);
        let address = format!("10.8.1.{number}");
        node["fixed_ips"] = serde_json::json!([{ "subnet_id": uuid(1), "ip_address": address }]);
        found.cloud.world.lock().ports.push(node);
    }
    live(&found, false).await;
    access_rules::are_exactly_enough("service-ccm", &[&configured.cloud, &found.cloud]);
}
