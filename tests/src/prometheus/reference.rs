//! The metrics of running programs match `docs/reference/metrics.md`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{
    measured::{Family, families},
    metrics_page::is_closed,
    printed,
};

/// Metrics that exist only after an event that does not happen here. Any other missing metric is on
/// the page although no program registers it.
const RARE: [&str; 9] = [
    "ccm_cloud_requests_refused_total",
    "ccm_informer_errors_total",
    "ccm_leader_election_failures_total",
    "ccm_lifecycle_breaker_openings_total",
    "ccm_node_internal_ip_changes_total",
    "ccm_node_label_drops_total",
    "ccm_repeated_writes_total",
    "leader_election_slowpath_total",
    "rest_client_request_retries_total",
];

/// Compares the pages that the replicas of a program showed during its story with what it
/// says about its metrics.
pub(super) fn check(program: &str, pages: &[String]) -> Result<()> {
    let page = printed::metrics(program)?;
    let reported: Vec<Family> = pages.iter().flat_map(|page| families(page)).collect();
    let seen: BTreeSet<_> = reported.iter().map(|family| family.name.as_str()).collect();
    let missing: Vec<_> = page
        .iter()
        .map(|family| family.name.as_str())
        .filter(|name| !seen.contains(name) && !RARE.contains(name))
        .collect();
    ensure!(missing.is_empty(), "not reported: {missing:?}");
    for family in &reported {
        let written = page.iter().find(|written| written.name == family.name);
        ensure!(written.is_some(), "{} is not on the page", family.name);
        written.map_or(Ok(()), |written| compare(family, written))?;
    }
    eprintln!("{program}: {} metrics reported, {} on the page", seen.len(), page.len());
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
