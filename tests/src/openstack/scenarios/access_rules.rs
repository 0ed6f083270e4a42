//! An application credential that is restricted to the access rules of the provider's page.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use serde_json::Value;

use crate::{
    fixture::past_grace,
    nodes,
    openstack::{
        admin::{Admin, User},
        rig::{Rig, SOON},
    },
};

/// The page from which an operator copies the rules.
const PAGE: &str = include_str!("../../../../docs/reference/openstack-rights.md");

/// Returns the rules for a program, as the page lists them below the heading with its name.
pub(super) fn rules_for(program: &str) -> Result<Vec<Value>> {
    let (_, text) = PAGE
        .split_once(&format!("\n### {program}\n"))
        .with_context(|| format!("the page has no rules for {program}"))?;
    let block = text.split_once("```json").and_then(|(_, text)| text.split_once("```"));
    let (block, _) = block.context("the page lacks a list of access rules")?;
    serde_json::from_str(block).context("the access rules of the page")
}

/// Lets the programs log in with a credential that has these rules. Returns its user.
pub(super) async fn log_in(rig: &Rig, name: &str, rules: &[Value]) -> Result<User> {
    let user = rig.own_user(name).await?;
    let own = Admin::login(rig.cloud.keystone(), &user.account).await?;
    let credential = own.create_application_credential_for(name, rules).await?;
    rig.log_in_with(&credential)?;
    Ok(user)
}

/// Fails if a request of the program was refused.
async fn was_never_refused(program: &Program) -> Result<()> {
    let errors = program.metric("openstack_api_request_errors_total{").await?;
    ensure!(errors < 1.0, "{errors} requests were refused");
    Ok(())
}

pub(super) async fn the_rules_of_the_page_are_enough(rig: &Rig) -> Result<()> {
    let user = log_in(rig, "ruled", &rules_for("node-ccm")?).await?;
    let node_ccm = rig.start(&rig.node_ccm()).await?;
    let server = rig.server("ruled").await?;
    rig.register(&server).await?;
    rig.initialised(&server.name).await?;
    was_never_refused(&node_ccm).await?;
    node_ccm.terminate().await?;
    rig.cloud.operator.delete_user(&user.id).await?;

    let user = log_in(rig, "ruled-lifecycle", &rules_for("lifecycle-ccm")?).await?;
    let others: Vec<_> = rig.cloud.fleet.iter().collect();
    // Together with the existing server, these are enough for lists.
    rig.register_initialised(&others).await?;
    let lifecycle_ccm = rig.start(&rig.lifecycle_ccm()).await?;
    past_grace().await;
    rig.cloud.user.delete_server(&server.id).await?;
    nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    nodes::gone(&rig.client, &server.name, 2 * SOON).await?;
    was_never_refused(&lifecycle_ccm).await?;
    rig.cloud.operator.delete_user(&user.id).await
}

pub(super) async fn a_missing_rule_is_reported_and_nothing_is_half_done(rig: &Rig) -> Result<()> {
    let mut rules = rules_for("node-ccm")?;
    rules.retain(|rule| rule["path"] != "/v2.0/ports");
    ensure!(rules.len() + 1 == rules_for("node-ccm")?.len(), "the page has one rule for ports");
    let user = log_in(rig, "portless", &rules).await?;
    let lost = rig.server("portless").await?;
    let node_ccm = rig.start(&rig.node_ccm()).await?;
    let new = rig.fleet(0)?;
    rig.register(new).await?;
    let told = nodes::event(&rig.client, &new.name, "port_list", SOON).await?;
    ensure!(told.contains("401") || told.contains("403"), "it says that it is refused: {told}");

    let lifecycle_ccm = rig.start(&rig.lifecycle_ccm()).await?;
    rig.register_initialised(&[rig.fleet(1)?, &lost]).await?;
    past_grace().await;
    rig.cloud.user.delete_server(&lost.id).await?;
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    // Nova alone decides which instances exist.
    nodes::gone(&rig.client, &lost.name, 2 * SOON).await?;
    let names = [new.name.as_str(), rig.fleet(1)?.name.as_str()];
    nodes::stay(&rig.client, &names, Duration::from_secs(4)).await?;
    let node = nodes::get(&rig.client, &new.name).await?;
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
    ensure!(nodes::is_tainted(&node) && provider_id.is_none(), "half of it is written: {node:?}");

    let refused = "openstack_api_request_errors_total{request=\"port_list\"}";
    ensure!(node_ccm.metric(refused).await? > 0.0, "the metric says which request is refused");
    ensure!(lifecycle_ccm.metric(refused).await? < 1.0, "lifecycle-ccm asks for no port");
    let (_, page) = node_ccm.get("/readyz?verbose").await?;
    ensure!(page.contains("network"), "the page says which service refuses: {page}");
    ensure!(node_ccm.log().contains("port_list"), "the log says what is refused");

    let credential = {
        let own = Admin::login(rig.cloud.keystone(), &user.account).await?;
        own.create_application_credential_for("whole", &rules_for("node-ccm")?).await?
    };
    rig.log_in_with(&credential)?;
    rig.initialised(&new.name).await?;
    poll::until("requests for ports to succeed", SOON, || async {
        Ok((node_ccm.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    rig.cloud.operator.delete_user(&user.id).await
}
