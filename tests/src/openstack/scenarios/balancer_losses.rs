//! Load balancers that lists lack, or that failed: a load balancer that still serves stays.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use http::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    openstack::{
        Service,
        balancing::{
            BALANCERS, Shown, add_node, add_nodes, delete_all, have_member, id, id_of, provisioned,
            quick, says, service,
        },
        proxy::{Effect, Fault},
        rig::{Rig, SOON},
    },
    services,
};

/// How long a load balancer must stay: longer than the rest of a failed one, and some audits.
const WHILE: Duration = Duration::from_secs(90);

/// Returns the number of requests of the program about load balancers themselves since a mark of
/// the log.
fn sent(rig: &Rig, mark: usize, method: &Method, path: &str) -> usize {
    let all = rig.cloud.proxy.log().since(mark).into_iter();
    let is_it = |service: Service, of: &Method, at: &str| {
        service == Service::LoadBalancer && of == method && at == path
    };
    all.filter(|one| is_it(one.service, &one.method, &one.path)).count()
}

/// Lists are empty, as in another project, while Octavia knows the load balancer by its ID.
pub(super) async fn one_that_lists_lack_is_not_made_again(rig: &Rig) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, &service("unlisted", 1)).await?;
    services::address(&rig.client, "unlisted", SOON).await?;
    provisioned(rig, "unlisted", SOON).await?;
    let balancer = id_of(rig, "unlisted").await?;
    let shown = Shown::watch(rig);
    let mark = rig.cloud.proxy.log().mark();
    let faults = rig.cloud.proxy.faults();
    let fault = Fault::new(Effect::EmptyList).on(Service::LoadBalancer).method(Method::GET);
    let fault = faults.add(fault.exactly(BALANCERS));
    let ports = json!({"spec": {"ports": service("unlisted", 2)["spec"]["ports"]}});
    services::patch(&rig.client, "unlisted", ports).await?;
    let by_id = format!("{BALANCERS}/{balancer}");
    poll::until("a question about its ID", 3 * SOON, || async {
        sleep(Duration::from_millis(500)).await;
        Ok((sent(rig, mark, &Method::GET, &by_id) > 0).then_some(()))
    })
    .await
    .with_context(|| program.log())?;
    faults.remove(fault);
    provisioned(rig, "unlisted", 3 * SOON).await.with_context(|| program.log())?;
    ensure!(
        sent(rig, mark, &Method::POST, BALANCERS) == 0,
        "nothing is created: {}",
        program.log()
    );
    ensure!(id_of(rig, "unlisted").await? == balancer, "it is the same one");
    shown.never_changed()?;
    delete_all(rig, &["unlisted".to_owned()], 2 * SOON).await
}

/// A person's listener would be deleted with it, so a person must decide.
pub(super) async fn a_failed_one_with_a_listener_of_others_stays(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, &service("shared", 1)).await?;
    services::address(&rig.client, "shared", SOON).await?;
    provisioned(rig, "shared", SOON).await?;
    let balancer = id_of(rig, "shared").await?;
    let theirs = json!({"listener": {
        "name": "theirs", "protocol": "HTTP", "protocol_port": 9001, "loadbalancer_id": balancer,
        "tags": ["of-a-person"]
    }});
    let theirs = id(&user.create_balancer_part("listeners", theirs).await?)?;
    user.balancer_is(&balancer, "ACTIVE").await?;
    let shown = Shown::watch(rig);
    let mark = rig.cloud.proxy.log().mark();
    rig.cloud.services.set_balancer_status(&balancer, "ERROR")?;
    let said = says(rig, "shared", "LoadBalancerFailed", WHILE + SOON).await;
    let said = said.with_context(|| program.log())?;
    ensure!(said.contains(&theirs), "it names the listener: {said}");
    eprintln!("a failed load balancer with a listener of others: {said}");
    sleep(WHILE).await;
    let by_id = format!("{BALANCERS}/{balancer}");
    ensure!(sent(rig, mark, &Method::DELETE, &by_id) == 0, "it is deleted: {}", program.log());
    // The policy grants fail-overs only to administrators, which one request shows.
    let asked = sent(rig, mark, &Method::PUT, &format!("{by_id}/failover"));
    ensure!(asked == 1, "{asked} fail-overs were requested: {}", program.log());
    // The operator repairs it, and everything continues.
    rig.cloud.services.set_balancer_status(&balancer, "ACTIVE")?;
    let joined = add_node(rig, 3).await?;
    let all = std::slice::from_ref(&balancer);
    have_member(rig, all, &joined, 3 * SOON).await.with_context(|| program.log())?;
    provisioned(rig, "shared", 3 * SOON).await.with_context(|| program.log())?;
    let listeners = user.balancer_parts(&format!("listeners?loadbalancer_id={balancer}")).await?;
    ensure!(listeners.iter().any(|one| one["id"] == theirs.as_str()), "theirs is still there");
    shown.never_changed()?;
    delete_all(rig, &["shared".to_owned()], 2 * SOON).await
}
