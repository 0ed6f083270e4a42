//! Dashboards, alerts and metrics, checked by a real Prometheus and its promtool, whose folder
//! `QUARTET_PROMETHEUS` names.
//!
//! A [`Stage`] runs a controller's replicas through its [`Story`] while two Prometheus ([`server`])
//! scrape them, one with the labels of [`operator`]; [`evaluated`] sends every query about this
//! controller to both. [`dashboards`] reads the dashboards as Grafana does, [`variables`] replaces
//! the variables of a query as Grafana does, and [`promql`] finds the names of metrics in an
//! expression.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::program::Identity;
use libtest_mimic::Trial;

pub mod dashboards;
mod evaluated;
mod operator;
pub mod promql;
mod reference;
pub mod rules;
pub mod server;
mod stage;
mod variables;

pub use stage::{SETTLE, Stage};

use crate::{
    printed,
    suite::{Story, Work},
    trials::Trials,
};

/// Returns the folder of Prometheus' programs, if there is one.
pub fn folder() -> Option<PathBuf> {
    env::var_os("QUARTET_PROMETHEUS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Fails if `promtool check metrics` has a complaint about this page.
pub fn check_page(page: &str) -> Result<()> {
    let promtool = folder().context("QUARTET_PROMETHEUS names no folder")?.join("promtool");
    let mut child = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", promtool.display()))?;
    child.stdin.take().context("it has an input")?.write_all(page.as_bytes())?;
    let out = child.wait_with_output()?;
    let complaints = String::from_utf8_lossy(&out.stderr);
    let is_ours = |line: &&str| !line.trim().is_empty() && !is_upstreams(line);
    let ours: Vec<_> = complaints.lines().filter(is_ours).collect();
    let has_ended_well = out.status.success() || !complaints.trim().is_empty();
    ensure!(has_ended_well && ours.is_empty(), "{}:\n{}", out.status, ours.join("\n"));
    Ok(())
}

/// Returns true if promtool complains about a name of upstream: the label `clusterCIDR` of node
/// IPAM.
fn is_upstreams(complaint: &str) -> bool {
    complaint.trim_start().starts_with("node_ipam_controller_")
        && complaint.ends_with("label names should be written in 'snake_case' not 'camelCase'")
}

/// Returns the tests of this program's metrics.
pub(crate) fn trials(trials: &Trials, program: Identity, work: Work, story: Story) -> Vec<Trial> {
    let Some(folder) = folder() else {
        eprintln!(
            "dashboards of {}: skipped; `make test-dashboards` asks a real Prometheus",
            program.binary
        );
        return Vec::new();
    };
    vec![
        trials.alone("dashboards::promtool_accepts_the_metrics", async move || {
            promtool_accepts_the_metrics(program, work).await
        }),
        trials.alone("dashboards::every_query_has_an_answer", async move || {
            every_query_has_an_answer(&folder, program, story).await
        }),
    ]
}

/// Checks the page of a running program, and the page with every metric that it may have.
async fn promtool_accepts_the_metrics(program: Identity, work: Work) -> Result<()> {
    check_page(&printed::metrics_page(program.binary)?).context("all of its metrics")?;
    let env = stage::simulated().await?;
    let running = env.start(&(work.launch)(&env)).await?;
    for round in 0..3 {
        (work.step)(&env, round).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (status, page) = running.get("/metrics").await?;
    ensure!(status == 200, "/metrics answers {status}");
    check_page(&page)
}

async fn every_query_has_an_answer(folder: &Path, program: Identity, story: Story) -> Result<()> {
    let played = stage::play(folder, &rules::files()?, program, story).await?;
    let mut wrong = Vec::new();
    for server in &played.servers {
        for dashboard in dashboards::all()? {
            wrong.extend(evaluated::dashboard(&dashboard, program, server, played.span).await?);
        }
        wrong.extend(evaluated::rules(program, server, played.span).await?);
        wrong.extend(evaluated::hidden(server).await?);
    }
    let pages = reference::check(program.binary, &played.pages);
    wrong.extend(pages.err().map(|error| format!("{error:#}")));
    if env::var_os("QUARTET_DASHBOARDS_STAY").is_some() {
        for server in &played.servers {
            eprintln!("Prometheus: http://{}", server.address());
        }
        eprintln!("{} to {}; Enter ends it", played.span.start, played.span.end);
        std::io::stdin().read_line(&mut String::new())?;
    }
    ensure!(wrong.is_empty(), "{} of them:\n  {}", wrong.len(), wrong.join("\n  "));
    Ok(())
}
