//! Measures the capacity of the API server itself with a client that only makes the two writes that
//! initialise a node. This is the yardstick for the controller, and the measurement that decided
//! about the kind of patch.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_tests::{cluster::Cluster, nodes};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use crate::burst::{self, Timing};

/// How many writes the plain client, like the controller, has in flight.
const IN_FLIGHT: usize = 32;
/// How many kubelets register at once.
const REGISTERING: usize = 16;

/// The ways to write a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch, as node-ccm writes.
    Strategic,
    /// The whole object.
    Put,
}

/// Compares the kinds of write by the API server's processor time and by duration.
pub async fn compare_patches(cluster: &Cluster, count: usize) -> Result<()> {
    println!(
        "\n-- which write costs the API server least ({count} nodes of 10 KB, two writes each, {IN_FLIGHT} in flight)"
    );
    let client = cluster.client().await?;
    let real = cluster.real().context("this measures a real API server")?;
    for round in 1..=2 {
        for writing in [Writing::Merge, Writing::Strategic, Writing::Put] {
            let names = burst::names(count);
            let fresh = names.iter().map(|name| nodes::realistic(name, 10)).collect();
            nodes::register_all(&client, fresh, REGISTERING).await?;
            let (cpu, start) = (real.apiserver_cpu_seconds()?, Instant::now());
            stream::iter(&names)
                .map(|name| initialise(&client, name, writing))
                .buffer_unordered(IN_FLIGHT)
                .try_collect::<Vec<()>>()
                .await?;
            let (took, used) = (start.elapsed().as_secs_f64(), real.apiserver_cpu_seconds()? - cpu);
            println!(
                "round {round}, {writing:?}: {:.1} ms of API server CPU a node, {:.0} nodes/s",
                used * 1000.0 / count as f64,
                count as f64 / took
            );
            burst::remove_all(&client).await?;
        }
    }
    Ok(())
}

/// Registers `count` nodes at once and initialises each as soon as it is registered.
pub async fn registering(client: &Client, count: usize) -> Result<Timing> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let start = Instant::now();
    let register = async move {
        stream::iter(burst::names(count))
            .map(|name| {
                let sender = sender.clone();
                async move {
                    nodes::register(client, &nodes::realistic(&name, 10)).await?;
                    sender.send((name, Instant::now())).context("the other half has ended")
                }
            })
            .buffer_unordered(REGISTERING)
            .try_collect::<Vec<()>>()
            .await
    };
    let initialise = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|node| (node, receiver))
    })
    .map(|(name, registered)| async move {
        self::initialise(client, &name, Writing::Strategic).await?;
        anyhow::Ok(registered.elapsed())
    })
    .buffer_unordered(IN_FLIGHT)
    .try_collect::<Vec<Duration>>();
    let (_, waits) = futures::try_join!(register, initialise)?;
    Ok(Timing::new(count, start.elapsed(), waits))
}

/// Initialises `count` registered nodes and returns how many per second.
pub async fn backlog(client: &Client, count: usize) -> Result<f64> {
    let start = Instant::now();
    stream::iter(burst::names(count))
        .map(|name| async move { initialise(client, &name, Writing::Strategic).await })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Makes the two writes.
async fn initialise(client: &Client, name: &str, writing: Writing) -> Result<()> {
    let api = Api::<Node>::all(client.clone());
    let params = PatchParams::default();
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}]);
    match writing {
        Writing::Strategic => {
            let mut list = vec![json!({"$patch": "replace"})];
            list.extend(addresses.as_array().cloned().unwrap_or_default());
            let written = api
                .patch_status(
                    name,
                    &params,
                    &Patch::Strategic(json!({"status": {"addresses": list}})),
                )
                .await?;
            let version = written.metadata.resource_version;
            api.patch(name, &params, &Patch::Strategic(main_patch(version.as_deref(), name)))
                .await?;
        }
        Writing::Merge => {
            let written = api
                .patch_status(
                    name,
                    &params,
                    &Patch::Merge(json!({"status": {"addresses": addresses}})),
                )
                .await?;
            let version = written.metadata.resource_version;
            api.patch(name, &params, &Patch::Merge(main_patch(version.as_deref(), name))).await?;
        }
        Writing::Put => put(&api, name, addresses).await?,
    }
    Ok(())
}

async fn put(api: &Api<Node>, name: &str, addresses: Value) -> Result<()> {
    let mut node = serde_json::to_value(api.get(name).await?)?;
    node["status"]["addresses"] = addresses;
    let node =
        api.replace_status(name, &PostParams::default(), &serde_json::from_value(node)?).await?;
    let mut value = serde_json::to_value(&node)?;
    let patch = main_patch(node.metadata.resource_version.as_deref(), name);
    value["spec"]["providerID"] = patch["spec"]["providerID"].clone();
    value["spec"]["taints"] = json!([]);
    for (key, label) in patch["metadata"]["labels"].as_object().context("labels")? {
        value["metadata"]["labels"][key] = label.clone();
    }
    api.replace(name, &PostParams::default(), &serde_json::from_value(value)?).await?;
    Ok(())
}

fn main_patch(version: Option<&str>, name: &str) -> Value {
    json!({
        "metadata": {
            "resourceVersion": version,
            "labels": {
                "beta.kubernetes.io/instance-type": "m1.large", "node.kubernetes.io/instance-type": "m1.large",
                "failure-domain.beta.kubernetes.io/zone": "zone-1", "topology.kubernetes.io/zone": "zone-1",
                "failure-domain.beta.kubernetes.io/region": "region-1", "topology.kubernetes.io/region": "region-1",
            }
        },
        "spec": {"providerID": format!("sim://{name}"), "taints": []}
    })
}
