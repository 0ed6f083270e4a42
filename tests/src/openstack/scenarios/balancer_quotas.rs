//! Quotas of load balancers that are used up.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    openstack::{
        balancing::{add_nodes, delete_all, quick, says, service},
        rig::{Rig, SOON},
    },
    services,
};

/// Octavia's quotas, and how the Service's condition names what is used up.
const QUOTAS: [(&str, &str); 5] = [
    ("load_balancer", "load balancer"),
    ("listener", "listener"),
    ("pool", "pool"),
    ("member", "member"),
    ("health_monitor", "monitor"),
];

/// Whether a text names this, in one or two words.
fn names(text: &str, what: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(['_', ' ', '-'], "");
    plain(text).contains(&plain(what))
}

pub(super) async fn each_used_up_quota_is_named(rig: &Rig) -> Result<()> {
    let (operator, user) = (&rig.cloud.operator, &rig.cloud.user);
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, 2).await?;
    let _program = rig.start(&quick(rig)).await?;
    let mut services_ = Vec::new();
    for (quota, what) in QUOTAS {
        operator.set_balancer_quota(user, json!({ quota: 0 })).await?;
        let name = format!("no-{}", quota.replace('_', "-"));
        services::create(&rig.client, &service(&name, 1)).await?;
        let said = says(rig, &name, "QuotaExceeded", SOON).await?;
        ensure!(names(&said, what), "it names the quota of {quota}: {said}");
        operator.clear_balancer_quota(user).await?;
        services_.push(name);
    }
    operator.set_network_quota(user, json!({"floatingip": 0})).await?;
    services::create(&rig.client, &service("no-address", 1)).await?;
    let said = says(rig, "no-address", "QuotaExceeded", SOON).await?;
    ensure!(names(&said, "floating ip"), "it names the quota of floating IPs: {said}");
    operator.clear_network_quota(user).await?;
    services_.push("no-address".to_owned());

    // A user who has made room says so; without that it is tried again within five minutes.
    for name in &services_ {
        let touch = json!({"metadata": {"annotations": {"loadbalancer.openstack.org/connection-limit": "1000"}}});
        services::patch(&rig.client, name, touch).await?;
        services::address(&rig.client, name, 2 * SOON).await?;
    }
    delete_all(rig, &services_, 2 * SOON).await
}
