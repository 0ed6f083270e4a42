//! A service hangs or is gone, and nothing is lost.

use anyhow::{Result, ensure};
use ccm_sim::{poll, program::Program};

use crate::{
    nodes,
    openstack::{
        Service,
        rig::{Rig, SOON},
    },
};

/// Checks that the program lives and holds its Lease, and the node is not touched.
async fn waits(rig: &Rig, program: &Program, node: &str) -> Result<()> {
    ensure!(program.leads().await?, "the Lease is kept");
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    ensure!(nodes::is_tainted(&nodes::get(&rig.client, node).await?), "the node waits");
    Ok(())
}

pub(super) async fn a_frozen_nova_is_waited_for(rig: &Rig) -> Result<()> {
    let program = rig.start(&rig.node_ccm().arg("--cloud-call-timeout=2s")).await?;
    let server = rig.fleet(0)?;
    let frozen = rig.cloud.services.freeze("nova-api")?;
    rig.register(server).await?;
    nodes::event(&rig.client, &server.name, "timeout", SOON).await?;
    waits(rig, &program, &server.name).await?;
    drop(frozen);
    rig.initialised(&server.name).await?;
    Ok(())
}

pub(super) async fn keystone_is_gone_at_start(rig: &Rig) -> Result<()> {
    rig.cloud.proxy.pause(Service::Identity).await;
    let mut program = rig.start_only(&rig.node_ccm())?;
    let server = rig.fleet(0)?;
    rig.register(server).await?;
    poll::until("the program to answer that it is not ready", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 500).then_some(()))
    })
    .await?;
    let (_, page) = program.get("/readyz?verbose").await?;
    ensure!(page.contains("cloud"), "it says why: {page}");
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    rig.cloud.proxy.resume(Service::Identity).await?;
    program.ready().await?;
    rig.initialised(&server.name).await?;
    Ok(())
}

pub(super) async fn keystone_goes_and_comes_back(rig: &Rig) -> Result<()> {
    let program = rig.start(&rig.node_ccm().arg("--cloud-call-timeout=5s")).await?;
    let (before, after) = (rig.fleet(0)?, rig.fleet(1)?);
    rig.register(before).await?;
    rig.initialised(&before.name).await?;

    rig.cloud.services.kill("keystone-api").await?;
    rig.past_token_caches().await;
    rig.register(after).await?;
    nodes::event(&rig.client, &after.name, "until the cloud answers", SOON).await?;
    waits(rig, &program, &after.name).await?;
    rig.cloud.services.repair().await?;
    rig.initialised(&after.name).await?;
    Ok(())
}
