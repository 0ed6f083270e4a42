//! The state at the end: healthy nodes, a Service, and ideas for a person who wants to play.

use anyhow::{Context as _, Result};
use ccm_sim::poll;
use serde_json::json;

use super::{STEP_TIMEOUT, node, route};
use crate::{
    demo::{self, Demo},
    output::Output,
};

/// The Service that is left.
const SERVICE: &str = "web";

/// Registers the nodes whose objects were deleted again, as their kubelets do, and creates a
/// Service.
pub async fn run(demo: &Demo, output: &mut Output, count: usize) -> Result<()> {
    output.chapter("something to play with");
    output.step(&format!("{count} kubelets register again"), back(demo, count)).await;
    output.step("a Service", serve(demo)).await;
    Ok(())
}

async fn back(demo: &Demo, count: usize) -> Result<String> {
    for number in 0..count {
        let name = node::name(number);
        demo.cloud().add(demo::instance(&name));
        demo.register(&name)?;
    }
    for number in 0..count {
        demo.untainted(&node::name(number), STEP_TIMEOUT).await?;
    }
    poll::until("each node to have its route", STEP_TIMEOUT, || async {
        let waits = (0..count).any(|number| route::route(demo, &node::name(number)).is_err());
        Ok((!waits).then_some(()))
    })
    .await?;
    Ok(format!("{count} nodes are schedulable and have their routes"))
}

async fn serve(demo: &Demo) -> Result<String> {
    demo.create(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]}
    }))?;
    let key = format!("default/{SERVICE}");
    let address = poll::until("an address", STEP_TIMEOUT, || async {
        let service = demo.object("services", &key).context("the Service exists")?;
        Ok(service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned))
    })
    .await?;
    Ok(format!("{key} has the address {address}"))
}

/// Prints what a person can try.
pub async fn ideas(demo: &Demo, output: &Output) -> Result<()> {
    let (cloud, kubeconfig) = (demo.cloud_pages(), demo.kubeconfig());
    let (cidr, _) = route::route(demo, &node::name(0))?;
    let readyz = demo.url(node::PROGRAM, "/readyz?verbose").await?;
    output.say(format!("the simulated cloud: curl {cloud} lists its pages; three to try:"));
    output.say(format!("1. a route is lost, and route-ccm creates it again within ten seconds: curl -X DELETE {cloud}/routes/{cidr}; curl {cloud}/contents"));
    output.say(format!("2. credentials are refused for a minute, and node-ccm says so: curl {cloud}/faults -d '{{\"effect\": \"error\", \"kind\": \"unauthorized\", \"lasting\": \"1m\"}}'; sleep 15; curl '{readyz}'"));
    output.say(format!("3. the cloud becomes slow, and the Service waits for half a minute: curl {cloud}/settings -d '{{\"create\": \"30s\"}}'; kubectl --kubeconfig={kubeconfig} apply -f examples/service.yaml; kubectl --kubeconfig={kubeconfig} get services -w"));
    Ok(())
}
