//! An application credential that is restricted to the access rules of the provider's page.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
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
const PAGE: &str = include_str!("../../../../docs/providers/openstack.md");

/// The rules for nodes, as the page lists them.
fn rules_of_the_page() -> Result<Vec<Value>> {
    rules(0)
}

/// The rules for routes, as the page lists them.
pub(super) fn rules_for_routes() -> Result<Vec<Value>> {
    rules(1)
}

/// The page's list of rules with this number.
fn rules(number: usize) -> Result<Vec<Value>> {
    let blocks = PAGE.split("```yaml").skip(1).filter_map(|text| text.split("```").next());
    let mut lists = blocks.filter(|block| block.trim_start().starts_with("- {service:"));
    let list = lists.nth(number).context("the page lacks a list of access rules")?;
    serde_yaml_ng::from_str(list).context("the access rules of the page")
}

/// Lets the programs log in with a credential that has these rules. Returns its user.
pub(super) async fn log_in(rig: &Rig, name: &str, rules: &[Value]) -> Result<User> {
    let user = rig.own_user(name).await?;
    let own = Admin::login(rig.cloud.keystone(), &user.account).await?;
    let credential = own.create_application_credential_for(name, rules).await?;
    rig.log_in_with(&credential)?;
    Ok(user)
}

pub(super) async fn the_rules_of_the_page_are_enough(rig: &Rig) -> Result<()> {
    let user = log_in(rig, "ruled", &rules_of_the_page()?).await?;
    let node_ccm = rig.start(&rig.node_ccm()).await?;
    let server = rig.server("ruled").await?;
    rig.register(&server).await?;
    rig.initialised(&server.name).await?;
    let others: Vec<_> = rig.cloud.fleet.iter().collect();
    // Together with the one that is there, enough for lists.
    rig.register_initialised(&others).await?;

    let lifecycle_ccm = rig.start(&rig.lifecycle_ccm()).await?;
    past_grace().await;
    rig.cloud.user.delete_server(&server.id).await?;
    nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    nodes::gone(&rig.client, &server.name, 2 * SOON).await?;
    for program in [&node_ccm, &lifecycle_ccm] {
        let errors: f64 = program
            .metrics()
            .await?
            .iter()
            .filter(|(name, _)| name.starts_with("openstack_api_request_errors_total"))
            .map(|(_, count)| count)
            .sum();
        ensure!(errors < 1.0, "{errors} requests were refused");
    }
    rig.cloud.operator.delete_user(&user.id).await
}

pub(super) async fn a_missing_rule_is_reported_and_nothing_is_half_done(rig: &Rig) -> Result<()> {
    let mut rules = rules_of_the_page()?;
    rules.retain(|rule| rule["path"] != "/v2.0/ports");
    ensure!(rules.len() + 1 == rules_of_the_page()?.len(), "the page has one rule for ports");
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
        own.create_application_credential_for("whole", &rules_of_the_page()?).await?
    };
    rig.log_in_with(&credential)?;
    rig.initialised(&new.name).await?;
    poll::until("requests for ports to succeed", SOON, || async {
        Ok((node_ccm.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    rig.cloud.operator.delete_user(&user.id).await
}
