//! The metrics of running programs match `docs/metrics.md`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::{poll, program::Program};

use ccm_tests::scenarios::{Env, SOON, quick_lifecycle};
use ccm_tests::{
    measured::{Family, families},
    metrics_page::is_closed,
    nodes, printed,
};

/// Metrics that are there only after something that does not happen here. One that is
/// missing and not among these is on the page, but no program registers it.
const RARE: [&str; 8] = [
    "ccm_cloud_requests_refused_total",
    "ccm_informer_errors_total",
    "ccm_leader_election_failures_total",
    "ccm_lifecycle_breaker_openings_total",
    "ccm_node_internal_ip_changes_total",
    "ccm_node_label_drops_total",
    "leader_election_slowpath_total",
    "rest_client_request_retries_total",
];

pub(super) async fn metrics_are_those_of_the_page(env: Env) -> Result<()> {
    let often = "--node-status-update-frequency=10s";
    let node_ccm = env.start(&env.node_ccm().arg(often)).await?;
    let lifecycle_ccm = env.start(&quick_lifecycle(&env)).await?;
    nodes::register(&env.client, &nodes::fresh("node-late")).await?;
    for number in 0..4 {
        env.add_node(&format!("node-{number}")).await?;
        env.initialised(&format!("node-{number}")).await?;
    }
    env.lose("node-0").await?;
    env.cloud().set_power("i-node-1", PowerState::Stopped);
    nodes::set_ready(&env.client, "node-1", "Unknown").await?;
    nodes::gone(&env.client, "node-0", 2 * SOON).await?;
    all_seen("node-ccm", &node_ccm, &printed::metrics("node-ccm")?).await?;
    all_seen("lifecycle-ccm", &lifecycle_ccm, &printed::metrics("lifecycle-ccm")?).await
}

/// Waits until everything but the rare was reported, and compares it with the page.
async fn all_seen(name: &str, program: &Program, page: &[Family]) -> Result<()> {
    let families = poll::until(&format!("all metrics of {name}"), 2 * SOON, || async {
        let found = families(&program.get("/metrics").await?.1);
        let seen: BTreeSet<_> = found.iter().map(|family| family.name.as_str()).collect();
        let missing: Vec<_> = page
            .iter()
            .map(|family| family.name.as_str())
            .filter(|name| !seen.contains(name) && !RARE.contains(name))
            .collect();
        ensure!(missing.is_empty(), "not reported: {missing:?}");
        Ok(Some(found))
    })
    .await?;
    for family in &families {
        let written = page.iter().find(|written| written.name == family.name);
        ensure!(written.is_some(), "{} of {name} is not on the page", family.name);
        written.map_or(Ok(()), |written| compare(family, written))?;
    }
    eprintln!("{name}: {} metrics reported, {} on the page", families.len(), page.len());
    Ok(())
}

fn compare(found: &Family, page: &Family) -> Result<()> {
    let name = &found.name;
    ensure!(found.kind == page.kind, "{name} is a {}, not a {}", found.kind, page.kind);
    ensure!(found.help == page.help, "{name} says {:?}, not {:?}", found.help, page.help);
    let labels = |family: &Family| family.labels.keys().cloned().collect::<Vec<_>>();
    ensure!(
        found.samples == 0 || labels(found) == labels(page),
        "{name} has the labels {:?}, not {:?}",
        labels(found),
        labels(page)
    );
    for (label, values) in found.labels.iter().filter(|(label, _)| is_closed(page, label)) {
        let odd: Vec<_> = values.difference(&page.labels[label]).collect();
        ensure!(odd.is_empty(), "{name}: {label} can be {odd:?}, which the page does not say");
    }
    Ok(())
}
