//! One Service goes through all settings of its fields and annotations for addresses and places,
//! and Octavia and Neutron have each of them.

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::Program;
use k8s_openapi::api::core::v1::Service as KubeService;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    openstack::{
        admin::{FloatingIp, NarrowNetwork, Port},
        balancing::{add_node, add_nodes, delete_all, of_service, quick, service},
        rig::{Rig, SOON},
        states::{
            State, an_audit_writes_nothing, annotations, floating, go_through, reached, rows,
        },
    },
    services,
};

/// Makes an internal load balancer.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

fn state(what: &'static str, change: Value, expect: Value) -> State {
    State { what, change, expect }
}

fn spec(fields: Value) -> Value {
    json!({ "spec": fields })
}

/// The user's setup.
struct Ground {
    /// For the virtual address.
    port: Port,
    /// A floating IP that the user has.
    own: FloatingIp,
    /// Another network of the project.
    narrow: NarrowNetwork,
}

/// Covers the virtual address, floating IPs and subnets. The Service also becomes another type and
/// returns.
pub(super) async fn addresses_are_as_asked_for(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance().await?;
    let (home, public) = (user.network("k8s").await?, user.network("public").await?);
    let mut ports = user.create_ports_in(&home, &["vip".to_owned()], true).await?;
    let ground = Ground {
        port: ports.pop().context("a port")?,
        own: user.free_floating_ip(&public, "of a user").await?,
        narrow: user.narrow_network("options", "127.38.0.0/24", 20).await?,
    };
    let outcome = addresses(rig, &ground).await;
    user.clear_balancers().await?;
    user.delete_port(&ground.port.id).await?;
    for id in user.floating_ips().await? {
        user.delete_floating_ip(&id).await?;
    }
    user.delete_network(&ground.narrow.network).await?;
    outcome
}

async fn addresses(rig: &Rig, ground: &Ground) -> Result<()> {
    let Ground { port, own, .. } = ground;
    let mut place = service("place", 1);
    place["metadata"] = json!({"name": "place", "annotations": {
        "loadbalancer.openstack.org/port-id": port.id
    }});
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, &place).await?;
    let vip = json!({"vip_port_id": port.id, "vip_address": port.address});
    let seen = reached(rig, "place", "port-id", &json!({"balancer": vip})).await?;
    let made = seen["ingress"][0]["ip"].as_str().context("no floating IP")?;
    ensure!(
        seen["floating"][made]["port_id"] == port.id.as_str(),
        "{made} is not an address of the port"
    );
    let chosen = json!({"port_id": port.id, "description": "of a user"});
    let given = json!({
        "balancer": vip, "floating": {made: null, &own.address: chosen}, "ingress": [{"ip": own.address}]
    });
    let internal = json!({
        "balancer": vip, "floating": {&own.address: {"port_id": null}}, "ingress": [{"ip": port.address}]
    });
    let inside = |value: Value| annotations(&[(INTERNAL, value)]);
    let states = vec![
        state(
            "loadBalancerIP of a user's floating IP",
            spec(json!({"loadBalancerIP": own.address})),
            given.clone(),
        ),
        state("internal", inside("true".into()), internal),
        state("external again", inside(Value::Null), given.clone()),
        state("loadBalancerIP removed", spec(json!({"loadBalancerIP": null})), given),
        state(
            "internal without loadBalancerIP",
            inside("true".into()),
            json!({"ingress": [{"ip": port.address}]}),
        ),
    ];
    go_through(rig, &program, "place", states).await?;
    let address = kept(rig, &program, ground).await?;
    other_type(rig, ground, &address).await.with_context(|| program.log())?;
    elsewhere(rig, &program, ground).await
}

/// Gives it a floating IP that the program makes, and that it keeps while it is internal. Returns
/// the address.
async fn kept(rig: &Rig, program: &Program, ground: &Ground) -> Result<String> {
    let Ground { port, own, .. } = ground;
    let inside = |value: &str| annotations(&[(INTERNAL, value.into())]);
    services::patch(&rig.client, "place", inside("false")).await?;
    let is_new = |shown: &String| shown.starts_with("127.33.") && *shown != own.address;
    let has_new = |service: &KubeService| services::addresses(service).iter().any(is_new);
    let what = "at a new floating IP";
    let now = services::wait_for(&rig.client, "place", what, 2 * SOON, has_new).await?;
    let address = services::addresses(&now).pop().context("it was there")?;
    let kept = |port: Value, shown: &str| {
        json!({
            "ingress": [{"ip": shown}], "floating": {&address: {"port_id": port}}
        })
    };
    let keep = annotations(&[("keep-floatingip", "true".into()), (INTERNAL, "true".into())]);
    let states = vec![
        state("keep-floatingip and internal", keep, kept(Value::Null, &port.address)),
        state(
            "external with the floating IP that was kept",
            inside("false"),
            kept(json!(port.id), &address),
        ),
    ];
    go_through(rig, program, "place", states).await?;
    Ok(address)
}

/// Gives the Service this spec, which does not need a load balancer.
async fn without(rig: &Rig, fields: Value) -> Result<()> {
    services::patch(&rig.client, "place", spec(fields)).await?;
    let is_free = |service: &KubeService| {
        !services::is_protected(service) && services::addresses(service).is_empty()
    };
    services::wait_for(&rig.client, "place", "without a load balancer", 2 * SOON, is_free).await?;
    ensure!(of_service(rig, "place").await?.is_empty(), "its load balancer is still there");
    Ok(())
}

/// Gives the Service the type ClusterIP for a time: its load balancer is deleted, and a user's
/// objects stay.
async fn other_type(rig: &Rig, ground: &Ground, address: &str) -> Result<()> {
    without(rig, json!({"type": "ClusterIP"})).await?;
    let left = floating(rig).await?;
    for address in [address, &ground.own.address] {
        ensure!(left[address]["port_id"].is_null(), "{address} is kept, and free: {left:?}");
    }
    let ports = rig.cloud.user.ports_named("vip").await?;
    ensure!(ports == [ground.port.id.clone()], "the port of a user stays: {ports:?}");
    Ok(())
}

/// Gives the Service the type LoadBalancer again, in another place.
async fn elsewhere(rig: &Rig, program: &Program, ground: &Ground) -> Result<()> {
    let (operator, user) = (&rig.cloud.operator, &rig.cloud.user);
    let (flavor, zone) = (operator.balancer_flavor("small").await?, "zone-2");
    operator.offer_balancer_zone(zone).await?;
    let home = user.subnet("k8s").await?;
    let mut change = annotations(&[
        ("port-id", Value::Null),
        ("subnet-id", ground.narrow.subnet.clone().into()),
        ("member-subnet-id", home.clone().into()),
        ("flavor-id", flavor.clone().into()),
        ("availability-zone", zone.into()),
        (INTERNAL, "true".into()),
    ]);
    change["spec"] = json!({"type": "LoadBalancer", "loadBalancerIP": "127.38.0.9"});
    services::patch(&rig.client, "place", change).await?;
    let in_home = json!({"subnet_id": home});
    let expect = json!({
        "balancer": {
            "vip_subnet_id": ground.narrow.subnet, "vip_network_id": ground.narrow.network,
            "vip_address": "127.38.0.9", "flavor_id": flavor, "availability_zone": zone
        },
        "listeners": {"8000/TCP": {"pool": {"members": {"member-001": in_home}}}},
        "ingress": [{"ip": "127.38.0.9"}]
    });
    let start = Instant::now();
    let again = "LoadBalancer again, with subnet-id, flavor-id and availability-zone";
    reached(rig, "place", again, &expect).await.with_context(|| program.log())?;
    eprintln!("{again}: {:.1} s", start.elapsed().as_secs_f64());
    // A new member is in the subnet that the annotation names now. Existing members stay.
    let narrow = ground.narrow.subnet.clone();
    services::patch(
        &rig.client,
        "place",
        annotations(&[("member-subnet-id", narrow.clone().into())]),
    )
    .await?;
    let joined = add_node(rig, 4).await?;
    let members = json!({"member-001": in_home, joined: {"subnet_id": narrow}});
    let expect = json!({"listeners": {"8000/TCP": {"pool": {"members": members}}}});
    reached(rig, "place", "member-subnet-id", &expect).await.with_context(|| program.log())?;
    an_audit_writes_nothing(rig, "place").await?;
    let balancer = rows(rig, "place").await?["balancer"]["id"].take();
    // On a network, Octavia chooses the address.
    let network = annotations(&[
        ("network-id", ground.narrow.network.clone().into()),
        ("subnet-id", "".into()),
    ]);
    without(rig, json!({"type": "ClusterIP", "loadBalancerIP": null})).await?;
    services::patch(&rig.client, "place", network).await?;
    services::patch(&rig.client, "place", spec(json!({"type": "LoadBalancer"}))).await?;
    let expect = json!({"balancer": {"vip_network_id": ground.narrow.network}});
    let seen = reached(rig, "place", "network-id", &expect).await.with_context(|| program.log())?;
    ensure!(seen["balancer"]["id"] != balancer, "another load balancer: {}", seen["balancer"]);
    delete_all(rig, &["place".to_owned()], 2 * SOON).await
}
