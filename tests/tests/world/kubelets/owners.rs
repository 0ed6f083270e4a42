//! A kubelet also owns the addresses.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_tests::{
    cluster::{
        Request,
        kubelets::{KUBELET_AGENT, Machine},
    },
    nodes,
    scenarios::NODE_AGENT,
};
use tokio::time::sleep;

use super::rig::{Joined, Rig, SOON, is_usable};

/// The time of six reports of the kubelet.
const WATCHED: Duration = Duration::from_mins(1);
/// The time of two reports.
const QUIET: Duration = Duration::from_secs(25);
/// A kubelet uses a host name that is an address as its own address, and does not need a network.
const NAME: &str = "192.0.2.7";

/// The longest pause of node-ccm before it corrects a contested field again, and some more.
const PAUSE: Duration = Duration::from_secs(150);

/// Without `--cloud-provider=external` the kubelet writes its own addresses every 10 s, and
/// node-ccm writes the instance's: a few times at once, then less and less often.
pub(super) async fn of_the_addresses(rig: &mut Rig) -> Result<()> {
    let Joined { instance, kubelet, node } = rig.join(nodes::instance(NAME)).await?;
    kubelet.kill().await?;
    let alone = Machine { cloud_provider: "", ..Machine::of(&instance) };
    let kubelet = rig.machines.start_kubelet(&alone)?;
    rig.event(NAME, "NodeInternalIPChanged", SOON).await?;
    let before = written(rig).await?;
    sleep(WATCHED).await;
    let after = written(rig).await?;
    let [theirs, ours] = [after[0] - before[0], after[1] - before[1]];
    rig.say(&format!(
        "without --cloud-provider=external: in {} s the kubelet wrote the status {theirs} times, node-ccm {ours} times",
        WATCHED.as_secs()
    ));
    ensure!(theirs >= 4, "the kubelet writes its addresses every 10 s, and wrote {theirs} times");
    ensure!(ours <= theirs, "{ours} writes of node-ccm for {theirs} of the kubelet");
    rig.event(NAME, "RepeatedWrite", SOON).await?;
    rig.is_same(&node).await?;

    kubelet.kill().await?;
    let kubelet = rig.machines.start_kubelet(&Machine::of(&instance))?;
    let wanted = nodes::addresses(&node);
    rig.node(NAME, "has the addresses of its instance", PAUSE, |node| {
        is_usable(node) && nodes::addresses(node) == wanted
    })
    .await?;
    sleep(Duration::from_secs(5)).await;
    let [_, before] = written(rig).await?;
    sleep(QUIET).await;
    let [_, after] = written(rig).await?;
    ensure!(after == before, "with --cloud-provider=external node-ccm wrote {}", after - before);
    ensure!(nodes::addresses(&nodes::get(&rig.env.client, NAME).await?) == wanted);
    rig.say("with --cloud-provider=external: the addresses stay, node-ccm writes nothing");
    drop(kubelet);
    rig.deletions_are(&[]).await
}

/// Counts the writes of the status so far: the kubelet's and node-ccm's.
async fn written(rig: &Rig) -> Result<[usize; 2]> {
    let is_status = |request: &&Request| request.is_write() && request.subresource == "status";
    let mut counts = [0; 2];
    for (count, agent) in counts.iter_mut().zip([KUBELET_AGENT, NODE_AGENT]) {
        *count = rig.env.requests(agent).await?.iter().filter(is_status).count();
    }
    Ok(counts)
}
