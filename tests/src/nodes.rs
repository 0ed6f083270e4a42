//! Nodes as a kubelet registers them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::{cloud::SimInstance, poll};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// The taint of a node whose machine is shut down.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The taint that the kubelet sets with `--cloud-provider=external`.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Returns a node that the kubelet has just registered, without addresses.
pub fn fresh(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "systemUUID": uuid_of(name), "machineID": "", "bootID": "", "kernelVersion": "6.1.0", "osImage": "Debian GNU/Linux 12",
                "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64"
            }
        }
    })
}

/// Returns an initialised node: without the taint and with the ID of its [`instance`].
pub fn initialised(name: &str) -> Value {
    let mut node = fresh(name);
    node["spec"] = json!({"providerID": instance(name).provider_id().as_str()});
    node
}

/// Returns the node with this status of its condition Ready: `True`, `False` or `Unknown`.
pub fn with_ready(mut node: Value, status: &str) -> Value {
    node["status"]["conditions"] = conditions(status);
    node
}

fn conditions(ready: &str) -> Value {
    json!([{"type": "Ready", "status": ready, "reason": "ScenarioSaysSo"}])
}

/// Returns the instance behind the node of this name, with all fields set.
pub fn instance(name: &str) -> SimInstance {
    let uuid = uuid_of(name);
    let mut instance = SimInstance::new(format!("i-{name}"), name);
    instance.instance_type = Some("m1.large".to_owned());
    instance.zone = Some("zone-1".to_owned());
    instance.region = Some("region-1".to_owned());
    instance.addresses = vec![
        NodeAddress::new(AddressKind::InternalIp, format!("10.{}", address_of(name))),
        NodeAddress::new(AddressKind::ExternalIp, format!("198.{}", address_of(name))),
    ];
    instance.system_uuid = Some(uuid);
    instance
}

/// Returns the last three parts of an IPv4 address, derived from the name.
fn address_of(name: &str) -> String {
    let number =
        name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{}.{}.{}", number >> 16 & 0xff, number >> 8 & 0xff, number & 0xff)
}

/// Returns a system UUID, derived from the name.
pub fn uuid_of(name: &str) -> String {
    uuid::Uuid::from_u128(
        name.bytes().fold(0, |sum: u128, byte| sum.wrapping_mul(257).wrapping_add(byte.into())),
    )
    .to_string()
}

/// Returns a node as large as in a busy cluster: about `kib` KiB of JSON, most of it the list of
/// images.
pub fn realistic(name: &str, kib: usize) -> Value {
    const PER_IMAGE: usize = 200;
    let mut node = fresh(name);
    let images: Vec<_> = (0..kib * 1024 / PER_IMAGE)
        .map(|n| {
            let digest = format!("{n:04x}").repeat(16);
            json!({"names": [format!("registry.example/team-{n}/service-{n}@sha256:{digest}"), format!("registry.example/team-{n}/service-{n}:v1.{n}.0")], "sizeBytes": 30_000_000 + n})
        })
        .collect();
    node["status"]["images"] = images.into();
    node["metadata"]["annotations"] = json!({
        "csi.volume.kubernetes.io/nodeid": format!("{{\"csi.example.com\":\"{name}\"}}"),
        "volumes.kubernetes.io/controller-managed-attach-detach": "true"
    });
    node
}

/// Registers this node.
pub async fn register(client: &Client, node: &Value) -> Result<()> {
    let node: Node = serde_json::from_value(node.clone())?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    Ok(())
}

/// Registers several nodes, `at_once` at a time.
pub async fn register_all(client: &Client, nodes: Vec<Value>, at_once: usize) -> Result<()> {
    stream::iter(nodes)
        .map(|node| async move { register(client, &node).await })
        .buffer_unordered(at_once)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Returns the node, read from the API server.
pub async fn get(client: &Client, name: &str) -> Result<Node> {
    Ok(Api::<Node>::all(client.clone()).get(name).await?)
}

/// Changes the node's main resource by a merge patch.
pub async fn patch(client: &Client, name: &str, patch: Value) -> Result<Node> {
    Ok(Api::<Node>::all(client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?)
}

/// Sets the node's condition Ready, as the kubelet or kube-controller-manager does.
pub async fn set_ready(client: &Client, name: &str, status: &str) -> Result<()> {
    patch_status(client, name, json!({"status": {"conditions": conditions(status)}})).await
}

/// Patches the status of the node.
pub async fn patch_status(client: &Client, name: &str, patch: Value) -> Result<()> {
    let (api, patch) = (Api::<Node>::all(client.clone()), Patch::Strategic(patch));
    api.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes the node, as an operator does before the kubelet registers it again.
pub async fn delete(client: &Client, name: &str) -> Result<()> {
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Returns the names of all nodes.
pub async fn names(client: &Client) -> Result<BTreeSet<String>> {
    let list = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    Ok(list.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

/// Waits until the node of this name is gone.
pub async fn gone(client: &Client, name: &str, limit: Duration) -> Result<()> {
    let api = Api::<Node>::all(client.clone());
    let gone = poll::until(&format!("node {name} to be gone"), limit, || async {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await;
    match gone {
        Ok(()) => Ok(()),
        Err(error) => Err(error).context(format!("events: {:?}", events(client, name).await?)),
    }
}

/// Checks during `time` that none of these nodes is deleted, even if it is registered again.
pub async fn stay(client: &Client, names: &[&str], time: Duration) -> Result<()> {
    let uids = async || {
        let list = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
        let wanted =
            |name: &Option<String>| name.as_deref().is_some_and(|name| names.contains(&name));
        let found = list.items.into_iter().filter(|node| wanted(&node.metadata.name));
        anyhow::Ok(
            found.map(|node| (node.metadata.name, node.metadata.uid)).collect::<BTreeSet<_>>(),
        )
    };
    let before = uids().await?;
    anyhow::ensure!(before.len() == names.len(), "of {names:?} only {before:?} exist");
    poll::always("all nodes stay", time, || async {
        let now = uids().await?;
        anyhow::ensure!(now == before, "nodes were {before:?} and are {now:?}");
        Ok(())
    })
    .await
}

/// Returns true if the node has a taint of this key.
pub fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

/// Returns true if the node still has the uninitialized taint.
pub fn is_tainted(node: &Node) -> bool {
    has_taint(node, UNINITIALIZED)
}

/// Returns the node's addresses as `InternalIP=10.0.0.1`.
pub fn addresses(node: &Node) -> Vec<String> {
    let list = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    list.map(|list| list.iter().map(|entry| format!("{}={}", entry.type_, entry.address)).collect())
        .unwrap_or_default()
}

/// Returns one label of the node.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Waits until the node meets the condition and returns it.
pub async fn wait_for(
    client: &Client,
    name: &str,
    what: &str,
    limit: Duration,
    wanted: impl Fn(&Node) -> bool,
) -> Result<Node> {
    let mut last = None;
    let end = tokio::time::Instant::now() + limit;
    while tokio::time::Instant::now() < end {
        let node = get(client, name).await?;
        if wanted(&node) {
            return Ok(node);
        }
        last = Some(node);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seen = last.map(|node| serde_json::to_string(&node)).transpose()?.unwrap_or_default();
    anyhow::bail!("node {name}: after {limit:?} not yet: {what}; it is {seen}")
}

/// Waits until no node is tainted and returns the number of nodes.
pub async fn all_initialised(client: &Client, limit: Duration) -> Result<usize> {
    let api = Api::<Node>::all(client.clone());
    poll::until("all nodes to be initialised", limit, || async {
        let list = api.list(&ListParams::default()).await?;
        let waiting = list.items.iter().filter(|node| is_tainted(node)).count();
        anyhow::ensure!(waiting == 0, "{waiting} of {} nodes are still tainted", list.items.len());
        Ok(Some(list.items.len()))
    })
    .await
}

/// Returns the events about an object of this name: `Reason: message`.
pub async fn events(client: &Client, name: &str) -> Result<Vec<String>> {
    let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let list = Api::<Event>::all(client.clone()).list(&params).await?;
    Ok(list.items.iter().map(line).collect())
}

fn line(event: &Event) -> String {
    let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
    format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
}

/// Returns the warnings about an object of this name, `Reason: message`, and how often each was
/// reported.
pub async fn warnings(client: &Client, name: &str) -> Result<Vec<(String, i32)>> {
    let params = ListParams::default().fields(&format!("involvedObject.name={name},type=Warning"));
    let list = Api::<Event>::all(client.clone()).list(&params).await?;
    let times = |event: &Event| match &event.series {
        Some(series) => series.count.unwrap_or(1),
        None => event.count.unwrap_or(1),
    };
    Ok(list.items.iter().map(|event| (line(event), times(event))).collect())
}

/// Returns the types of the events with this reason about an object of this name: `Normal`,
/// `Warning`.
pub async fn event_types(client: &Client, name: &str, reason: &str) -> Result<Vec<String>> {
    let params =
        ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
    let list = Api::<Event>::all(client.clone()).list(&params).await?;
    Ok(list.items.into_iter().filter_map(|event| event.type_).collect())
}

/// How much later an event comes if the API server was too busy for its first try.
const RETRIED: Duration = Duration::from_secs(20);

/// Waits for an event about this object that contains `part`.
pub async fn event(client: &Client, name: &str, part: &str, limit: Duration) -> Result<String> {
    poll::until(&format!("an event about {name} with {part:?}"), limit + RETRIED, || async {
        let lines = events(client, name).await?;
        let found = lines.iter().find(|line| line.contains(part)).cloned();
        found.map(Some).with_context(|| format!("events are {lines:?}"))
    })
    .await
}
