//! route-ccm: a node gets its pod CIDR, then the route to it, and then its condition.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{CloudError, ErrorKind, RouteTarget};
use ccm_sim::{
    cloud::{Operation, routes::SimRoute},
    faults::{Fault, FaultEffect, Trouble},
    poll,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::STEP_TIMEOUT;
use crate::{
    demo::{self, Demo},
    output::Output,
};

/// The program of this chapter.
pub const PROGRAM: &str = "route-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] =
    &["--cluster-cidr=10.64.0.0/12", "--allocate-node-cidrs", "--route-reconciliation-period=10s"];

/// The nodes of this chapter.
const NODE: &str = "node-9200";
const REFUSED: &str = "node-9201";

/// Routes that others have made: one outside the cluster CIDR, and one inside.
const FOREIGN: [&str; 2] = ["192.168.0.0/24", "10.79.0.0/24"];

/// Runs the chapter.
pub async fn run(demo: &Demo, output: &mut Output) -> Result<()> {
    output.chapter("route-ccm: pod CIDRs and routes");
    output.step("two replicas run, one leads", super::leader(demo, PROGRAM)).await;
    output.step("others have routes on the same router", async { add_foreign(demo) }).await;
    output.step("a node joins", join(demo)).await;
    output.step("the cloud refuses the route of another node", refuse(demo)).await;
    output.step("it does no longer", recover(demo)).await;
    output.step("an autoscaler marks the first node and removes it", leave(demo)).await;
    Ok(())
}

fn add_foreign(demo: &Demo) -> Result<String> {
    let target = "10.9.9.9".parse()?;
    demo.cloud().router().add_port(target);
    for destination in FOREIGN {
        let target = RouteTarget::Address(target);
        let route = SimRoute::foreign(destination, destination.parse()?, target);
        demo.cloud().router().add(route);
    }
    Ok(format!("{} to {target}; route-ccm counts them", FOREIGN.join(" and ")))
}

/// Status and message of the node's condition `NetworkUnavailable`.
fn condition(demo: &Demo, name: &str) -> Option<(String, String)> {
    let node = demo.node(name)?;
    let conditions = node["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == "NetworkUnavailable")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

/// Waits until the condition has this status, and returns its message and the seconds that it took.
async fn shows(demo: &Demo, name: &str, status: &str) -> Result<(String, f64)> {
    let start = Instant::now();
    let what = format!("NetworkUnavailable={status} of {name}");
    let message = poll::until(&what, STEP_TIMEOUT, || async {
        let shown = condition(demo, name).filter(|(is, _)| is == status);
        Ok(shown.map(|(_, message)| message))
    })
    .await?;
    Ok((message, start.elapsed().as_secs_f64()))
}

/// Returns destination and target of the node's route.
pub fn route(demo: &Demo, name: &str) -> Result<(String, String)> {
    let node = demo.node(name).context("the node exists")?;
    let cidr = node["spec"]["podCIDRs"][0].as_str().context("it has a pod CIDR")?;
    let route = demo.cloud().router().to(cidr.parse()?).pop().context("it has a route")?;
    let target = route.target.context("the route has a target")?;
    Ok((cidr.to_owned(), target.to_string()))
}

async fn join(demo: &Demo) -> Result<String> {
    demo.cloud().add(demo::instance(NODE));
    demo.register(NODE)?;
    let (_, took) = shows(demo, NODE, "False").await?;
    let (cidr, target) = route(demo, NODE)?;
    Ok(format!(
        "pod CIDR {cidr}, its route to {target}, NetworkUnavailable=False after {took:.1} s, \
         its initialisation included"
    ))
}

async fn refuse(demo: &Demo) -> Result<String> {
    let error = CloudError::new(ErrorKind::Unavailable, "the router is being repaired");
    let effect = FaultEffect::Routes(vec![REFUSED.to_owned()], Trouble::Fail(error));
    demo.cloud().faults().add(Fault::new(effect).on(Operation::ApplyRoutes));
    demo.cloud().add(demo::instance(REFUSED));
    demo.register(REFUSED)?;
    let (message, took) = shows(demo, REFUSED, "True").await?;
    Ok(format!("NetworkUnavailable=True after {took:.1} s: \"{message}\""))
}

async fn recover(demo: &Demo) -> Result<String> {
    demo.cloud().faults().clear();
    let (_, took) = shows(demo, REFUSED, "False").await?;
    Ok(format!("NetworkUnavailable=False after {took:.1} s"))
}

async fn leave(demo: &Demo) -> Result<String> {
    let (cidr, _) = route(demo, NODE)?;
    // Without a mark, the node would count for the brake, as the nodes of the earlier chapters did.
    demo.mark_for_scale_down(NODE)?;
    let start = Instant::now();
    demo.cloud().remove(&demo::instance(NODE).id).context("it has an instance")?;
    demo.delete("nodes", NODE)?;
    poll::until("its route to be gone", STEP_TIMEOUT, || async {
        Ok(demo.cloud().router().to(cidr.parse()?).is_empty().then_some(()))
    })
    .await?;
    let took = start.elapsed().as_secs_f64();
    // Routes of others stay, and so do the routes of all nodes.
    sleep(Duration::from_secs(1)).await;
    for destination in FOREIGN {
        let left = demo.cloud().router().to(destination.parse()?);
        ensure!(left.len() == 1, "the route to {destination} is not as it was: {left:?}");
    }
    let nodes = demo.objects("nodes");
    let without = nodes.iter().filter(|node| !is_routed(demo, node));
    let without: Vec<_> = without.map(|node| &node["metadata"]["name"]).collect();
    ensure!(without.is_empty(), "these nodes have no route: {without:?}");
    let nodes = nodes.len();
    Ok(format!("its route is gone after {took:.1} s; {nodes} nodes and others keep theirs"))
}

fn is_routed(demo: &Demo, node: &Value) -> bool {
    route(demo, node["metadata"]["name"].as_str().unwrap_or_default()).is_ok()
}
