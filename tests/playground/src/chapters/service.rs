//! service-ccm: a Service gets its load balancer, and its members follow the nodes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    cloud::balancers::{SimBalancer, Times},
    poll,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use crate::{demo::Demo, output::Output};

/// The program of this chapter.
pub const PROGRAM: &str = "service-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] =
    &["--member-update-interval=2s", "--provider-annotation-prefixes=sim/,sim-status/"];

/// The Service of this chapter.
const SERVICE: &str = "default/shop";

/// How long the cloud works on a new load balancer.
const WORK: Duration = Duration::from_secs(2);

/// Runs the chapter.
pub async fn run(demo: &Demo, output: &mut Output) -> Result<()> {
    output.chapter("service-ccm: a Service of type LoadBalancer");
    output.step("two replicas run, one leads", super::leader(demo, PROGRAM)).await;
    output.step("a Service is created; the cloud needs two seconds", create(demo)).await;
    output.step("a node joins", join(demo)).await;
    output.step("all Node objects are deleted by mistake", lose_nodes(demo)).await;
    output.step("the Service is deleted", delete(demo)).await;
    Ok(())
}

fn service(demo: &Demo) -> Result<Value> {
    demo.object("services", SERVICE).context("the Service exists")
}

fn balancer(demo: &Demo) -> Result<SimBalancer> {
    demo.cloud().balancers().all().pop().context("a load balancer")
}

/// Waits until the load balancer is as described, and returns the seconds that it took.
async fn wait_for(what: &str, demo: &Demo, is: impl Fn(&SimBalancer) -> bool) -> Result<f64> {
    let start = Instant::now();
    poll::until(what, STEP_TIMEOUT, || async { Ok(is(&balancer(demo)?).then_some(())) }).await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn create(demo: &Demo) -> Result<String> {
    demo.cloud()
        .balancers()
        .configure(|settings| settings.times = Times { create: WORK, ..Times::default() });
    let start = Instant::now();
    demo.create(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443, "protocol": "TCP"}]}
    }))?;
    let address = poll::until("the Service to have an address", STEP_TIMEOUT, || async {
        let service = service(demo)?;
        Ok(service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned))
    })
    .await?;
    let members = balancer(demo)?.members.len();
    Ok(format!(
        "{address} after {:.1} s, with {members} nodes behind it",
        start.elapsed().as_secs_f64()
    ))
}

async fn join(demo: &Demo) -> Result<String> {
    let before = balancer(demo)?.members.len();
    let name = "node-9100";
    demo.cloud().add(crate::demo::instance(name));
    demo.register(name)?;
    let took = wait_for("one more member", demo, |one| one.members.len() > before).await?;
    Ok(format!("behind the load balancer after {took:.1} s, its initialisation included"))
}

async fn lose_nodes(demo: &Demo) -> Result<String> {
    let before = balancer(demo)?.members.len();
    for node in demo.objects("nodes") {
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        demo.delete("nodes", &name)?;
    }
    poll::until("members to be held", STEP_TIMEOUT, || async {
        let page = demo.page(PROGRAM, "/metrics").await?;
        let held = page.lines().find_map(|line| line.strip_prefix("ccm_service_members_held "));
        Ok(held.filter(|held| *held != "0").map(drop))
    })
    .await?;
    let left = balancer(demo)?.members.len();
    ensure!(left + 3 >= before && left > 0, "{left} of {before} members are left");
    Ok(format!("{left} of {before} members stay: the brake holds them"))
}

async fn delete(demo: &Demo) -> Result<String> {
    let start = Instant::now();
    demo.delete("services", SERVICE)?;
    poll::until("the Service to be gone", STEP_TIMEOUT, || async {
        Ok(demo.object("services", SERVICE).is_none().then_some(()))
    })
    .await?;
    ensure!(demo.cloud().balancers().all().is_empty(), "its load balancer is still there");
    let took = start.elapsed().as_secs_f64();
    Ok(format!("its load balancer is deleted, then the finalizer removed: {took:.1} s"))
}
