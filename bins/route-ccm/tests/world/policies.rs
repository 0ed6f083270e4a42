//! Policies of a real API server that take back what the programs write, and a rival that writes
//! the condition.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault, Trouble},
    poll,
};
use ccm_tests::{
    nodes,
    policies::Policy,
    scenarios::{Env, SOON, with_short_terms},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::common::{add, cidr, name, node, pod_cidrs, with_cidrs};

/// The nodes by what happens to them: a policy takes back their taint's removal, label and pod
/// CIDRs; a rival sets their condition.
const POLICY: std::ops::Range<usize> = 0..3;
const RIVAL: std::ops::Range<usize> = 3..6;
/// The label that the policy removes.
const ZONE: &str = "topology.kubernetes.io/zone";
/// How long the nodes are watched; `QUARTET_PATIENCE` is another number of seconds.
const PATIENCE: u64 = 20;

/// Taints and pod CIDRs stay as they are, and the label goes.
const TAKES_BACK: &str = "(has(oldObject.spec.taints) ? [JSONPatch{op: \"add\", path: \"/spec/taints\", value: oldObject.spec.taints}] : []) \
    + (has(object.spec.podCIDRs) && !has(oldObject.spec.podCIDRs) ? [JSONPatch{op: \"remove\", path: \"/spec/podCIDRs\"}, JSONPatch{op: \"remove\", path: \"/spec/podCIDR\"}] : []) \
    + (has(object.metadata.labels) && \"topology.kubernetes.io/zone\" in object.metadata.labels \
       ? [JSONPatch{op: \"remove\", path: \"/metadata/labels/topology.kubernetes.io~1zone\"}] : [])";

/// Like cilium-operator: whenever the condition is not False, it sets it.
async fn rival(env: &Env) -> Result<()> {
    loop {
        for number in RIVAL {
            let node = nodes::get(&env.client, &name(number)).await?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions
                .iter()
                .any(|one| one.type_ == "NetworkUnavailable" && one.status == "False")
            {
                continue;
            }
            let set = json!({"status": {"conditions": [{
                "type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp", "message": "up"}]}});
            nodes::patch_status(&env.client, &name(number), set).await.ok();
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Neither a policy nor a rival makes the programs write without end, and each is reported once.
pub(crate) async fn what_is_taken_back_costs_a_write_a_minute(env: Env) -> Result<()> {
    let patience = std::env::var("QUARTET_PATIENCE").ok().and_then(|text| text.parse().ok());
    let patience = Duration::from_secs(patience.unwrap_or(PATIENCE));
    let quota = CloudError::new(ErrorKind::QuotaExceeded, "the router is full");
    let full = Effect::Routes(RIVAL.map(name).collect(), Trouble::Fail(quota));
    env.cloud().faults().add(Fault::new(full).on(Operation::ApplyRoutes));
    for number in RIVAL {
        add(&env, &node(&name(number), &[&cidr(number)])).await?;
    }
    nodes::register(&env.client, &nodes::fresh("probe")).await?;
    let policy = Policy::of_nodes(&env.client, "takes-back", TAKES_BACK).await?;
    policy.takes_back("probe", ZONE).await?;
    for number in POLICY {
        env.add_node(&name(number)).await?;
    }
    let began = Instant::now();
    let _routes = env.start(&with_cidrs(&env, "10.244.0.0/16")).await?;
    let _nodes = env.start(&with_short_terms(env.launch("node-ccm"))).await?;
    tokio::select! {
        ended = rival(&env) => ended.context("the rival")?,
        () = sleep(patience) => (),
    }
    check(&env, began.elapsed()).await?;
    policy.remove().await?;
    for number in POLICY {
        let name = name(number);
        nodes::wait_for(&env.client, &name, "no longer tainted", 3 * SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await?;
        poll::until("pod CIDRs", 3 * SOON, || async {
            Ok((!pod_cidrs(&env, &name).await?.is_empty()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Counts the writes within this time, and the events.
async fn check(env: &Env, time: Duration) -> Result<()> {
    let minutes = usize::try_from(time.as_secs() / 60)?;
    for number in POLICY.chain(RIVAL) {
        let name = name(number);
        for agent in ["node-ccm/", "route-ccm/"] {
            let writes = env.node_writes(agent).await?;
            let count = writes.iter().filter(|write| write.name == name).count();
            eprintln!("{name}: {count} writes of {agent} in {} s", time.as_secs());
            let most = if minutes == 0 { 5 } else { 12.min(5 + minutes) };
            let whats: Vec<_> = writes.iter().filter(|write| write.name == name).collect();
            ensure!(
                count <= most,
                "{name}: {count} writes of {agent}, at most {most} may be: {whats:?}, {:?}",
                nodes::events(&env.client, &name).await?
            );
        }
        let events = nodes::events(&env.client, &name).await?;
        for kind in ["taints", "podCIDRs", "NetworkUnavailable"] {
            let about =
                |event: &&String| event.contains(kind) && event.contains("answered as done");
            let told = events.iter().filter(about).count();
            ensure!(told <= 1, "{name}: {told} events about {kind}: {events:?}");
        }
        ensure!(!events.iter().any(|event| event.starts_with("Synced")), "{name}: {events:?}");
        let is_told =
            POLICY.contains(&number) == events.iter().any(|event| event.contains("taints"));
        ensure!(is_told, "{name}: {events:?}");
    }
    Ok(())
}
