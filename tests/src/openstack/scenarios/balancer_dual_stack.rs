//! Services with addresses of both families.

use anyhow::{Context as _, Result, anyhow, ensure};
use ccm_sim::program::Program;
use serde_json::{Value, json};

use crate::{
    nodes,
    openstack::{
        admin::NarrowNetwork,
        balancing::{annotated, delete_all, quick, service},
        rig::{Rig, SOON},
        states::{State, an_audit_writes_nothing, go_through, reached},
    },
    services,
};

/// Makes an internal load balancer.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
/// The API version since which source ranges may be of the family of any address.
const ALL_RANGES: u32 = 27;

/// Returns a Service with addresses of both families, of this one first, whose load balancer is in
/// a subnet.
fn dual(name: &str, first: [&str; 2], subnet: &str) -> Value {
    let mut dual = annotated(service(name, 1), "subnet-id", subnet);
    dual["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    dual["spec"]["ipFamilies"] = json!(first);
    dual
}

pub(super) async fn addresses_of_both_families(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance_with("create-monitor = true\n").await?;
    let network = user.narrow_network("dual", "127.39.0.0/24", 40).await?;
    let outcome = both(rig, &network).await;
    user.clear_balancers().await?;
    user.delete_network(&network.network).await?;
    outcome
}

async fn both(rig: &Rig, network: &NarrowNetwork) -> Result<()> {
    let user = &rig.cloud.user;
    let six = user.add_ipv6_subnet(&network.network, "dual-6", "fd00:39::/64").await?;
    add_nodes(rig).await?;
    let program = rig.start(&quick(rig)).await?;
    let shown = made(rig, &program, network, &six).await?;
    ranges(rig, &program, &shown).await?;
    let names = ["four-first", "six-first"].map(str::to_owned);
    delete_all(rig, &names, 2 * SOON).await?;
    program.terminate().await?;
    Ok(())
}

/// Adds nodes with an address of each family.
async fn add_nodes(rig: &Rig) -> Result<()> {
    for number in 1..=2 {
        let name = format!("member-{number:03}");
        let mut node = nodes::initialised(&name);
        node["spec"]["providerID"] = format!("openstack:///{}", nodes::uuid_of(&name)).into();
        node["status"]["addresses"] = json!([
            {"type": "InternalIP", "address": format!("127.39.0.{}", 200 + number)},
            {"type": "InternalIP", "address": format!("fd00:39::20{number}")}
        ]);
        nodes::register(&rig.client, &node).await?;
    }
    Ok(())
}

/// Creates a Service with each family first, and returns the addresses that they show.
async fn made(
    rig: &Rig,
    program: &Program,
    network: &NarrowNetwork,
    six: &str,
) -> Result<[Vec<String>; 2]> {
    let mut four_first = dual("four-first", ["IPv4", "IPv6"], &network.subnet);
    four_first["metadata"]["annotations"][INTERNAL] = "true".into();
    services::create(&rig.client, &four_first).await?;
    // The load balancers do not have floating IPs, because an IPv6 address does not need one. So
    // the virtual addresses are shown.
    services::create(&rig.client, &dual("six-first", ["IPv6", "IPv4"], six)).await?;
    let mut addresses = Vec::new();
    for (name, [first, second], member) in [
        ("four-first", [&*network.subnet, six], "127.39.0.201"),
        ("six-first", [six, &*network.subnet], "fd00:39::201"),
    ] {
        let all = json!(["member-001", "member-002"]);
        let pool = json!({"nodes": all, "members": {"member-001": {"address": member}}, "monitor": {"type": "TCP"}});
        let expect = json!({
            "balancer": {"vip_subnet_id": first, "additional_vips": [{"subnet_id": second}]},
            "floating": {}, "ports": ["8000/TCP"], "listeners": {"8000/TCP": {"pool": pool}}
        });
        let seen = reached(rig, name, name, &expect).await.with_context(|| program.log())?;
        let (vip, more) = (
            &seen["balancer"]["vip_address"],
            &seen["balancer"]["additional_vips"][0]["ip_address"],
        );
        let shown = services::addresses(&services::get(&rig.client, name).await?);
        ensure!(
            shown.len() == 2 && [vip, more] == [&json!(shown[0]), &json!(shown[1])],
            "{name} shows {shown:?}: {seen}"
        );
        eprintln!("{name}: {}", shown.join(" and "));
        addresses.push(shown);
    }
    ensure!(rig.cloud.user.floating_ips().await?.is_empty(), "a floating IP was made");
    addresses.try_into().map_err(|all| anyhow!("addresses of two Services: {all:?}"))
}

/// Checks source ranges of both families, as far as this Octavia accepts them.
async fn ranges(rig: &Rig, program: &Program, [of_four, of_six]: &[Vec<String>; 2]) -> Result<()> {
    let (four, six) = ("192.0.2.0/24", "2001:db8::/32");
    let has_all = rig.cloud.user.balancer_api().await? >= ALL_RANGES;
    for (name, first, shown) in [("four-first", four, of_four), ("six-first", six, of_six)] {
        let ranges = if has_all { vec![four, six] } else { vec![first] };
        let everyone = match (has_all, first == four) {
            (true, _) => json!(["0.0.0.0/0", "::/0"]),
            (false, _) => Value::Null,
        };
        let listener = |cidrs: Value| {
            json!({
                "listeners": {"8000/TCP": {"allowed_cidrs": cidrs}},
                "ingress": [{"ip": shown[0], "ipMode": "VIP"}, {"ip": shown[1], "ipMode": "VIP"}]
            })
        };
        let change = |ranges: Value| json!({"spec": {"loadBalancerSourceRanges": ranges}});
        let states = vec![
            State {
                what: "source ranges of both families",
                change: change(json!([four, six])),
                expect: listener(json!(ranges)),
            },
            State {
                what: "no source ranges",
                change: change(Value::Null),
                expect: listener(everyone),
            },
        ];
        go_through(rig, program, name, states).await.context(name)?;
        an_audit_writes_nothing(rig, name).await?;
    }
    Ok(())
}
