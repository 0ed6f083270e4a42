//! The tests of template-ccm on a cluster: the simulated API server, or with
//! `QUARTET_CLUSTER=real` real ones.

use std::process::ExitCode;

use anyhow::Result;
use ccm_runtime::programs::TEMPLATE_CCM;
use ccm_tests::{
    nodes,
    prometheus::{SETTLE, Stage},
    scenarios::{Env, with_short_terms},
    suite::{self, Story, Suite, Work},
};
use serde_json::json;
use template_ccm::plan::INSTANCE_NAME;
use tokio::time::sleep;

const PROGRAM: &str = TEMPLATE_CCM.binary;

mod template {
    use std::collections::BTreeMap;

    use anyhow::{Result, ensure};
    use ccm_sim::program::Signal;
    use ccm_tests::{
        nodes,
        scenarios::{Env, SOON, with_short_terms},
    };
    use template_ccm::plan::INSTANCE_NAME;

    use super::PROGRAM;

    /// Adds a node, and waits until it has the name of its instance.
    async fn named(env: &Env, name: &str) -> Result<()> {
        let instance = env.add_node(name).await?;
        let annotations = is_annotated(env, name).await?;
        ensure!(annotations.get(INSTANCE_NAME) == Some(&instance.name), "{annotations:?}");
        Ok(())
    }

    /// Waits until the node has the annotation.
    pub(super) async fn is_annotated(env: &Env, name: &str) -> Result<BTreeMap<String, String>> {
        let annotated = nodes::wait_for(&env.client, name, "annotated", 2 * SOON, |node| {
            node.metadata.annotations.iter().flatten().any(|(key, _)| key == INSTANCE_NAME)
        })
        .await?;
        Ok(annotated.metadata.annotations.unwrap_or_default())
    }

    pub(super) async fn a_node_gets_the_name_of_its_instance(env: Env) -> Result<()> {
        let leader = env.start(&env.launch(PROGRAM)).await?;
        named(&env, "node-0").await?;
        nodes::event(&env.client, "node-0", "InstanceNamed", SOON).await?;
        let writes = env.node_writes("template-ccm/").await?;
        ensure!(writes.len() == 1, "one write, not {writes:?}");
        let page = leader.get("/metrics").await?.1;
        ensure!(page.contains("ccm_template_writes_total{result=\"ok\"} 1\n"), "{page}");
        let ended = leader.terminate().await?;
        ensure!(ended.success(), "it exited with {ended}");
        Ok(())
    }

    pub(super) async fn a_standby_takes_over(env: Env) -> Result<()> {
        let launch = with_short_terms(env.launch(PROGRAM));
        let mut leader = env.start(&launch).await?;
        let standby = env.start_standby(&launch).await?;
        named(&env, "node-0").await?;
        ensure!(!standby.leads().await?, "two leaders");
        leader.signal(Signal::KILL)?;
        leader.wait(SOON).await?;
        named(&env, "node-1").await?;
        ensure!(standby.leads().await?, "the standby leads");
        let writes = env.node_writes("template-ccm/").await?;
        ensure!(writes.len() == 2, "an up-to-date node is not written again: {writes:?}");
        Ok(())
    }
}

/// Work for which the template needs each of its rights: a node, whose annotation is removed
/// whenever it exists.
async fn work(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        return env.add_node("node-1").await.map(drop);
    }
    if !is_undone(env).await? {
        let none = json!({"metadata": {"annotations": {INSTANCE_NAME: null}}});
        nodes::patch(&env.client, "node-1", none).await?;
    }
    Ok(())
}

async fn is_undone(env: &Env) -> Result<bool> {
    let annotations = nodes::get(&env.client, "node-1").await?.metadata.annotations;
    Ok(!annotations.is_some_and(|annotations| annotations.contains_key(INSTANCE_NAME)))
}

/// The events that a dashboard of the template would show.
async fn play(stage: &mut Stage) -> Result<()> {
    stage.env.add_node("node-0").await?;
    let late =
        async |env: &Env, number| env.add_node(&format!("node-late-{number}")).await.map(drop);
    stage.throttle_cloud(late).await?;
    stage.refuse_writes("nodes")?;
    stage.env.add_node("node-refused").await?;
    sleep(SETTLE).await;
    stage.hand_over().await?;
    template::is_annotated(&stage.env, "node-refused").await?;
    sleep(SETTLE).await;
    Ok(())
}

fn main() -> Result<ExitCode> {
    suite::main(Suite {
        program: TEMPLATE_CCM,
        scenarios: ccm_tests::scenarios! {
            BOTH:
                template::a_node_gets_the_name_of_its_instance,
                template::a_standby_takes_over;
        },
        work: Work {
            launch: |env| with_short_terms(env.launch(PROGRAM)),
            step: |env, round| Box::pin(work(env, round)),
            is_undone: |env, _| Box::pin(is_undone(env)),
        },
        story: Story {
            launch: |env| env.launch(PROGRAM).arg("--cloud-call-timeout=2s"),
            play: |stage| Box::pin(play(stage)),
        },
    })
}
