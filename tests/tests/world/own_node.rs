//! `/readyz?verbose` shows problems of the node that runs the program.

use anyhow::{Result, ensure};
use ccm_sim::{
    poll,
    program::{Program, free_port},
};
use serde_json::json;

use ccm_tests::{
    nodes,
    scenarios::{Env, SOON},
};

/// Waits until the page shows this about the node, without failing the probe.
async fn shows(program: &Program, text: &str) -> Result<()> {
    poll::until(text, 2 * SOON, || async {
        let (status, page) = program.get("/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("own-node")).unwrap_or_default();
        ensure!(status == 200 && line.contains(text), "{status}: {page}");
        Ok(Some(()))
    })
    .await
}

pub(super) async fn a_hold_up_of_the_programs_node_is_shown(env: Env) -> Result<()> {
    let program = env.start(&env.lifecycle_ccm().arg("--node-name=node-1")).await?;
    shows(&program, "node-1, which runs this program, does not exist").await?;
    env.add_node("node-1").await?;
    shows(&program, "node.cloudprovider.kubernetes.io/uninitialized").await?;
    poll::until("the log to report it once", 2 * SOON, || async {
        let log = program.log();
        let count = log.matches("which runs this program, has the taint").count();
        ensure!(count == 1, "{count} times in {log}");
        Ok(Some(()))
    })
    .await?;
    nodes::patch(&env.client, "node-1", json!({"spec": {"taints": []}})).await?;
    shows(&program, "has no InternalIP").await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": free_port()?}},
    }});
    nodes::patch_status(&env.client, "node-1", status).await?;
    shows(&program, "cannot be reached at its kubelet's address 127.0.0.1:").await
}
