//! One right is missing: something must fail, and the program must name the right.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{account::Account, manifest::Grant};
use crate::{
    cluster::Request,
    scenarios::{Env, SOON},
    suite::Work,
};

/// Time limit until the program needs the missing right.
const MISSED: Duration = Duration::from_secs(40);
/// A newly granted right is noticed within this time.
const AGAIN: Duration = Duration::from_secs(45);

/// Takes away the right and gives the program work. Fails unless the program names the right, the
/// API server refuses a request because of it, and the log says so.
pub async fn is_needed(env: &Env, account: &Account, work: &Work, grant: &Grant) -> Result<()> {
    account.take(grant).await?;
    if is_of_standbys(grant) {
        another_leads(env, account.program()).await?;
    }
    let program = env.start_only(&(work.launch)(env))?;
    named(&program, account.program(), grant).await?;
    missed(env, &program, account.program(), work, grant).await?;
    harm(env, &program, work, grant).await
}

/// Grants the missing right while the program runs. It continues without a restart.
pub async fn is_noticed(env: &Env, account: &Account, work: &Work, grant: &Grant) -> Result<()> {
    account.take(grant).await?;
    let program = env.start_only(&(work.launch)(env))?;
    named(&program, account.program(), grant).await?;
    missed(env, &program, account.program(), work, grant).await?;
    account.restore().await?;
    poll::until("readiness once the right is granted", AGAIN, || async {
        Ok((program.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await?;
    poll::until("what was refused to be done", AGAIN, || async {
        Ok((!(work.is_undone)(env, grant).await?).then_some(()))
    })
    .await
    .with_context(|| program.log())
}

/// Returns true for a right that only standbys need. A Lease is watched only while another replica
/// leads by it: a candidate that does not find one may lead before its watch has begun.
fn is_of_standbys(grant: &Grant) -> bool {
    grant.resource == "leases" && ["list", "watch"].contains(&grant.verb.as_str())
}

/// Makes another replica take the Lease. That replica does not renew it, so that the program leads
/// after it has been a standby for a term.
async fn another_leads(env: &Env, program: &str) -> Result<()> {
    let lease = serde_json::from_value::<Lease>(json!({
        "metadata": {"name": program},
        "spec": {"holderIdentity": "another-replica", "leaseDurationSeconds": 5, "leaseTransitions": 0},
    }))?;
    let api = Api::namespaced(env.client.clone(), "kube-system");
    api.create(&PostParams::default(), &lease).await?;
    Ok(())
}

/// Checks that the page and the log name the right, and the program is not ready.
async fn named(program: &Program, name: &str, grant: &Grant) -> Result<()> {
    let page =
        poll::until(&format!("the program to say that it may not {grant}"), SOON, || async {
            // The pages are served a moment after the process starts.
            let Ok((status, page)) = program.get("/readyz?verbose").await else { return Ok(None) };
            ensure!(status != 200, "superfluous: {name} is ready without the right to {grant}");
            Ok(page
                .contains("rights failed: ")
                .then_some(page)
                .filter(|page| !page.contains("being reviewed")))
        })
        .await
        .with_context(|| program.log())?;
    let text = format!("[-]rights failed: {name} may not {grant}; apply the roles");
    ensure!(page.contains(&text), "the page does not say `{text}`:\n{page}");
    let missing = program.metric("ccm_missing_rights").await?;
    ensure!((missing - 1.0).abs() < f64::EPSILON, "one right is missing, not {missing}");
    let line = format!("rights are missing: {name} may not {grant}");
    ensure!(program.log().contains(&line), "the log does not say `{line}`:\n{}", program.log());
    Ok(())
}

/// Works until the API server has refused a request that needs the right, and the log names the
/// right.
async fn missed(
    env: &Env,
    program: &Program,
    name: &str,
    work: &Work,
    grant: &Grant,
) -> Result<()> {
    let agent = format!("{name}/");
    let end = Instant::now() + MISSED;
    for round in 0.. {
        (work.step)(env, round).await?;
        if env.requests(&agent).await?.iter().any(|request| refuses(request, grant)) {
            break;
        }
        ensure!(
            Instant::now() < end,
            "superfluous: nothing that {name} did needed the right to {grant}"
        );
        sleep(Duration::from_millis(200)).await;
    }
    let part = if grant.subresource.is_empty() { "" } else { "/" };
    let words =
        format!("cannot {} resource \"{}{part}{}\"", grant.verb, grant.resource, grant.subresource);
    poll::until(&format!("the log to say `{words}`"), SOON, || async {
        Ok(program.log().contains(&words).then_some(()))
    })
    .await
    .with_context(|| program.log())
}

fn refuses(request: &Request, grant: &Grant) -> bool {
    // The policy of `manifests/guard` refuses the write of an object that the account may not mark.
    let is_of_verb = match grant.verb.as_str() {
        "mark" => request.is_write(),
        verb => request.verb == verb && request.subresource == grant.subresource,
    };
    request.code == 403
        && is_of_verb
        && request.resource == grant.resource
        && (grant.namespace.is_empty() || request.namespace == grant.namespace)
}

/// Checks the effect that must not occur without the right.
async fn harm(env: &Env, program: &Program, work: &Work, grant: &Grant) -> Result<()> {
    if grant.is_of_work() {
        ensure!((work.is_undone)(env, grant).await?, "it was done without the right to {grant}");
    }
    let elects = grant.resource == "leases" && !grant.is_of_work();
    if elects && ["get", "create"].contains(&grant.verb.as_str()) {
        ensure!(!program.leads().await?, "it leads without the right to {grant}");
    }
    Ok(())
}
