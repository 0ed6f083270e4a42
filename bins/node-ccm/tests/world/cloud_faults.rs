//! The cloud gives bad answers, and nothing is lost.

use anyhow::{Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect},
    poll,
};

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, SOON};

pub(super) async fn cloud_errors_are_reported_and_retried(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    for (number, kind) in [ErrorKind::Unavailable, ErrorKind::Unauthorized, ErrorKind::Forbidden]
        .into_iter()
        .enumerate()
    {
        let name = format!("node-{number}");
        let error = CloudError::new(kind, "the cloud's own words").with_request_id("req-7");
        env.cloud().faults().add(Fault::new(FaultEffect::Error(error)).on(Operation::Lookup));
        env.add_node(&name).await?;
        let told = nodes::event(&env.client, &name, kind.reason(), SOON).await?;
        ensure!(
            told.contains("the cloud's own words") && told.contains("req-7"),
            "the event says {told:?}"
        );
        ensure!(nodes::is_tainted(&nodes::get(&env.client, &name).await?), "{name} waits");
        env.cloud().faults().clear();
        nodes::wait_for(&env.client, &name, "initialised", 2 * SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await?;
    }
    ensure!(program.leads().await?, "the program went on all the time");
    Ok(())
}

pub(super) async fn a_cloud_that_is_down_at_start_is_not_ready(env: Env) -> Result<()> {
    env.served.pause().await?;
    let mut program = env.start_only(&env.node_ccm())?;
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;
    env.cloud().add(nodes::instance("node-1"));
    poll::until("the program to answer that it is not ready", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 500).then_some(()))
    })
    .await?;
    let (_, page) = program.get("/readyz?verbose").await?;
    ensure!(page.contains("cloud"), "it says why: {page}");
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    env.served.resume().await?;
    program.ready().await?;
    env.initialised("node-1").await?;
    Ok(())
}
