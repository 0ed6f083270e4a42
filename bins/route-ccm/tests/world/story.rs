//! What the dashboard of route-ccm shows.

use anyhow::Result;
use ccm_cloud::{CloudError, Cure, ErrorKind, RouteTarget};
use ccm_sim::{
    cloud::{Operation, routes::SimRoute},
    faults::{Effect, Fault, Trouble},
};
use ccm_tests::prometheus::{SETTLE, Stage};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{add, add_nodes, cidr, delete_nodes, name, net, node, reachable};

/// Nodes get their routes, move and go; the cloud throttles, fails one route and breaks another;
/// the API server refuses; deletions are held; a second leader takes over.
pub(crate) async fn play(stage: &mut Stage) -> Result<()> {
    let env = &stage.env;
    let port = "10.9.9.9".parse()?;
    env.cloud().router().add_port(port);
    for (id, destination) in [("inside", "10.244.200.0/24"), ("outside", "192.168.0.0/24")] {
        let target = RouteTarget::Address(port);
        env.cloud().router().add(SimRoute::foreign(id, net(destination)?, target));
    }
    let nowhere = RouteTarget::Address("10.9.9.10".parse()?);
    env.cloud().router().add(SimRoute::foreign("unknown", net("10.244.210.0/24")?, nowhere));
    add_nodes(env, 0..8).await?;
    add(env, &node("without", &[])).await?;
    reachable(env, 0..8).await?;
    let moved = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.99"}]}});
    ccm_tests::nodes::patch_status(&env.client, &name(1), moved).await?;
    sleep(SETTLE).await;
    let pause = stage.throttle_cloud();
    add_nodes(env, [8]).await?;
    sleep(2 * pause).await;
    let faults = env.cloud().faults();
    let refused = CloudError::new(ErrorKind::Unavailable, "the router is busy");
    let broken = Trouble::Break(Cure::Person);
    for (number, trouble) in [(9, Trouble::Fail(refused)), (10, broken)] {
        let fault = Fault::new(Effect::Routes(vec![name(number)], trouble));
        faults.add(fault.on(Operation::ApplyRoutes));
    }
    stage.refuse_writes("nodes")?;
    add_nodes(env, 9..12).await?;
    sleep(SETTLE).await;
    delete_nodes(env, 2..8).await?;
    sleep(SETTLE).await;
    env.cloud().faults().clear();
    env.cloud().router().update(net(&cidr(10))?, |route| route.defect = None);
    stage.hand_over().await?;
    add_nodes(&stage.env, [12]).await?;
    reachable(&stage.env, [12]).await?;
    sleep(SETTLE).await;
    Ok(())
}
