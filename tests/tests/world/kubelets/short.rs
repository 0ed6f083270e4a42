//! A tour of a minute, with short periods.

use anyhow::{Result, ensure};
use ccm_tests::{cluster::kubelets::Machine, nodes};

use super::rig::{Joined, Rig, SILENCE, SOON, is_silent, is_usable, replacement};

/// A machine joins, and its kubelet restarts. Another machine dies with its instance, and the next
/// one of that name joins as a new node.
pub(super) async fn join_restart_death(rig: &mut Rig) -> Result<()> {
    let rig = &*rig;
    let (one, two) =
        tokio::try_join!(rig.join(nodes::instance("node-1")), rig.join(nodes::instance("node-2")))?;
    let Joined { instance, kubelet, node } = two;
    kubelet.kill().await?;
    rig.env.cloud().remove(&instance.id);
    rig.say("node-2 has died with its instance");

    let writes = rig.writes("node-1").await?;
    one.kubelet.kill().await?;
    let kubelet = rig.machines.start_kubelet(&Machine::of(&one.instance))?;
    rig.node("node-2", "is silent", SILENCE, is_silent).await?;
    rig.gone("node-2", SOON).await?;
    let next = rig.join(replacement(&instance)).await?;
    ensure!(next.node.metadata.uid != node.metadata.uid, "node-2 was never deleted");

    rig.node("node-1", "is usable after its restart", SOON, is_usable).await?;
    rig.is_same(&one.node).await?;
    let after = rig.writes("node-1").await?;
    ensure!(after == writes, "{writes:?} to join became {after:?} after the restart");
    rig.say(&format!("node-1 restarted: {writes:?} to join, no write afterwards"));
    drop(kubelet);
    rig.deletions_are(&[("lifecycle-ccm", "node-2")]).await
}
