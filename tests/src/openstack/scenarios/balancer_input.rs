//! Annotations with wrong values: each causes one condition that names the annotation. Changes of
//! members continue.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::access_rules;
use crate::{
    openstack::{
        balancing::{
            ANNOTATION, add_node, add_nodes, annotated, delete_all, have_member, id, id_of,
            provisioned, quick, says, service,
        },
        rig::{Rig, SOON},
    },
    services,
};

/// The ID of nothing.
const NOTHING: &str = "0f0e0d0c-1111-4222-8333-00000000abcd";

/// Makes an internal load balancer.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// The fate of a wrong value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The value counts as the default, and an event says so.
    Ignored,
    /// Nothing is made, and a condition says why.
    Refused,
}
use Fate::{Ignored, Refused};

/// Each annotation with an invalid value.
const WRONG: [(&str, &str, Fate); 18] = [
    ("proxy-protocol", "v3", Ignored),
    ("connection-limit", "many", Ignored),
    ("timeout-client-data", "soon", Ignored),
    ("enable-health-monitor", "perhaps", Ignored),
    ("lb-method", "BY_CHANCE", Ignored),
    ("timeout-member-data", "-7", Refused),
    ("health-monitor-max-retries", "99", Refused),
    ("class", "gold", Refused),
    ("subnet-id", NOTHING, Refused),
    ("floating-network-id", NOTHING, Refused),
    ("flavor-id", NOTHING, Refused),
    ("availability-zone", "nowhere", Refused),
    ("load-balancer-tags", "kubernetes-service-uid=1", Refused),
    (INTERNAL, "perhaps", Ignored),
    ("port-id", NOTHING, Refused),
    ("network-id", NOTHING, Refused),
    ("member-subnet-id", NOTHING, Refused),
    ("floating-subnet-id", NOTHING, Refused),
];

/// Returns a Service with an annotation of the provider. A key with a `/` is written in full.
fn with(name: &str, key: &str, value: &str) -> Value {
    let mut wrong = service(name, 1);
    if key.contains('/') {
        wrong["metadata"]["annotations"][key] = value.into();
        return wrong;
    }
    annotated(wrong, key, value)
}

/// Returns the message about the annotation: in the Service's condition or in an event.
async fn told(rig: &Rig, name: &str, key: &str, fate: Fate) -> Result<String> {
    if fate == Refused {
        let said = says(rig, name, "InvalidConfiguration", SOON).await?;
        ensure!(said.contains(key), "it does not name the annotation: {said}");
        return Ok(said);
    }
    // It is created together with five others, and the event comes when it exists.
    poll::until(&format!("an event about {key}"), 3 * SOON, || async {
        let events = services::events(&rig.client, name).await?;
        let mut texts = events.into_iter().map(|(_, text)| text);
        Ok(texts.find(|text| text.contains(key)))
    })
    .await
}

pub(super) async fn each_wrong_annotation_is_named(rig: &Rig) -> Result<()> {
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    let other = &rig.cloud.other;
    let (subnet, network) = (other.subnet("other").await?, other.network("other").await?);
    let ports = other.create_ports(&["of-another-project".to_owned()], true).await?;
    let port = ports.first().context("no port")?;
    let foreign = [("subnet-id", &*subnet), ("network-id", &*network), ("port-id", &*port.id)];
    let foreign = foreign.map(|(key, value)| (key, value, Refused));
    let all = WRONG.into_iter().chain(foreign).enumerate();
    let all: Vec<_> = all.map(|(at, wrong)| (format!("wrong-{at}"), wrong)).collect();
    for (name, (key, value, _)) in &all {
        services::create(&rig.client, &with(name, key, value)).await?;
    }
    let mut problems = Vec::new();
    for (name, (key, value, fate)) in &all {
        match told(rig, name, key, *fate).await {
            Ok(said) => eprintln!("{key}={value}: {said}"),
            Err(error) => problems.push(format!("{key}={value}: {error:#}")),
        }
        if *fate == Ignored {
            services::address(&rig.client, name, SOON).await?;
        }
    }
    other.delete_port(&port.id).await?;
    ensure!(problems.is_empty(), "{}\n{}", problems.join("\n"), program.log());
    let names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    delete_all(rig, &names, 2 * SOON).await
}

/// A person has added another listener to the load balancer, at a port that the Service wants next.
pub(super) async fn a_listener_of_others_on_a_port_is_named_and_stays(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, &service("taken", 1)).await?;
    services::address(&rig.client, "taken", SOON).await?;
    provisioned(rig, "taken", SOON).await?;
    let balancer = id_of(rig, "taken").await?;
    let theirs = json!({"listener": {
        "name": "theirs", "protocol": "HTTP", "protocol_port": 8001, "loadbalancer_id": balancer,
        "tags": ["of-a-person"]
    }});
    let theirs = id(&user.create_balancer_part("listeners", theirs).await?)?;
    user.balancer_is(&balancer, "ACTIVE").await?;
    let ports = json!({"spec": {"ports": service("taken", 2)["spec"]["ports"]}});
    services::patch(&rig.client, "taken", ports).await?;
    let said = says(rig, "taken", "Conflict", SOON).await.with_context(|| program.log())?;
    ensure!(said.contains(&theirs) && said.contains("8001"), "it names the listener: {said}");
    eprintln!("a listener of others: {said}");
    let tree = user.balancer_tree(&balancer).await?;
    let there = tree["listeners"].as_array().is_some_and(|all| all.len() == 2);
    ensure!(there, "nothing has changed: {tree}");
    // The first port still works.
    let joined = add_node(rig, 3).await?;
    let all = std::slice::from_ref(&balancer);
    have_member(rig, all, &joined, SOON).await.with_context(|| program.log())?;

    // Octavia refuses this while it changes the members.
    poll::until("the listener to be deleted", SOON, || async {
        user.delete_balancer_part(&format!("listeners/{theirs}")).await.map(Some)
    })
    .await?;
    provisioned(rig, "taken", 3 * SOON).await.with_context(|| program.log())?;
    let listeners = user.balancer_parts(&format!("listeners?loadbalancer_id={balancer}")).await?;
    let ports: Vec<_> = listeners.iter().map(|one| &one["protocol_port"]).collect();
    ensure!(ports.len() == 2 && listeners.iter().all(|one| one["protocol"] == "TCP"), "{ports:?}");
    delete_all(rig, &["taken".to_owned()], 2 * SOON).await
}

pub(super) async fn members_go_on_while_the_configuration_is_wrong(rig: &Rig) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, &service("web", 1)).await?;
    services::address(&rig.client, "web", SOON).await?;
    provisioned(rig, "web", SOON).await?;
    let balancer = id_of(rig, "web").await?;
    let annotation = |value: Option<&str>| json!({"metadata": {"annotations": {format!("{ANNOTATION}class"): value}}});
    services::patch(&rig.client, "web", annotation(Some("gold"))).await?;
    says(rig, "web", "InvalidConfiguration", SOON).await?;
    let joined = add_node(rig, 3).await?;
    have_member(rig, &[balancer], &joined, SOON).await.with_context(|| program.log())?;
    services::patch(&rig.client, "web", annotation(None)).await?;
    provisioned(rig, "web", SOON).await?;

    // The listener is of another port of the same Service: the API server accepts TCP and UDP with
    // one number, and so does Octavia.
    let ports = json!([
        {"name": "tcp", "protocol": "TCP", "port": 53, "targetPort": 53},
        {"name": "udp", "protocol": "UDP", "port": 53, "targetPort": 53}
    ]);
    services::patch(&rig.client, "web", json!({"spec": {"ports": ports}})).await?;
    let web = id_of(rig, "web").await?;
    poll::until("a listener each for TCP and UDP", 2 * SOON, || async {
        let tree = rig.cloud.user.balancer_tree(&web).await?;
        Ok(tree["listeners"].as_array().is_some_and(|all| all.len() == 2).then_some(()))
    })
    .await
    .with_context(|| program.log())?;
    provisioned(rig, "web", 2 * SOON).await?;
    delete_all(rig, &["web".to_owned()], 2 * SOON).await
}

/// With the access rules of the page a load balancer is made, changed and deleted.
pub(super) async fn the_rules_of_the_page_are_enough(rig: &Rig) -> Result<()> {
    let rules = access_rules::rules_for("service-ccm")?;
    let account = access_rules::log_in(rig, "balancer", &rules).await?;
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    let mark = rig.cloud.proxy.log().mark();
    services::create(&rig.client, &service("ruled", 2)).await?;
    services::address(&rig.client, "ruled", SOON).await.with_context(|| program.log())?;
    provisioned(rig, "ruled", SOON).await?;
    let balancer = id_of(rig, "ruled").await?;
    // One port is removed and another one added, the check changes, and the address becomes
    // internal and external again.
    let ports = service("ruled", 3)["spec"]["ports"].take();
    let ports = json!({"spec": {"ports": ports.as_array().map(|all| &all[1..])}});
    services::patch(&rig.client, "ruled", ports).await?;
    let joined = add_node(rig, 3).await?;
    have_member(rig, &[balancer], &joined, 3 * SOON).await.with_context(|| program.log())?;
    for (key, value) in [
        ("loadbalancer.openstack.org/health-monitor-delay", "7"),
        ("loadbalancer.openstack.org/enable-health-monitor", "false"),
        ("service.beta.kubernetes.io/openstack-internal-load-balancer", "true"),
        ("service.beta.kubernetes.io/openstack-internal-load-balancer", "false"),
    ] {
        let change = json!({"metadata": {"annotations": {key: value}}});
        services::patch(&rig.client, "ruled", change).await?;
        sleep(Duration::from_secs(1)).await;
        provisioned(rig, "ruled", SOON).await.with_context(|| program.log())?;
    }
    delete_all(rig, &["ruled".to_owned()], 2 * SOON).await?;
    let refused: Vec<_> = rig.cloud.proxy.log().since(mark);
    let refused: Vec<_> =
        refused.iter().filter(|one| matches!(one.status, Some(401 | 403))).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    program.terminate().await?;
    rig.cloud.operator.delete_user(&account.id).await
}
