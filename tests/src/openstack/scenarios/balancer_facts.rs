//! The assumptions of service-ccm about Octavia, checked on Octavia itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::openstack::{admin::Admin, balancing::id, rig::Rig};

/// The name of load balancers that do not belong to a cluster.
const NAME: &str = "facts";

/// Returns a load balancer with a listener, a pool, a member and a monitor, made by one request.
async fn whole(user: &Admin, subnet: &str) -> Result<Value> {
    let members = json!([{"address": "127.32.200.1", "protocol_port": 30_000, "name": "one", "subnet_id": subnet}]);
    let monitor =
        json!({"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "name": "monitor"});
    let pool = json!({
        "name": "pool", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": members, "healthmonitor": monitor
    });
    let listener =
        json!({"name": "listener", "protocol": "TCP", "protocol_port": 80, "default_pool": pool});
    let body = json!({"loadbalancer": {
        "name": NAME, "vip_subnet_id": subnet, "tags": ["a", "b"], "listeners": [listener]
    }});
    let made = user.create_balancer_part("loadbalancers", body).await?;
    user.balancer_is(&id(&made)?, "ACTIVE").await
}

/// Changes one part, and checks whether that changes `updated_at`.
async fn moves(user: &Admin, balancer: &str, what: &str, change: (&str, Value)) -> Result<()> {
    let before = user.balancer(balancer).await?.context("it exists")?["updated_at"].clone();
    // Octavia writes whole seconds.
    sleep(Duration::from_millis(1100)).await;
    let (part, body) = change;
    match body {
        Value::Null => user.delete_balancer_part(part).await?,
        body if body["post"].is_object() => {
            user.create_balancer_part(part, body["post"].clone()).await?;
        }
        body => user.change_balancer_part(part, body).await?,
    }
    let after = user.balancer_is(balancer, "ACTIVE").await?["updated_at"].clone();
    ensure!(after != before, "{what}: updated_at stays {before}");
    Ok(())
}

/// An unchanged `updated_at` means that nothing below the load balancer was written.
pub(super) async fn each_write_below_a_load_balancer_moves_its_updated_at(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    let subnet = user.subnet("k8s").await?;
    let balancer = id(&whole(user, &subnet).await?)?;
    let tree = user.balancer_tree(&balancer).await?;
    let part = |kind: &str, pointer: &str| -> Result<String> {
        let id = tree.pointer(pointer).and_then(Value::as_str);
        Ok(format!("{kind}/{}", id.with_context(|| format!("no {pointer} in {tree}"))?))
    };
    let listener = part("listeners", "/listeners/0/id")?;
    let pool = part("pools", "/listeners/0/pools/0/id")?;
    let monitor = part("healthmonitors", "/listeners/0/pools/0/health_monitor/id")?;
    let members = format!("{pool}/members");
    let member = part(&members, "/listeners/0/pools/0/members/0/id")?;
    let two = json!([
        {"address": "127.32.200.1", "protocol_port": 30_000, "name": "one"},
        {"address": "127.32.200.2", "protocol_port": 30_000, "name": "two"}
    ]);
    let new = json!({"post": {"listener": {
        "name": "second", "protocol": "TCP", "protocol_port": 81, "loadbalancer_id": balancer
    }}});
    let single = json!({"post": {"member": {
        "address": "127.32.200.3", "protocol_port": 30_000, "name": "three"
    }}});
    let fresh = json!({"post": {"pool": {
        "name": "second", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "loadbalancer_id": balancer
    }}});
    let check = json!({"post": {"healthmonitor": {
        "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "name": "second",
        "pool_id": pool.trim_start_matches("pools/")
    }}});
    let whole = format!("loadbalancers/{balancer}");
    let mut seen = Vec::new();
    for (what, part, body) in [
        ("tags of the load balancer", &whole, json!({"loadbalancer": {"tags": ["a"]}})),
        ("an update of a listener", &listener, json!({"listener": {"connection_limit": 7}})),
        ("tags of a listener", &listener, json!({"listener": {"tags": ["c"]}})),
        ("an update of a pool", &pool, json!({"pool": {"lb_algorithm": "SOURCE_IP"}})),
        ("an update of a monitor", &monitor, json!({"healthmonitor": {"delay": 6}})),
        ("an update of a member", &member, json!({"member": {"weight": 2}})),
        ("a batch of members", &members, json!({"members": two})),
        ("a new single member", &members, single),
        ("a new listener", &"listeners".to_owned(), new),
        ("a new pool", &"pools".to_owned(), fresh),
        ("the end of a member", &member, Value::Null),
        ("the end of a monitor", &monitor, Value::Null),
        ("a new monitor", &"healthmonitors".to_owned(), check),
        ("the end of a pool", &pool, Value::Null),
        ("the end of a listener", &listener, Value::Null),
    ] {
        moves(user, &balancer, what, (part, body)).await?;
        seen.push(what);
    }
    eprintln!("updated_at moves with: {}", seen.join(", "));
    user.delete_balancer_part(&format!("{whole}?cascade=true")).await
}

/// A write while Octavia works is refused, and a filter for tags requires all of them.
pub(super) async fn a_pending_load_balancer_refuses_writes_and_is_found_by_tags(
    rig: &Rig,
) -> Result<()> {
    let user = &rig.cloud.user;
    let subnet = user.subnet("k8s").await?;
    let balancer = id(&whole(user, &subnet).await?)?;
    rig.cloud.services.set_balancer_status(&balancer, "PENDING_UPDATE")?;
    let url = user.balancer_url(&format!("loadbalancers/{balancer}"));
    let body = json!({"loadbalancer": {"tags": ["b"]}});
    let answer = user.call(http::Method::PUT, &url, Some(&body)).await?;
    let is_busy =
        answer.status.as_u16() == 409 && answer.text.contains("Invalid state PENDING_UPDATE");
    ensure!(is_busy, "{} {}", answer.status, answer.text);
    let url = format!("{url}?cascade=true");
    let answer = user.call(http::Method::DELETE, &url, None).await?;
    let is_busy =
        answer.status.as_u16() == 409 && answer.text.contains("Invalid state PENDING_UPDATE");
    ensure!(is_busy, "{} {}", answer.status, answer.text);
    rig.cloud.services.set_balancer_status(&balancer, "ACTIVE")?;

    for (tags, found) in [("a", 1), ("a,b", 1), ("a,c", 0)] {
        let there = user.balancer_parts(&format!("loadbalancers?tags={tags}")).await?.len();
        ensure!(there == found, "tags={tags}: {there}");
    }
    user.clear_balancers().await
}
