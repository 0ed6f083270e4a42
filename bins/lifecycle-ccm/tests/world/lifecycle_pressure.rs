//! Limits that hold when several things go wrong at once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, Verb},
    poll,
};
use serde_json::json;
use tokio::time::sleep;

use super::lifecycle::{DELETION, confirming, count, quick};
use ccm_tests::scenarios::{Env, LIFECYCLE_AGENT, SOON, past_grace, with_short_terms};
use ccm_tests::{cluster::free_lease, nodes};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number}")).collect()
}

/// Starts this number of initialised nodes, past their grace period.
async fn fleet(env: &Env, count: usize) -> Result<()> {
    let names = names(count);
    env.add_initialised(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    past_grace().await;
    Ok(())
}

/// Returns a fault of the API server that affects only lifecycle-ccm's requests about nodes.
fn fault(action: Action, verb: Verb) -> ApiFault {
    ApiFault::new(action).user_agent(LIFECYCLE_AGENT).verb(verb).resource("nodes")
}

pub(super) async fn deletions_whose_answer_is_lost_stay_within_the_budget(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env).arg("--node-deletion-budget=1")).await?;
    fleet(&env, 12).await?;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    faults.add(fault(Action::DropAfterApply, Verb::Delete));
    for name in &names(4) {
        env.lose(name).await?;
    }
    sleep(3 * DELETION).await;
    let left = nodes::names(&env.client).await?.len();
    ensure!(left == 11, "the budget is one, and {} nodes were deleted", 12 - left);
    Ok(())
}

/// Each leader is killed as soon as it has deleted a node, or may have deleted one.
pub(super) async fn ten_killed_leaders_share_one_budget(env: Env) -> Result<()> {
    const LIVES: usize = 10;
    const LEFT: usize = 27;
    const HELD: &str = r#"ccm_lifecycle_verdicts_total{verdict="over_budget",reason=""}"#;
    let launch = confirming(&env, Duration::from_secs(1)).arg("--node-deletion-budget=3");
    let launch = with_short_terms(launch);
    fleet(&env, 30).await?;
    for name in &names(12) {
        env.lose(name).await?;
    }
    let faults = env.cluster.simulated().context("simulated")?.faults();
    // One of three deletions is late.
    let late = Action::Delay(Duration::from_millis(500));
    faults.add(fault(late, Verb::Delete).name("node-0"));
    for life in 0..LIVES {
        let before = nodes::names(&env.client).await?.len();
        let leader = env.start_standby(&launch).await?;
        // A change shows that its watch works. Otherwise it would wait for a bookmark.
        let change = json!({"metadata": {"labels": {"life": life.to_string()}}});
        nodes::patch(&env.client, "node-29", change).await?;
        leader.leading(SOON).await?;
        poll::until("a deletion, or that it is held", 2 * SOON, || async {
            let is_deleted = nodes::names(&env.client).await?.len() < before;
            let is_used_up = before <= LEFT && count(&leader, HELD).await? > 0;
            Ok((is_deleted || is_used_up).then_some(()))
        })
        .await
        .with_context(|| leader.log())?;
        drop(leader);
        free_lease(&env.client, "lifecycle-ccm").await?;
    }
    let left = nodes::names(&env.client).await?.len();
    ensure!(left == LEFT, "three of thirty nodes may go, and {} went", 30 - left);
    Ok(())
}

pub(super) async fn a_conflict_about_the_taint_is_soon_forgotten(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env)).await?;
    fleet(&env, 1).await?;
    env.cloud().update(&nodes::instance("node-0").id, |instance| {
        instance.power = PowerState::Stopped;
    });
    nodes::set_ready(&env.client, "node-0", "Unknown").await?;
    let tainted = async |wanted: bool| {
        nodes::wait_for(&env.client, "node-0", &format!("tainted: {wanted}"), SOON, |node| {
            nodes::has_taint(node, nodes::SHUTDOWN) == wanted
        })
        .await
    };
    tainted(true).await?;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let conflict = Action::Status { code: 409, retry_after: None };
    faults.add(fault(conflict, Verb::Patch).times(1));
    nodes::set_ready(&env.client, "node-0", "True").await?;
    // Without this, the next look would come after a minute.
    tainted(false).await?;
    Ok(())
}

pub(super) async fn a_lowered_budget_stops_what_is_not_yet_sent(env: Env) -> Result<()> {
    let file = env.path("lifecycle-ccm.yaml");
    std::fs::write(&file, "node_deletion_budget: 50\n")?;
    let launch = quick(&env)
        .arg(format!("--config={}", file.display()))
        .arg("--concurrent-node-lifecycle-syncs=1");
    let _program = env.start(&launch).await?;
    fleet(&env, 60).await?;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let slow = Action::Delay(Duration::from_secs(1));
    faults.add(fault(slow, Verb::Delete));
    for name in &names(25) {
        env.lose(name).await?;
    }
    nodes::gone(&env.client, "node-0", 2 * SOON).await?;
    std::fs::write(&file, "node_deletion_budget: 0\n")?;
    // The file is read every five seconds.
    sleep(Duration::from_secs(9)).await;
    let left = nodes::names(&env.client).await?.len();
    sleep(DELETION).await;
    let later = nodes::names(&env.client).await?.len();
    ensure!(left == later && later > 35, "{left} were left, then {later}");
    Ok(())
}
