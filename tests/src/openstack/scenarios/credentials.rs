//! Tokens expire; passwords are wrong and change.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use tokio::time::sleep;

use crate::{
    nodes,
    openstack::{
        admin::{Account, Admin},
        proxy::tally,
        rig::{Rig, SOON},
    },
};

/// Returns the number of logins since this mark of the proxy's log.
fn logins(rig: &Rig, mark: usize) -> usize {
    let counts = tally(&rig.cloud.proxy.log().since(mark));
    counts.get("identity POST /v3/auth/tokens").copied().unwrap_or_default()
}

/// Initialises the node of the first server of the fleet, with the current credentials.
async fn works(rig: &Rig) -> Result<()> {
    let server = rig.fleet(0)?;
    rig.register(server).await?;
    rig.initialised(&server.name).await?;
    Ok(())
}

/// Checks the same for the second server, after a change.
async fn works_still(rig: &Rig) -> Result<()> {
    let server = rig.fleet(1)?;
    rig.register(server).await?;
    rig.initialised(&server.name).await?;
    Ok(())
}

/// Waits until the program says that it is not ready, and returns the page that says why.
async fn not_ready(program: &Program) -> Result<String> {
    poll::until("the program to answer that it is not ready", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 500).then_some(()))
    })
    .await?;
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    Ok(program.get("/readyz?verbose").await?.1)
}

/// Waits until the program counts its credentials as refused. It has worked before, so it
/// stays ready: neither a restart nor another replica would help.
async fn refused(program: &Program) -> Result<String> {
    poll::until("the credentials to be refused", SOON, || async {
        Ok((program.metric("openstack_credentials_refused").await? > 0.0).then_some(()))
    })
    .await
    .with_context(|| program.log())?;
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    Ok(program.log())
}

pub(super) async fn a_revoked_token_is_replaced(rig: &Rig) -> Result<()> {
    let log = rig.cloud.proxy.log();
    let program = rig.start(&rig.node_ccm()).await?;
    works(rig).await?;
    let mark = log.mark();
    let token = log.last_token().context("the program has logged in")?;
    rig.cloud.operator.revoke_token(&token).await?;
    rig.past_token_caches().await;
    works_still(rig).await?;
    ensure!(logins(rig, mark) == 1, "one login, not {}", logins(rig, mark));
    ensure!(program.get("/readyz").await?.0 == 200, "it was ready all the time");
    Ok(())
}

pub(super) async fn a_wrong_password_is_reported_and_retried_slowly(rig: &Rig) -> Result<()> {
    let account = Account { password: "no-such".to_owned(), ..Account::of("k8s") };
    rig.log_in_as(&account)?;
    let mark = rig.cloud.proxy.log().mark();
    let program = rig.start_only(&rig.node_ccm())?;
    let page = not_ready(&program).await?;
    ensure!(page.contains("cloud"), "it says why: {page}");
    poll::until("the log to name the user that Keystone refuses", SOON, || async {
        Ok(program.log().contains("k8s").then_some(()))
    })
    .await
    .with_context(|| program.log())?;
    sleep(Duration::from_secs(5)).await;
    ensure!(logins(rig, mark) <= 2, "{} logins with a refused password", logins(rig, mark));
    let log = program.log();
    ensure!(!log.contains("no-such"), "the log never shows a password: {log}");

    rig.log_in_as(&Account::of("k8s"))?;
    // A rejected login is not retried for half a minute at first, and a program that has not
    // started yet waits as long.
    poll::until("the right password to be taken up", 2 * SOON, || async {
        Ok((program.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    works(rig).await
}

pub(super) async fn a_changed_password_is_used(rig: &Rig) -> Result<()> {
    let user = rig.own_user("password").await?;
    rig.log_in_as(&user.account)?;
    let _program = rig.start(&rig.node_ccm()).await?;
    works(rig).await?;
    let user = rig.cloud.operator.change_password(&user, "another").await?;
    rig.log_in_as(&user.account)?;
    works_still(rig).await?;
    rig.cloud.operator.delete_user(&user.id).await
}

pub(super) async fn application_credentials_are_rotated(rig: &Rig) -> Result<()> {
    let user = rig.own_user("rotation").await?;
    let own = Admin::login(rig.cloud.keystone(), &user.account).await?;
    let first = own.create_application_credential("first").await?;
    rig.log_in_with(&first)?;
    let program = rig.start(&rig.node_ccm()).await?;
    works(rig).await?;

    let mark = rig.cloud.proxy.log().mark();
    let second = own.create_application_credential("second").await?;
    rig.log_in_with(&second)?;
    poll::until("the new credential to be tried", SOON, || async {
        Ok((logins(rig, mark) > 0).then_some(()))
    })
    .await?;
    own.delete_application_credential(&first.id).await?;
    works_still(rig).await?;
    ensure!(program.get("/readyz").await?.0 == 200, "it was ready all the time");
    rig.cloud.operator.delete_user(&user.id).await
}

pub(super) async fn a_trust_is_enough_and_its_end_is_reported(rig: &Rig) -> Result<()> {
    let trustor = rig.own_user("trustor").await?;
    // The trustee's own project does not have the cluster's servers.
    let trustee = rig.own_user_of("other", "trustee").await?;
    let own = Admin::login(rig.cloud.keystone(), &trustor.account).await?;
    let trust = own.trust(&trustee).await?;
    rig.log_in_by_trust(&trust, &trustee)?;
    let program = rig.start(&rig.node_ccm()).await?;
    works(rig).await?;

    own.delete_trust(&trust).await?;
    rig.past_token_caches().await;
    rig.register(rig.fleet(1)?).await?;
    let log = refused(&program).await?;
    ensure!(log.contains(&trust), "the log names the trust that Keystone refuses: {log}");

    let trust = own.trust(&trustee).await?;
    rig.log_in_by_trust(&trust, &trustee)?;
    rig.initialised(&rig.fleet(1)?.name).await?;
    rig.cloud.operator.delete_user(&trustee.id).await?;
    rig.cloud.operator.delete_user(&trustor.id).await
}

pub(super) async fn a_token_serves_until_it_ends(rig: &Rig) -> Result<()> {
    let user = rig.own_user("bearer").await?;
    let first = Admin::login(rig.cloud.keystone(), &user.account).await?;
    rig.log_in_by_token(first.token())?;
    let program = rig.start(&rig.node_ccm()).await?;
    works(rig).await?;

    // This ends the token that the program was given, and the token that it was exchanged for.
    let user = rig.cloud.operator.change_password(&user, "another").await?;
    rig.past_token_caches().await;
    rig.register(rig.fleet(1)?).await?;
    // Keystone answers 404 for a revoked token.
    let log = refused(&program).await?;
    ensure!(!log.contains(first.token()), "the log never shows a token: {log}");
    ensure!(nodes::is_tainted(&nodes::get(&rig.client, &rig.fleet(1)?.name).await?), "it waits");

    let second = Admin::login(rig.cloud.keystone(), &user.account).await?;
    rig.log_in_by_token(second.token())?;
    rig.initialised(&rig.fleet(1)?.name).await?;
    rig.cloud.operator.delete_user(&user.id).await
}

pub(super) async fn a_missing_configuration_is_reported(_rig: &Rig) -> Result<()> {
    for program in ["node-ccm", "lifecycle-ccm"] {
        let launch = Launch::new(program).arg("--cloud-provider=openstack").arg("--check-config");
        let ended = launch.run(SOON).await?;
        ensure!(!ended.status.success(), "{program} takes it: {ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let line = "--cloud-config: not set; it must be the path of a cloud.conf";
        ensure!(said.contains(line), "{program}: {said}");
    }
    Ok(())
}
