//! A configuration file that is lost, or that loses a setting, does not remove any protection.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use serde_json::Value;

use ccm_tests::scenarios::Env;

use super::mount::Mount;

/// How soon a new file is in force or refused. The program reads it every 5 s.
const TAKEN: Duration = Duration::from_secs(10);

pub(super) async fn a_lost_file_or_setting_lifts_no_protection(env: Env) -> Result<()> {
    let mut mount =
        Mount::new(env.path("config"), "node_deletion_budget: 0\nnode_monitor_period: 1s\n")?;
    let launch = env.lifecycle_ccm().arg(format!("--config={}", mount.file().display()));
    let program = env.start(&launch).await?;
    let check = async |what: &str, line: &str, budget: &str, period: &str| -> Result<()> {
        shown(&program, line).await.context(what.to_owned())?;
        let values = (
            value(&program, "node_deletion_budget").await?,
            value(&program, "node_monitor_period").await?,
        );
        ensure!(
            values == (budget.to_owned(), period.to_owned()),
            "{what}: {values:?} are in force"
        );
        Ok(())
    };
    check("the first version", "[+]config ok: ", "0", "1s").await?;

    mount.swap("")?;
    check("an emptied file", "must hold at least one setting", "0", "1s").await?;
    mount.remove()?;
    check("no file", "there is no such file", "0", "1s").await?;

    mount.swap("node_deletion_budget: 0\n")?;
    check("a setting less", "[+]config ok: ", "0", "5s").await?;
    said(&program, &["node_monitor_period is no longer in ", "\"5s\"", "\"1s\""])?;

    mount.swap("node_monitor_period: 1s\n")?;
    check(
        "no emergency stop",
        "node_deletion_budget is no longer in the file and stays 0",
        "0",
        "1s",
    )
    .await?;
    said(&program, &["node_deletion_budget is no longer in ", "\"0\"", "\"10%\""])?;

    mount.swap("node_deletion_budget: 5\nnode_monitor_period: 2s\n")?;
    poll::until("the new budget", TAKEN, || async {
        Ok((value(&program, "node_deletion_budget").await? == "5").then_some(()))
    })
    .await?;
    check("another budget", "[+]config ok: ", "5", "2s").await
}

/// Waits until the line of the check `config` has this text.
async fn shown(program: &Program, text: &str) -> Result<()> {
    poll::until(text, TAKEN, || async {
        let (_, page) = program.get("/readyz?verbose").await?;
        let line = page.lines().find(|line| line.contains("]config")).unwrap_or_default();
        ensure!(line.contains(text), "{line}");
        eprintln!("{line}");
        Ok(Some(()))
    })
    .await
}

/// Returns a setting in force.
async fn value(program: &Program, key: &str) -> Result<String> {
    let (_, page) = program.get("/configz").await?;
    let page: Value = serde_json::from_str(&page)?;
    let value = page.pointer(&format!("/lifecycle-ccm/settings/{key}/value"));
    Ok(value.and_then(Value::as_str).context("a setting has a value")?.to_owned())
}

/// Checks that one line of the log has all these parts.
fn said(program: &Program, parts: &[&str]) -> Result<()> {
    let log = program.log();
    let line = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    eprintln!("{}", line.with_context(|| format!("no line with {parts:?}:\n{log}"))?);
    Ok(())
}
