//! A node registers and becomes schedulable.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::poll;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, runtime::watcher};
use serde_json::json;

use ccm_tests::scenarios::{Env, NODE_AGENT, SOON};
use ccm_tests::{cluster::audit, nodes};

pub(super) async fn a_new_node_becomes_schedulable(env: Env) -> Result<()> {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (api, log) = (Api::<Node>::all(env.client.clone()), seen.clone());
    let watch = async move {
        let mut stream = std::pin::pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = stream.try_next().await? {
            if let watcher::Event::Apply(node) | watcher::Event::InitApply(node) = event {
                log.lock().push((nodes::is_tainted(&node), nodes::addresses(&node).len()));
            }
        }
        anyhow::Ok(())
    };
    let act = async {
        initialise_one(&env).await?;
        poll::until("the watch to see the taint go", SOON, || async {
            Ok(seen.lock().iter().any(|(tainted, _)| !tainted).then_some(()))
        })
        .await
    };
    tokio::select! { ended = watch => { ended?; anyhow::bail!("the watch ended") }, done = act => done? }
    let seen = seen.lock().clone();
    ensure!(
        seen.iter().all(|(tainted, addresses)| *tainted || *addresses > 1),
        "schedulable without addresses: {seen:?}"
    );
    Ok(())
}

/// Initialises one node, which also has another taint.
async fn initialise_one(env: &Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    let instance = nodes::instance("node-1");
    env.cloud().add(instance.clone());
    let mut fresh = nodes::fresh("node-1");
    fresh["spec"]["taints"] = json!([
        {"key": "example.com/own", "effect": "NoExecute"},
        {"key": nodes::UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
    ]);
    nodes::register(&env.client, &fresh).await?;
    let node = env.initialised("node-1").await?;

    ensure!(nodes::has_taint(&node, "example.com/own"), "its own taint is kept");
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    ensure!(id.as_deref() == Some(instance.provider_id().as_str()), "provider ID is {id:?}");
    for (key, value) in [
        ("node.kubernetes.io/instance-type", &instance.instance_type),
        ("beta.kubernetes.io/instance-type", &instance.instance_type),
        ("topology.kubernetes.io/zone", &instance.zone),
        ("failure-domain.beta.kubernetes.io/zone", &instance.zone),
        ("topology.kubernetes.io/region", &instance.region),
        ("failure-domain.beta.kubernetes.io/region", &instance.region),
    ] {
        ensure!(
            nodes::label(&node, key) == value.as_deref(),
            "label {key} is {:?}",
            nodes::label(&node, key)
        );
    }
    let expected: Vec<_> = instance
        .addresses
        .iter()
        .map(|entry| format!("{}={}", entry.kind, entry.address))
        .collect();
    ensure!(
        nodes::addresses(&node).starts_with(&expected),
        "addresses are {:?}",
        nodes::addresses(&node)
    );
    ensure!(
        nodes::addresses(&node).contains(&"Hostname=node-1".to_owned()),
        "kubelet's own host name is kept"
    );

    let writes: Vec<_> =
        env.node_writes(NODE_AGENT).await?.iter().map(audit::Request::what).collect();
    ensure!(writes == ["patch nodes/status", "patch nodes"], "writes are {writes:?}");
    nodes::event(&env.client, "node-1", "Synced: Node synced successfully", SOON).await?;
    let synced = program.metric("node_controller_initial_node_sync_delay_seconds_count").await?;
    ensure!((synced - 1.0).abs() < f64::EPSILON, "one node was observed, not {synced}");
    Ok(())
}

pub(super) async fn a_burst_costs_two_writes_a_node_and_few_cloud_calls(env: Env) -> Result<()> {
    const NODES: usize = 200;
    let _program = env.start(&env.node_ccm()).await?;
    let names: Vec<_> = (0..NODES).map(|number| format!("node-{number}")).collect();
    for name in &names {
        env.cloud().add(nodes::instance(name));
    }
    let before = env.cloud_calls();
    nodes::register_all(&env.client, names.iter().map(|name| nodes::fresh(name)).collect(), 16)
        .await?;
    nodes::all_initialised(&env.client, 4 * SOON).await?;

    let calls = env.cloud_calls() - before;
    ensure!(calls <= 20, "{NODES} nodes took {calls} cloud calls");
    let mut writes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in
        env.requests(NODE_AGENT).await?.iter().filter(|request| request.resource == "nodes")
    {
        ensure!(request.verb != "get", "a node was read: {request:?}");
        if request.is_write() {
            writes.entry(request.name.clone()).or_default().push(request.what());
        }
    }
    ensure!(writes.len() == NODES, "{} nodes were written", writes.len());
    let odd = writes.iter().find(|(_, what)| **what != ["patch nodes/status", "patch nodes"]);
    ensure!(odd.is_none(), "not two writes: {odd:?}");
    Ok(())
}

pub(super) async fn foreign_nodes_and_foreign_taints_are_left_alone(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    let mut foreign = nodes::fresh("foreign-1");
    foreign["spec"]["providerID"] = json!("elsewhere://i-1");
    nodes::register(&env.client, &foreign).await?;
    let mut ours = nodes::fresh("node-1");
    ours["spec"]["taints"] = json!([
        {"key": "example.com/first", "effect": "NoExecute"},
        {"key": nodes::UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
        {"key": "example.com/second", "value": "x", "effect": "PreferNoSchedule"},
    ]);
    env.cloud().add(nodes::instance("node-1"));
    nodes::register(&env.client, &ours).await?;

    let node = env.initialised("node-1").await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let keys: Vec<_> = taints
        .iter()
        .map(|taint| taint.key.as_str())
        .filter(|key| key.starts_with("example"))
        .collect();
    ensure!(keys == ["example.com/first", "example.com/second"], "taints are {taints:?}");

    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(
        nodes::is_tainted(&nodes::get(&env.client, "foreign-1").await?),
        "the foreign node was touched"
    );
    let touched =
        env.node_writes(NODE_AGENT).await?.into_iter().find(|request| request.name == "foreign-1");
    ensure!(touched.is_none(), "the foreign node was written: {touched:?}");
    let counted = program.metric("ccm_node_foreign_nodes").await?;
    ensure!((counted - 1.0).abs() < f64::EPSILON, "one foreign node is counted, not {counted}");
    let waits = "stays tainted until the controller of its cloud initialises it";
    nodes::event(&env.client, "foreign-1", waits, Duration::from_secs(10)).await?;
    let types = nodes::event_types(&env.client, "foreign-1", "ForeignNode").await?;
    ensure!(types == ["Warning"], "{types:?}");
    let log = program.log();
    let line = log.lines().find(|line| line.contains("Skip sync node foreign-1"));
    ensure!(line.is_some_and(|line| line.contains("node_ccm::report")), "{line:?}");
    Ok(())
}

pub(super) async fn an_illegal_label_is_dropped_with_an_event(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let mut instance = nodes::instance("node-1");
    instance.zone = Some("zone one".to_owned());
    instance.labels.insert("example.com/good".to_owned(), "yes".to_owned());
    instance.labels.insert("example.com/bad".to_owned(), "not a legal value!".to_owned());
    env.cloud().add(instance);
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;

    let node = env.initialised("node-1").await?;
    ensure!(nodes::label(&node, "example.com/good") == Some("yes"), "the legal label is set");
    ensure!(nodes::label(&node, "example.com/bad").is_none(), "the illegal label is not");
    ensure!(
        nodes::label(&node, "topology.kubernetes.io/zone").is_none(),
        "the illegal zone is not guessed at"
    );
    nodes::event(&env.client, "node-1", "example.com/bad", SOON).await?;
    Ok(())
}

pub(super) async fn a_refused_node_ip_is_reported_until_it_is_corrected(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let mut instance = nodes::instance("node-1");
    instance.addresses.push(NodeAddress::new(AddressKind::InternalIp, "10.99.0.7"));
    env.cloud().add(instance);
    let mut node = nodes::fresh("node-1");
    node["metadata"]["annotations"] = json!({"alpha.kubernetes.io/provided-node-ip": "192.0.2.77"});
    nodes::register(&env.client, &node).await?;

    nodes::event(&env.client, "node-1", "192.0.2.77", SOON).await?;
    ensure!(nodes::is_tainted(&nodes::get(&env.client, "node-1").await?), "it stays tainted");
    ensure!(env.node_writes(NODE_AGENT).await?.is_empty(), "and unwritten");

    let annotation =
        json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": "10.99.0.7"}}});
    nodes::patch(&env.client, "node-1", annotation).await?;
    let node = nodes::wait_for(&env.client, "node-1", "initialised", 2 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    let first = nodes::addresses(&node).into_iter().next().context("addresses")?;
    ensure!(first == "InternalIP=10.99.0.7", "the wanted address is the first, not {first}");
    Ok(())
}

pub(super) async fn concurrent_writes_of_the_kubelet_are_kept(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let client = env.client.clone();
    let kubelet = async {
        for round in 0.. {
            for number in 0..5 {
                let beat =
                    json!({"metadata": {"annotations": {"example.com/beat": format!("{round}")}}});
                // The node may not be registered yet.
                nodes::patch(&client, &format!("node-{number}"), beat).await.ok();
            }
            // Without a pause a busy machine writes each node again before node-ccm has seen it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let act = async {
        for number in 0..5 {
            env.add_node(&format!("node-{number}")).await?;
        }
        for number in 0..5 {
            let node = env.initialised(&format!("node-{number}")).await?;
            ensure!(
                nodes::addresses(&node).len() > 1,
                "addresses are {:?}",
                nodes::addresses(&node)
            );
        }
        anyhow::Ok(())
    };
    tokio::select! { () = kubelet => anyhow::bail!("the kubelet ended"), done = act => done }
}
