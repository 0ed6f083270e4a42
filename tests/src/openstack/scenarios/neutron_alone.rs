//! Neutron alone is out of order, and Nova goes on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::Program;
use tokio::time::sleep;

use crate::{
    nodes,
    openstack::{
        Service,
        admin::NewServer,
        proxy::{Effect, Fault, tally},
        rig::{Rig, SOON},
    },
};

pub(super) async fn a_frozen_neutron_is_waited_for(rig: &Rig) -> Result<()> {
    out_of_order(rig, Effect::Hang).await
}

pub(super) async fn a_neutron_that_errs_is_waited_for(rig: &Rig) -> Result<()> {
    out_of_order(rig, Effect::internal_error()).await
}

/// How often the programs have asked Nova since this mark of the proxy's log.
fn asked_nova(rig: &Rig, mark: usize) -> usize {
    let counts = tally(&rig.cloud.proxy.log().since(mark));
    let of_nova = counts.iter().filter(|(pattern, _)| pattern.starts_with("compute "));
    of_nova.map(|(_, count)| count).sum()
}

async fn lives_and_leads(program: &Program) -> Result<()> {
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    ensure!(program.leads().await?, "the Lease is kept");
    Ok(())
}

async fn out_of_order(rig: &Rig, effect: Effect) -> Result<()> {
    let lost = rig.cloud.user.create_servers(&[NewServer::named("lost-meanwhile")]).await?;
    let lost = lost.first().context("one was asked for")?;
    let (settled, new) = (rig.fleet(0)?, rig.fleet(1)?);
    // Addresses are looked at every ten seconds, so also while Neutron is out of order.
    let quick = rig.node_ccm().arg("--node-status-update-frequency=10s");
    let node_ccm = rig.start(&quick.arg("--cloud-call-timeout=2s")).await?;
    let lifecycle = rig.lifecycle_ccm().arg("--cloud-call-timeout=2s");
    let lifecycle_ccm = rig.start(&lifecycle).await?;
    rig.register(settled).await?;
    let addresses = nodes::addresses(&rig.initialised(&settled.name).await?);
    ensure!(addresses.iter().any(|address| address.starts_with("InternalIP=")), "{addresses:?}");
    rig.register_initialised(&[lost]).await?;
    sleep(Duration::from_secs(2)).await;

    let fault = rig.cloud.proxy.faults().add(Fault::new(effect).on(Service::Network));
    let mark = rig.cloud.proxy.log().mark();
    rig.register(new).await?;
    rig.cloud.user.delete_server(&lost.id).await?;
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    let names = [settled.name.as_str(), new.name.as_str(), lost.name.as_str()];
    nodes::stay(&rig.client, &names, Duration::from_secs(15)).await?;

    let waiting = nodes::get(&rig.client, &new.name).await?;
    let provider_id = waiting.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
    ensure!(nodes::is_tainted(&waiting) && provider_id.is_none(), "half of it is written");
    let kept = nodes::addresses(&nodes::get(&rig.client, &settled.name).await?);
    ensure!(kept == addresses, "addresses were {addresses:?} and are {kept:?}");
    ensure!(asked_nova(rig, mark) > 2, "Nova goes on being asked");
    for program in [&node_ccm, &lifecycle_ccm] {
        lives_and_leads(program).await?;
    }

    rig.cloud.proxy.faults().remove(fault);
    rig.initialised(&new.name).await?;
    nodes::gone(&rig.client, &lost.name, 2 * SOON).await?;
    let left = [settled.name.as_str(), new.name.as_str()];
    nodes::stay(&rig.client, &left, Duration::from_secs(2)).await
}
