//! The scenarios of template-ccm, on the simulated API server, or with `QUARTET_CLUSTER=real`
//! on a real cluster.

use std::process::ExitCode;

mod template {
    use anyhow::{Result, ensure};
    use ccm_sim::program::Signal;
    use ccm_tests::{
        nodes,
        scenarios::{Env, SOON, leadership::with_short_terms},
    };
    use template_ccm::plan::INSTANCE_NAME;

    const PROGRAM: &str = "template-ccm";

    /// Adds a node, and waits until it has the name of its instance.
    async fn named(env: &Env, name: &str) -> Result<()> {
        let instance = env.add_node(name).await?;
        let annotated = nodes::wait_for(&env.client, name, "annotated", 2 * SOON, |node| {
            node.metadata.annotations.iter().flatten().any(|(key, _)| key == INSTANCE_NAME)
        })
        .await?;
        let annotations = annotated.metadata.annotations.unwrap_or_default();
        ensure!(annotations.get(INSTANCE_NAME) == Some(&instance.name), "{annotations:?}");
        Ok(())
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

fn main() -> anyhow::Result<ExitCode> {
    ccm_tests::trials::scenarios(ccm_tests::scenarios! {
        // At most 12 of a controller.
        BOTH:
            template::a_node_gets_the_name_of_its_instance,
            template::a_standby_takes_over;
    })
}
