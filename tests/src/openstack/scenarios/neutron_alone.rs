//! Only Neutron fails, and Nova works.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{poll, program::Program};

use crate::{
    fixture::past_grace,
    nodes,
    openstack::{
        Service,
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

/// Returns the number of Nova requests since this mark of the proxy's log.
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
    let lost = rig.server("lost-meanwhile").await?;
    let (settled, new) = (rig.fleet(0)?, rig.fleet(1)?);
    // Addresses are read every ten seconds, so also while Neutron is out of order.
    let quick = rig.node_ccm().arg("--node-status-update-frequency=10s");
    let node_ccm = rig.start(&quick.arg("--cloud-call-timeout=5s")).await?;
    let lifecycle = rig.lifecycle_ccm().arg("--cloud-call-timeout=5s");
    let lifecycle_ccm = rig.start(&lifecycle).await?;
    rig.register(settled).await?;
    let addresses = nodes::addresses(&rig.initialised(&settled.name).await?);
    ensure!(addresses.iter().any(|address| address.starts_with("InternalIP=")), "{addresses:?}");
    rig.register_initialised(&[&lost]).await?;
    past_grace().await;

    let fault = rig.cloud.proxy.faults().add(Fault::new(effect).on(Service::Network));
    let mark = rig.cloud.proxy.log().mark();
    rig.register(new).await?;
    rig.cloud.user.delete_server(&lost.id).await?;
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    // Nova alone decides which instances exist.
    nodes::gone(&rig.client, &lost.name, 2 * SOON).await?;
    let names = [settled.name.as_str(), new.name.as_str()];
    nodes::stay(&rig.client, &names, Duration::from_secs(10)).await?;

    let waiting = nodes::get(&rig.client, &new.name).await?;
    let provider_id = waiting.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
    ensure!(nodes::is_tainted(&waiting) && provider_id.is_none(), "half of it is written");
    let kept = nodes::addresses(&nodes::get(&rig.client, &settled.name).await?);
    ensure!(kept == addresses, "addresses were {addresses:?} and are {kept:?}");
    ensure!(asked_nova(rig, mark) > 2, "Nova is still asked");
    for program in [&node_ccm, &lifecycle_ccm] {
        lives_and_leads(program).await?;
    }

    rig.cloud.proxy.faults().remove(fault);
    rig.initialised(&new.name).await?;
    nodes::stay(&rig.client, &names, Duration::from_secs(2)).await
}

/// Neutron's answers lack ports: the node keeps its addresses.
pub(super) async fn incomplete_neutron_lists_remove_no_address(rig: &Rig) -> Result<()> {
    let server = rig.server("addressed").await?;
    let floating = rig.cloud.user.add_floating_ip(&server.id).await?;
    let node_ccm = rig.start(&rig.node_ccm().arg("--node-status-update-frequency=10s")).await?;
    let external = format!("ExternalIP={}", floating.address);
    let other = rig.fleet(0)?;
    for server in [&server, other] {
        rig.register(server).await?;
    }
    // Nova shows a floating IP some time after Neutron.
    let shown = nodes::wait_for(&rig.client, &server.name, "its floating IP", 2 * SOON, |node| {
        nodes::addresses(node).contains(&external)
    });
    let before = [
        (server.name.as_str(), nodes::addresses(&shown.await?)),
        (other.name.as_str(), nodes::addresses(&rig.initialised(&other.name).await?)),
    ];

    let faults = rig.cloud.proxy.faults();
    for effect in [Effect::EmptyList, Effect::Truncated, Effect::HalfJson] {
        let told = format!("{effect:?}");
        let id = faults.replace(Fault::new(effect).on(Service::Network));
        poll::until(&format!("{told} to be met"), SOON, || async {
            Ok((faults.hits(id) > 0).then_some(()))
        })
        .await?;
        poll::always(&format!("{told}: addresses stay"), Duration::from_secs(3), || async {
            for (name, addresses) in &before {
                let now = nodes::addresses(&nodes::get(&rig.client, name).await?);
                ensure!(now == *addresses, "{name} had {addresses:?} and has {now:?}");
            }
            Ok(())
        })
        .await?;
    }
    lives_and_leads(&node_ccm).await?;

    faults.clear();
    rig.cloud.user.delete_floating_ip(&floating.id).await?;
    let node =
        nodes::wait_for(&rig.client, &server.name, "without its floating IP", 2 * SOON, |node| {
            !nodes::addresses(node).contains(&external)
        })
        .await?;
    ensure!(nodes::addresses(&node).iter().any(|address| address.starts_with("InternalIP=")));
    rig.cloud.user.delete_server(&server.id).await
}
