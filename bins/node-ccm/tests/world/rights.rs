//! A program names the rights that it lacks.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    apiserver::{Action, Fault, Verb},
    poll,
};

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON};

/// A missing right is reviewed again after this time, and the review takes a moment.
const AGAIN: Duration = Duration::from_secs(45);

/// Returns how often the program has asked for its rights so far.
async fn reviews(env: &Env) -> Result<usize> {
    let all = env.requests(NODE_AGENT).await?;
    Ok(all.iter().filter(|request| request.resource == "selfsubjectaccessreviews").count())
}

pub(super) async fn a_missing_right_is_named_until_it_is_granted(env: Env) -> Result<()> {
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let forbidden = Action::Status { code: 403, retry_after: None };
    let fault = Fault::new(forbidden).user_agent(NODE_AGENT).verb(Verb::Patch).resource("nodes");
    let fault = faults.add(fault.subresource("status"));
    let mut program = env.start_only(&env.node_ccm())?;
    program.leading(SOON).await?;
    let missing = "[-]rights failed: node-ccm may not patch nodes/status; apply the roles";
    poll::until("the missing right to be named", SOON, || async {
        let (status, page) = program.get("/readyz?verbose").await?;
        ensure!(status != 200, "ready without its rights:\n{page}");
        Ok(page.contains(missing).then_some(()))
    })
    .await?;
    ensure!((program.metric("ccm_missing_rights").await? - 1.0).abs() < f64::EPSILON, "one");
    ensure!(program.get("/livez").await?.0 == 200, "a restart would not help");
    let line = "rights are missing: node-ccm may not patch nodes/status";
    ensure!(program.log().matches(line).count() == 1, "not one line:\n{}", program.log());
    let asked = reviews(&env).await?;
    ensure!(asked == 14, "each right is asked for once, not {asked} in all");

    env.add_node("node-1").await?;
    nodes::event(&env.client, "node-1", "WriteFailed", SOON).await?;
    faults.remove(fault);
    env.initialised("node-1").await?;
    poll::until("readiness once the right is granted", AGAIN, || async {
        Ok((program.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    ensure!(program.metric("ccm_missing_rights").await? < 0.5, "no right is missing");
    ensure!(reviews(&env).await? == asked + 1, "only what was missing is asked for again");
    program.ready().await
}
