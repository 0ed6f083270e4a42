//! Tests the rights of route-ccm in the cloud.

use super::*;
use crate::tests::access_rules;

#[tokio::test]
async fn the_access_rules_of_the_page_are_exactly_enough() {
    let atomic = Rig::new(3);
    let classic = Rig::new(3);
    classic.cloud.world.lock().router.extensions = vec!["extraroute", "allowed-address-pairs"];
    for rig in [&atomic, &classic] {
        rig.list().await;
        let base = rig.list().await.version;
        rig.apply_at(&[create(1), create(2)], base.as_deref()).await;
        // Another client has changed the port: it is read again.
        rig.cloud.world.lock().ports[1]["revision_number"] = json!(9);
        let base = rig.list().await.version;
        rig.cloud.world.lock().ports[1]["revision_number"] = json!(10);
        rig.apply_at(&[delete(1)], base.as_deref()).await;
        let targets = [RouteTarget::Address("10.0.0.77".parse().unwrap())];
        let _answers: Vec<_> = rig.routes.find_targets(&targets, call()).collect().await;
    }
    access_rules::are_exactly_enough("route-ccm", &[&atomic.cloud, &classic.cloud]);
}
