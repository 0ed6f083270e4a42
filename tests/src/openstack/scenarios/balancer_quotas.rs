//! Quotas of load balancers that are used up, and subnets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    openstack::{
        admin::Port,
        balancing::{
            add_nodes, all_have_addresses, annotated, delete_all, provisioned, quick, says, service,
        },
        rig::{Rig, SOON},
    },
    services,
};

/// Octavia's quotas, and their names in the Service's condition.
const QUOTAS: [(&str, &str); 5] = [
    ("load_balancer", "load balancer"),
    ("listener", "listener"),
    ("pool", "pool"),
    ("member", "member"),
    ("health_monitor", "monitor"),
];

/// A request that a quota refused is retried after this time.
const RETRIED: Duration = Duration::from_mins(5);

/// Returns true if a text names this, in one or two words.
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

    // None of the Services is touched.
    let start = Instant::now();
    let took = all_have_addresses(rig, &services_, start, RETRIED + 2 * SOON).await?;
    for name in &services_ {
        provisioned(rig, name, SOON).await?;
    }
    eprintln!(
        "6 Services are served {:.0} s after the quotas have room, without a change of the Services",
        took.as_secs_f64()
    );
    delete_all(rig, &services_, 2 * SOON).await
}

/// Makes an internal load balancer.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// The VIP and the amphora need one address each.
pub(super) async fn a_subnet_without_room_is_named(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let narrow = user.narrow_network("narrow", "127.37.0.0/24", 2).await?;
    let names = ["narrow-0", "narrow-1"].map(str::to_owned);
    let ports = user.create_ports_in(&narrow.network, &names, true).await?;
    let outcome = without_room(rig, &narrow.subnet, &ports).await;
    user.clear_balancers().await?;
    for port in &ports {
        user.delete_port(&port.id).await?;
    }
    user.delete_network(&narrow.network).await?;
    outcome
}

async fn without_room(rig: &Rig, subnet: &str, ports: &[Port]) -> Result<()> {
    let program = rig.start(&quick(rig)).await?;
    let mut crowded = annotated(service("crowded", 1), "subnet-id", subnet);
    crowded["metadata"]["annotations"][INTERNAL] = "true".into();
    services::create(&rig.client, &crowded).await?;
    let said = says(rig, "crowded", "QuotaExceeded", SOON).await.with_context(|| program.log())?;
    eprintln!("a subnet without room: {said}");
    ensure!(said.contains("subnet-id") && said.contains(subnet), "it names the annotation: {said}");
    // Others are served in the meantime.
    services::create(&rig.client, &service("elsewhere", 1)).await?;
    services::address(&rig.client, "elsewhere", SOON).await?;
    ensure!(
        rig.cloud.user.balancers().await?.len() == 1,
        "nothing is left of the refused load balancer"
    );

    for port in ports {
        rig.cloud.user.delete_port(&port.id).await?;
    }
    // A user who has made room can change the Service, and need not wait for the next attempt.
    let touch = json!({"metadata": {"annotations": {"loadbalancer.openstack.org/connection-limit": "1000"}}});
    services::patch(&rig.client, "crowded", touch).await?;
    let address = services::address(&rig.client, "crowded", 2 * SOON).await;
    let address = address.with_context(|| program.log())?;
    ensure!(address.starts_with("127.37.0."), "{address} is not in the subnet");
    provisioned(rig, "crowded", SOON).await?;
    delete_all(rig, &["crowded", "elsewhere"].map(str::to_owned), 2 * SOON).await
}
