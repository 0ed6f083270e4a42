//! The ownership of load balancers: two clusters of one name, and
//! openstack-cloud-controller-manager before and after.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::{
    cluster::{Cluster, Kind},
    fixture::{Accounts, Fixture},
    openstack::{
        balancing::{
            ANNOTATION, CLUSTER_TAG, Calls, NAME, SERVICE_TAG, add_node, add_nodes, delete_all,
            have_member, id, id_of, members, provisioned, quick, says, service, tags,
        },
        rig::{Rig, SOON},
    },
    services,
};

/// A second cluster is in the same project, with the same `--cluster-name` and the same Service.
pub(super) async fn two_clusters_of_one_name_share_a_project(rig: &Rig) -> Result<()> {
    let cluster = Arc::new(Cluster::start(Kind::Simulated).await?);
    let fixture = Fixture::new(cluster, Accounts::new(), SOON).await?;
    let other = Rig::new(rig.cloud.clone(), fixture).await?;
    let mut programs = Vec::new();
    for rig in [rig, &other] {
        rig.balance().await?;
        add_nodes(rig, 2).await?;
        programs.push(rig.start(&quick(rig)).await?);
        services::create(&rig.client, &service("web", 1)).await?;
    }
    let mut balancers = Vec::new();
    for rig in [rig, &other] {
        services::address(&rig.client, "web", SOON).await?;
        provisioned(rig, "web", SOON).await?;
        balancers.push(id_of(rig, "web").await?);
    }
    ensure!(balancers[0] != balancers[1], "both clusters use {}", balancers[0]);
    let joined = add_node(rig, 3).await?;
    have_member(rig, &balancers[..1], &joined, SOON).await?;
    // This is the time of some audits of both.
    sleep(Duration::from_secs(22)).await;
    let there = members(&other, &balancers[1]).await?;
    ensure!(!there[0].contains(&joined), "the other cluster's members stay: {there:?}");
    delete_all(rig, &["web".to_owned()], 2 * SOON).await?;
    sleep(Duration::from_secs(11)).await;
    ensure!(id_of(&other, "web").await? == balancers[1], "the other cluster's stays");
    delete_all(&other, &["web".to_owned()], 2 * SOON).await
}

/// Creates the load balancer of a Service of one port as openstack-cloud-controller-manager makes
/// it: names, description, tags, floating IP. Returns its state and its floating address.
async fn made_by_the_other_controller(
    rig: &Rig,
    name: &str,
    node_port: u16,
) -> Result<(Value, String)> {
    let user = &rig.cloud.user;
    let subnet = user.subnet("k8s").await?;
    let public = user.network("public").await?;
    let lb = format!("{NAME}{name}");
    let member = |number: usize| {
        json!({
            "name": format!("member-{number:03}"), "address": format!("127.32.200.{number}"),
            "protocol_port": node_port, "subnet_id": subnet
        })
    };
    let pool = json!({
        "name": format!("pool_0_{lb}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
        "members": [member(1), member(2)]
    });
    let listener = json!({
        "name": format!("listener_0_{lb}"), "protocol": "TCP", "protocol_port": 8000,
        "connection_limit": -1, "allowed_cidrs": ["0.0.0.0/0"], "tags": [lb],
        "timeout_client_data": 50_000, "timeout_member_connect": 5_000,
        "timeout_member_data": 50_000, "timeout_tcp_inspect": 0,
        "default_pool": pool
    });
    let body = json!({"loadbalancer": {
        "name": lb, "vip_subnet_id": subnet, "tags": [lb], "provider": "amphora",
        "description": format!("Kubernetes external service default/{name} from cluster kubernetes"),
        "listeners": [listener]
    }});
    let made = user.create_balancer_part("loadbalancers", body).await?;
    let made = user.balancer_is(&id(&made)?, "ACTIVE").await?;
    let words = format!(
        "Floating IP for Kubernetes external service default/{name} from cluster kubernetes"
    );
    let port = made["vip_port_id"].as_str().context("no port")?;
    let address = user.float_port(&public, port, &words).await?.address;
    Ok((made, address))
}

/// Returns everything below a load balancer that a client or the other controller could miss.
async fn shape(rig: &Rig, balancer: &str) -> Result<Value> {
    let user = &rig.cloud.user;
    let listeners = user.balancer_parts(&format!("listeners?loadbalancer_id={balancer}")).await?;
    let pools = user.balancer_parts(&format!("pools?loadbalancer_id={balancer}")).await?;
    let fields = |one: &Value| {
        json!([one["id"], one["name"], one["protocol"], one["protocol_port"], one["tags"]])
    };
    let parts: Vec<_> = listeners.iter().chain(&pools).map(fields).collect();
    let floating = user.floating_ip_details().await?;
    let floating: Vec<_> =
        floating.iter().map(|one| json!([one["id"], one["description"], one["port_id"]])).collect();
    let balancer = user.balancer(balancer).await?.context("it exists")?;
    Ok(json!({
        "name": balancer["name"], "description": balancer["description"],
        "vip": balancer["vip_port_id"], "parts": parts, "floating": floating
    }))
}

/// Only the record of the owner is added, after a plan. Everything that the other controller looks
/// for still exists, so it continues without creating anything.
pub(super) async fn what_the_other_controller_made_is_adopted_and_could_go_back(
    rig: &Rig,
) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let mut old = service("old", 1);
    old["metadata"]["finalizers"] = json!([services::FINALIZER]);
    let made = services::create(&rig.client, &old).await?;
    let ports = made.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let node_port = ports.first().and_then(|port| port.node_port).context("no node port")?;
    let (balancer, address) =
        made_by_the_other_controller(rig, "old", node_port.try_into()?).await?;
    let balancer = id(&balancer)?;
    let annotations = json!({
        format!("{ANNOTATION}load-balancer-id"): balancer,
        format!("{ANNOTATION}load-balancer-address"): address,
    });
    services::patch(&rig.client, "old", json!({"metadata": {"annotations": annotations}})).await?;
    services::patch_status(
        &rig.client,
        "old",
        json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}),
    )
    .await?;
    let before = shape(rig, &balancer).await?;

    let mark = rig.cloud.proxy.log().mark();
    let program = rig.start(&quick(rig)).await?;
    says(rig, "old", "WaitingForAdoption", SOON).await?;
    let (_, plan) = program.get("/plan").await?;
    ensure!(plan.contains(&balancer), "the plan names what it would adopt: {plan}");
    ensure!(Calls::since(rig, mark).writes == 0, "nothing is written before that");
    program.terminate().await?;

    let mark = rig.cloud.proxy.log().mark();
    let program = rig.start(&quick(rig).arg("--adopt-load-balancers=true")).await?;
    provisioned(rig, "old", 2 * SOON).await.with_context(|| program.log())?;
    sleep(Duration::from_secs(12)).await;
    let calls = Calls::since(rig, mark);
    let after = shape(rig, &balancer).await?;
    ensure!(after == before, "was {before}\nis {after}");
    let now = rig.cloud.user.balancer(&balancer).await?.context("it exists")?;
    let all = tags(&now);
    let has = |start: &str| all.iter().any(|tag| tag.starts_with(start));
    let other = format!("{NAME}old");
    ensure!(has(CLUSTER_TAG) && has(SERVICE_TAG) && all.contains(other.as_str()), "{all:?}");
    ensure!(calls.writes <= 2, "tags of load balancer and floating IP: {calls:?}");
    let service = services::get(&rig.client, "old").await?;
    ensure!(services::addresses(&service) == [address.clone()], "the address stays");
    let kept = service.metadata.annotations.unwrap_or_default();
    let kept = kept.get(&format!("{ANNOTATION}load-balancer-id"));
    ensure!(kept == Some(&balancer), "the other controller finds it by {kept:?}");
    eprintln!(
        "adopted with {} calls, {} writes (tags): {:?}",
        calls.calls, calls.writes, calls.by_pattern
    );

    let joined = add_node(rig, 3).await?;
    have_member(rig, &[balancer], &joined, SOON).await?;
    delete_all(rig, &["old".to_owned()], 2 * SOON).await?;
    poll::until("its floating IP to go as well", SOON, || async {
        Ok(rig.cloud.user.floating_ips().await?.is_empty().then_some(()))
    })
    .await
}
