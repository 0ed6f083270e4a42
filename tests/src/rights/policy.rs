//! A program whose admission policy belongs to another version, is not installed, or cannot be
//! seen: it is ready, works as far as it may, and reports the problem.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use tokio::time::{Instant, sleep};

use super::{account::Account, manifest::Grant};
use crate::{
    scenarios::{Env, SOON},
    suite::Work,
};

/// The program repeats a refused write within this time once the policy is right.
const AGAIN: Duration = Duration::from_secs(45);
/// The time between two rounds of work.
const TURN: Duration = Duration::from_secs(10);
/// For how long refused writes are counted.
const COUNTED: Duration = Duration::from_secs(10);
/// The maximum number of refused writes of one object within [`COUNTED`], because they back off.
const MOST: usize = 12;

/// The policy of a version that does not write anything is in force: one line names it, refused
/// writes back off, and the program continues once the policy of its own version is in force.
pub async fn an_older_one_is_named(
    env: &Env,
    account: &Account,
    work: &Work,
    write: &Grant,
) -> Result<()> {
    account.confine_to_nothing().await?;
    let program = env.start_only(&(work.launch)(env))?;
    let refused = format!(
        "[!]admission-policy: the admission policy {} has refused a write",
        account.program()
    );
    let next = says(env, &program, work, &refused).await?;
    let since = env.requests("").await?.len();
    sleep(COUNTED).await;
    let mut by_object = std::collections::BTreeMap::<_, usize>::new();
    for request in env.requests("").await?.into_iter().skip(since) {
        if request.code == 403 && request.user.ends_with(account.program()) {
            *by_object.entry((request.namespace, request.name)).or_default() += 1;
        }
    }
    let most = by_object.values().max().copied().unwrap_or_default();
    ensure!(most <= MOST, "{most} refused writes of one object in {COUNTED:?}");
    let log = program.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("has refused a write")).collect();
    let mut texts: Vec<_> =
        lines.iter().filter_map(|line| line.split_once("has refused a write")).collect();
    texts.dedup_by_key(|(_, text)| *text);
    ensure!(texts.len() == lines.len() && lines.len() <= 4, "not one line each: {lines:#?}");
    let file = format!("manifests/{}", account.program());
    ensure!(lines.iter().all(|line| line.contains(&file)), "{file} is not named: {lines:#?}");
    ensure!(
        program.metric("ccm_admission_policy_refusals_total").await? > 0.0,
        "nothing is counted"
    );
    ensure!((work.is_undone)(env, write).await?, "it was done although the policy refuses it");
    account.restore().await?;
    done(env, &program, work, (next, write)).await
}

/// Without a policy the program works, and says that its account may write more.
pub async fn none_is_said(env: &Env, account: &Account, work: &Work, write: &Grant) -> Result<()> {
    account.remove_policy().await?;
    let program = env.start_only(&(work.launch)(env))?;
    let missing = format!("[!]admission-policy: the policy {} is not installed", account.program());
    let next = says(env, &program, work, &missing).await?;
    ensure!(program.metric("ccm_admission_policy_installed").await? < 0.5, "it is not installed");
    done(env, &program, work, (next, write)).await?;
    let log = program.log();
    let lines =
        log.lines().filter(|line| line.contains("is not installed, or this API server")).count();
    ensure!(lines == 1, "{lines} lines: {log}");
    Ok(())
}

/// Without the right to see the policy the program works, and names the right.
pub async fn a_missing_right_is_said(
    env: &Env,
    account: &Account,
    work: &Work,
    (grant, write): (&Grant, &Grant),
) -> Result<()> {
    account.take(grant).await?;
    let program = env.start_only(&(work.launch)(env))?;
    let next = says(env, &program, work, "[!]admission-policy: not known if").await?;
    let words = format!("cannot {} resource \"{}\"", grant.verb, grant.resource);
    ensure!(program.log().contains(&words), "the log does not say `{words}`");
    done(env, &program, work, (next, write)).await
}

/// Works until the page says this, and checks that the program is ready. Returns the next round of
/// work.
async fn says(env: &Env, program: &Program, work: &Work, line: &str) -> Result<u32> {
    let (end, mut next) = (Instant::now() + SOON, 0);
    loop {
        (work.step)(env, next).await?;
        next += 1;
        sleep(Duration::from_millis(300)).await;
        // The pages are served a moment after the process starts.
        if program.get("/readyz?verbose").await.is_ok_and(|(_, page)| page.contains(line)) {
            break;
        }
        ensure!(Instant::now() < end, "the page does not say `{line}`: {}", program.log());
    }
    poll::until("readiness", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 200).then_some(()))
    })
    .await
    .with_context(|| program.log())?;
    Ok(next)
}

/// Works from this round on until the work is done.
async fn done(
    env: &Env,
    program: &Program,
    work: &Work,
    (next, write): (u32, &Grant),
) -> Result<()> {
    let end = Instant::now() + AGAIN;
    for round in next.. {
        (work.step)(env, round).await?;
        let turn = Instant::now() + TURN;
        while Instant::now() < turn {
            // An error may be about an object that does not exist yet.
            if (work.is_undone)(env, write).await.is_ok_and(|is_undone| !is_undone) {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
        ensure!(Instant::now() < end, "the work is not done: {}", program.log());
    }
    Ok(())
}
