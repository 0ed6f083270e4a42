//! A Service shows only some addresses of its load balancer.

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use ccm_tests::{
    scenarios::{Env, SOON},
    services::{self, condition, service},
};
use serde_json::{Value, json};

use crate::common::{add_node, quick, quickly};

/// Returns a Service that asks for this address.
fn at(name: &str, address: &str) -> Value {
    let mut service = service(name);
    service["spec"]["loadBalancerIP"] = json!(address);
    service
}

async fn shows_reason(env: &Env, name: &str, reason: &str) -> Result<()> {
    let is_shown = |service: &_| {
        condition(service, "LoadBalancerServing").is_some_and(|(_, found)| found == reason)
    };
    services::wait_for(&env.client, name, reason, SOON, is_shown).await.map(drop)
}

async fn line(program: &Program, expect: &str) -> Result<()> {
    poll::until(expect, SOON, || async {
        Ok(program.get("/readyz?verbose").await?.1.contains(expect).then_some(()))
    })
    .await
}

/// The cloud assigns the addresses that tenants ask for: the address of the metadata service, and
/// the address of another Service in the cluster.
pub(crate) async fn an_address_of_the_cluster_is_shown_only_if_it_is_allowed(
    env: Env,
) -> Result<()> {
    add_node(&env, "node-0").await?;
    let leader = env.start(&quick(&env)).await?;
    let mut victim = service("victim");
    victim["spec"]["type"] = json!("ClusterIP");
    let victim = services::create(&env.client, &victim).await?;
    let taken = victim.spec.and_then(|spec| spec.cluster_ip).context("no cluster IP")?;
    for (name, address, why) in [
        ("metadata", "169.254.169.254", "is a link-local address"),
        ("neighbour", &*taken, "is the cluster IP of Service default/victim"),
    ] {
        services::create(&env.client, &at(name, address)).await?;
        shows_reason(&env, name, "AddressRefused").await.context(name)?;
        let refused = services::get(&env.client, name).await?;
        ensure!(services::addresses(&refused).is_empty(), "{refused:?}");
        let events = services::events(&env.client, name).await?;
        let is_told = events.iter().any(|(reason, text)| {
            reason == "LoadBalancerAddressRefused" && text.contains(&format!("{address} {why}"))
        });
        ensure!(is_told, "{name}: {events:?}");
    }
    line(&leader, "2 Services do not show everything from the provider").await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");

    let allowed = format!("--load-balancer-allowed-addresses=169.254.169.254,{taken}");
    let leader = env.start(&quick(&env).arg(allowed)).await?;
    for (name, address) in [("metadata", "169.254.169.254"), ("neighbour", &*taken)] {
        let shown = services::address(&env.client, name, SOON).await?;
        ensure!(shown == address, "{name}: {shown}");
    }
    line(&leader, "shown ok: Services show everything").await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");

    // service-ccm reports an address that the Service shows already, and leaves it there.
    let leader = env.start(&quick(&env)).await?;
    line(&leader, "which the Service shows already and keeps").await?;
    let shown = services::address(&env.client, "neighbour", SOON).await?;
    ensure!(shown == taken, "{shown}");
    Ok(())
}

/// The cloud writes two annotations, and nobody has confirmed them.
pub(crate) async fn annotations_of_the_provider_wait_for_a_word_of_the_operator(
    env: Env,
) -> Result<()> {
    add_node(&env, "node-0").await?;
    let leader = env.start(&quickly(env.launch("service-ccm"))).await?;
    services::create(&env.client, &service("web")).await?;
    services::address(&env.client, "web", SOON).await?;
    shows_reason(&env, "web", "Serving").await?;
    let keys = async || -> Result<Vec<String>> {
        let annotations = services::get(&env.client, "web").await?.metadata.annotations;
        Ok(annotations.unwrap_or_default().into_keys().collect())
    };
    let found = keys().await?;
    ensure!(found.iter().all(|key| key.starts_with("quartet.dev/")), "{found:?}");
    line(&leader, "is not below a prefix of --provider-annotation-prefixes").await?;
    ensure!(leader.terminate().await?.success(), "it ends in order");

    let leader = env.start(&quick(&env)).await?;
    poll::until("the annotation", SOON, || async {
        Ok(keys().await?.iter().any(|key| key == "sim/load-balancer-id").then_some(()))
    })
    .await?;
    line(&leader, "shown ok: Services show everything").await
}
