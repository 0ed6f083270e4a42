//! Five machines, and all programs with their defaults.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_tests::{cluster::kubelets::Machine, nodes};
use tokio::time::sleep;

use super::rig::{
    Joined, Rig, SILENCE, SOON, condition, is_silent, is_usable, provider_id, ready, replacement,
};

/// A machine that dies now is silent when its node is older than `--node-grace-period`, so that
/// only the confirmation follows.
const LATE: Duration = Duration::from_secs(80);
/// How long one machine is frozen.
const FROZEN: Duration = Duration::from_mins(2);
/// Far more than `--node-deletion-confirmation-period`.
const PATIENCE: Duration = Duration::from_mins(1);

/// No node is deleted whose instance exists.
pub(super) async fn five_machines(rig: &mut Rig) -> Result<()> {
    let rig = &*rig;
    let machines = tokio::try_join!(
        restarts(rig),
        dies_with_its_instance(rig),
        dies_alone(rig),
        freezes(rig),
        is_replaced_too_soon(rig)
    )?;
    rig.deletions_are(&[("lifecycle-ccm", "node-2"), ("scenario", "node-5")]).await?;
    drop(machines);
    Ok(())
}

/// A kubelet that restarts costs no write.
async fn restarts(rig: &Rig) -> Result<Joined> {
    let mut joined = rig.join(nodes::instance("node-1")).await?;
    let writes = rig.writes("node-1").await?;
    joined.kubelet.kill().await?;
    // The times of heartbeats are whole seconds.
    sleep(Duration::from_secs(2)).await;
    joined.kubelet = rig.machines.start_kubelet(&Machine::of(&joined.instance))?;
    let last = condition(&joined.node).and_then(|ready| ready.last_heartbeat_time.clone());
    rig.node("node-1", "reports after its restart", SOON, |node| {
        is_usable(node) && condition(node).is_some_and(|ready| ready.last_heartbeat_time > last)
    })
    .await?;
    rig.is_same(&joined.node).await?;
    rig.at(LATE).await;
    let after = rig.writes("node-1").await?;
    ensure!(after == writes, "{writes:?} to join became {after:?} after the restart");
    rig.say(&format!("node-1 restarted: {writes:?} to join, no write afterwards"));
    Ok(joined)
}

/// The node is deleted after its instance, and a new machine of the same name is a new node.
async fn dies_with_its_instance(rig: &Rig) -> Result<Joined> {
    let Joined { instance, kubelet, node } = rig.join(nodes::instance("node-2")).await?;
    rig.at(LATE).await;
    kubelet.kill().await?;
    rig.env.cloud().remove(&instance.id);
    rig.say("node-2 has died with its instance");
    rig.node("node-2", "is silent", SILENCE, is_silent).await?;
    rig.event("node-2", "NodeGoneSuspected", SOON).await?;
    rig.gone("node-2", SOON).await?;
    let next = rig.join(replacement(&instance)).await?;
    ensure!(next.node.metadata.uid != node.metadata.uid, "node-2 was never deleted");
    rig.say("node-2 was replaced after its deletion: a new node with the new provider ID");
    Ok(next)
}

/// The node of a dead machine stays as long as its instance exists.
async fn dies_alone(rig: &Rig) -> Result<Joined> {
    let mut joined = rig.join(nodes::instance("node-3")).await?;
    rig.at(LATE).await;
    joined.kubelet.kill().await?;
    rig.say("node-3 has died, its instance exists");
    rig.node("node-3", "is silent", SILENCE, is_silent).await?;
    sleep(PATIENCE).await;
    rig.is_same(&joined.node).await?;
    rig.say("node-3 is still there");
    joined.kubelet = rig.machines.start_kubelet(&Machine::of(&joined.instance))?;
    rig.node("node-3", "is usable again", SOON, is_usable).await?;
    rig.is_same(&joined.node).await?;
    Ok(joined)
}

/// The node of a frozen machine stays as well.
async fn freezes(rig: &Rig) -> Result<Joined> {
    let joined = rig.join(nodes::instance("node-4")).await?;
    joined.kubelet.freeze()?;
    rig.say("node-4 is frozen");
    let (silent, ()) =
        tokio::join!(rig.node("node-4", "is silent", SILENCE, is_silent), sleep(FROZEN));
    silent?;
    joined.kubelet.wake()?;
    rig.say("node-4 wakes");
    rig.node("node-4", "is usable again", SOON, is_usable).await?;
    rig.is_same(&joined.node).await?;
    Ok(joined)
}

/// A new machine of the same name boots while the node still exists: the kubelet takes the node
/// over, and the node keeps the provider ID of the old machine until a person deletes it.
async fn is_replaced_too_soon(rig: &Rig) -> Result<Joined> {
    let Joined { instance, kubelet, node } = rig.join(nodes::instance("node-5")).await?;
    rig.at(LATE).await;
    kubelet.kill().await?;
    rig.env.cloud().remove(&instance.id);
    rig.node("node-5", "is silent", SILENCE, is_silent).await?;
    rig.event("node-5", "NodeGoneSuspected", SOON).await?;
    let next = replacement(&instance);
    rig.env.cloud().add(next.clone());
    let kubelet = rig.machines.start_kubelet(&Machine::of(&next))?;
    let taken = rig.node("node-5", "is the new machine's", SOON, is_usable).await?;
    let info = taken.status.and_then(|status| status.node_info).context("a kubelet reports it")?;
    ensure!(Some(info.system_uuid) == next.system_uuid, "the kubelet runs on the new machine");
    rig.event("node-5", "NodeKept", SOON).await?;
    sleep(PATIENCE).await;
    rig.is_same(&node).await?;
    rig.say("node-5 was replaced before its deletion: it stays, with the old provider ID");

    nodes::delete(&rig.env.client, "node-5").await?;
    // The kubelet registers its node when it starts, and at no other time.
    sleep(Duration::from_secs(30)).await;
    let names = nodes::names(&rig.env.client).await?;
    ensure!(!names.contains("node-5"), "a kubelet has registered again without a restart");
    rig.say("node-5 was deleted by hand: its running kubelet does not register it again");
    kubelet.kill().await?;
    let joined = rig.join(next).await?;
    let id = provider_id(&joined.node);
    rig.say(&format!("node-5 after the kubelet's restart: {} {id:?}", ready(&joined.node)));
    Ok(joined)
}
