//! Helpers that these scenarios share.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{cloud::routes::SimRoute, poll, program::Launch};
use ccm_tests::{
    cluster::Request,
    nodes,
    scenarios::{Env, SOON, with_short_terms},
};
use ipnet::IpNet;
use serde_json::{Value, json};

/// The user agent that all clients of route-ccm start with.
pub(crate) const AGENT: &str = "route-ccm/";

/// The networks of the pods.
pub(crate) const CLUSTER_CIDRS: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56";

/// Returns a route-ccm for this cluster and cloud.
pub(crate) fn route_ccm(env: &Env) -> Launch {
    env.launch("route-ccm").arg(CLUSTER_CIDRS)
}

/// Returns a route-ccm with short terms, periods and time limits.
pub(crate) fn quick(env: &Env) -> Launch {
    with_quick_terms(route_ccm(env))
}

fn with_quick_terms(launch: Launch) -> Launch {
    with_short_terms(launch).arg("--route-reconciliation-period=10s").arg("--cloud-call-timeout=2s")
}

/// Lets this route-ccm also give nodes their pod CIDRs: /24 blocks of this network.
pub(crate) fn with_cidrs(env: &Env, network: &str) -> Launch {
    with_quick_terms(env.launch("route-ccm"))
        .arg("--allocate-node-cidrs")
        .arg(format!("--cluster-cidr={network}"))
}

/// Returns the name of a node by its number.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number:02}")
}

/// Returns the pod CIDR of the node with this number.
pub(crate) fn cidr(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Returns an initialised node with the address of its instance and these pod CIDRs.
pub(crate) fn node(name: &str, cidrs: &[&str]) -> Value {
    let mut node = nodes::initialised(name);
    node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": address(name).to_string()},
        {"type": "Hostname", "address": name},
    ]);
    if let Some(first) = cidrs.first() {
        node["spec"]["podCIDR"] = json!(first);
        node["spec"]["podCIDRs"] = json!(cidrs);
    }
    node
}

/// Returns the address of a node's instance.
pub(crate) fn address(name: &str) -> IpAddr {
    let addresses = nodes::instance(name).addresses;
    addresses
        .first()
        .and_then(|first| first.address.parse().ok())
        .unwrap_or(IpAddr::from([0, 0, 0, 0]))
}

/// Registers a node, and creates its instance.
pub(crate) async fn add(env: &Env, node: &Value) -> Result<()> {
    let name = node["metadata"]["name"].as_str().context("a node has a name")?;
    env.cloud().add(nodes::instance(name));
    nodes::register(&env.client, node).await
}

/// Registers the nodes with these numbers, each with its pod CIDR.
pub(crate) async fn add_nodes(env: &Env, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
    for number in numbers {
        add(env, &node(&name(number), &[&cidr(number)])).await?;
    }
    Ok(())
}

/// Registers the nodes with these numbers, without pod CIDRs.
pub(crate) async fn add_bare_nodes(
    env: &Env,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<()> {
    for number in numbers {
        add(env, &node(&name(number), &[])).await?;
    }
    Ok(())
}

/// Returns the pod CIDRs of a node.
pub(crate) async fn pod_cidrs(env: &Env, name: &str) -> Result<Vec<String>> {
    let spec = nodes::get(&env.client, name).await?.spec.unwrap_or_default();
    Ok(spec.pod_cidrs.unwrap_or_default())
}

/// Deletes the nodes with these numbers.
pub(crate) async fn delete_nodes(
    env: &Env,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<()> {
    for number in numbers {
        nodes::delete(&env.client, &name(number)).await?;
    }
    Ok(())
}

/// Returns a network.
pub(crate) fn net(text: &str) -> Result<IpNet> {
    text.parse().with_context(|| format!("{text} is not a network"))
}

/// Returns the routes of the cloud: destination and target.
pub(crate) fn routes(env: &Env) -> BTreeMap<String, String> {
    let shown = |route: SimRoute| {
        let target = route.target.map_or_else(|| "nothing".to_owned(), |target| target.to_string());
        (route.destination.to_string(), target)
    };
    env.cloud().router().all().into_iter().map(shown).collect()
}

/// Returns the routes that the nodes with these numbers need.
pub(crate) fn wanted(numbers: impl IntoIterator<Item = usize>) -> BTreeMap<String, String> {
    numbers.into_iter().map(|number| (cidr(number), address(&name(number)).to_string())).collect()
}

/// Waits until the nodes with these numbers have their routes, and there is no other one.
pub(crate) async fn routed(env: &Env, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
    let wanted = wanted(numbers);
    poll::until("the routes of all nodes", SOON, || async {
        let found = routes(env);
        ensure!(found == wanted, "the routes are {found:?}, and not {wanted:?}");
        Ok(Some(()))
    })
    .await
}

/// Returns the condition `NetworkUnavailable` of a node: status, reason and message.
pub(crate) async fn condition(env: &Env, name: &str) -> Result<Option<[String; 3]>> {
    let node = nodes::get(&env.client, name).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
    Ok(found.map(|found| {
        [found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default()]
    }))
}

/// Waits until the condition of a node has this status and reason, and returns its message.
pub(crate) async fn shows(env: &Env, name: &str, status: &str, reason: &str) -> Result<String> {
    poll::until(&format!("NetworkUnavailable={status}/{reason} of {name}"), SOON, || async {
        let found = condition(env, name).await?;
        let events = || async { nodes::events(&env.client, name).await };
        match found {
            Some([is, why, message]) if is == status && why == reason => Ok(Some(message)),
            found => anyhow::bail!("it is {found:?}; events: {:?}", events().await?),
        }
    })
    .await
}

/// Waits until the nodes with these numbers are shown as reachable.
pub(crate) async fn reachable(env: &Env, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
    for number in numbers {
        shows(env, &name(number), "False", "RouteCreated").await?;
    }
    Ok(())
}

/// Fails unless the program has written each of these nodes exactly once, and no other one.
pub(crate) async fn written_once(
    env: &Env,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<()> {
    let mut written: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for write in env.node_writes(AGENT).await? {
        ensure!(write.code == 200, "{write:?}");
        written.entry(write.name.clone()).or_default().push(write.what());
    }
    let once = || vec!["patch nodes/status".to_owned()];
    let expected: BTreeMap<_, _> =
        numbers.into_iter().map(|number| (name(number), once())).collect();
    ensure!(written == expected, "written {written:?}");
    Ok(())
}

/// Returns the program's writes to the condition of one node.
pub(crate) async fn writes_to(env: &Env, name: &str) -> Result<Vec<Request>> {
    let mut all = env.node_writes(AGENT).await?;
    all.retain(|write| write.name == name);
    Ok(all)
}
