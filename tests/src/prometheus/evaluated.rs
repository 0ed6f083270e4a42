//! Checks with Prometheus' answers.

use std::collections::BTreeSet;

use anyhow::Result;
use ccm_runtime::program::Identity;
use serde_json::Value;

use super::{
    dashboards::{Dashboard, Query, list, text},
    promql, rules as files,
    server::{Server, Span},
    variables::Variables,
};

/// A number that stands for "none so far" must not hide that the metric does not exist.
pub const OR_ZERO: &str = " or vector(0)";

/// Returns the queries of a dashboard that are about this program and have no answer.
pub async fn dashboard(
    dashboard: &Dashboard,
    program: Identity,
    server: &Server,
    span: Span,
) -> Result<Vec<String>> {
    if !dashboard.is_about(program) {
        return Ok(Vec::new());
    }
    let exported = server.metrics().await?;
    let known = files::known_to(program)?;
    let variables = Variables::ask(dashboard, server, span).await?;
    let mut wrong = Vec::new();
    let queries = dashboard.queries();
    let about = |query: &&Query| promql::metrics(&query.expression).is_subset(&known);
    let mut asked = 0;
    for query in queries.iter().filter(about) {
        asked += 1;
        let expression = variables.fill(query.expression.trim_end_matches(OR_ZERO));
        let problem = match unknown(&expression, &exported) {
            Some(names) => Some(format!("the program does not export {names}")),
            None => answer(query, &expression, server, span).await,
        };
        wrong.extend(problem.map(|problem| {
            format!("{}: {}: {problem}: {}", dashboard.name, query.panel, query.expression)
        }));
    }
    eprintln!("{}: {asked} of {} queries", dashboard.name, queries.len());
    Ok(wrong)
}

/// Returns the names in an expression that are not among these.
fn unknown(expression: &str, exported: &BTreeSet<String>) -> Option<String> {
    let names: Vec<_> =
        promql::metrics(expression).into_iter().filter(|name| !exported.contains(name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the reason if a query has no answer: an error, no series, or no number.
async fn answer(query: &Query, expression: &str, server: &Server, span: Span) -> Option<String> {
    let result = if query.instant {
        server.query_at(expression, span.end).await
    } else {
        server.query_range(expression, span).await
    };
    match result {
        Err(error) => Some(format!("{error:#}")),
        Ok(series) if list(&series).next().is_none() => Some("no data".to_owned()),
        Ok(series) if !list(&series).any(has_number) => Some("never a number".to_owned()),
        Ok(_) => None,
    }
}

fn has_number(series: &Value) -> bool {
    let points = list(&series["values"]).chain(std::iter::once(&series["value"]));
    points.map(|point| text(&point[1])).any(|value| !value.is_empty() && value != "NaN")
}

/// Returns the rules about this program that cannot be evaluated, or that name metrics that it does
/// not export.
pub async fn rules(program: Identity, server: &Server, span: Span) -> Result<Vec<String>> {
    let all = files::all()?;
    let known = files::known_to(program)?;
    let mut exported = server.metrics().await?;
    // A rule may use the series of another rule, although that has not written anything so far.
    exported.extend(all.iter().filter_map(|rule| rule.record.clone()));
    let mut wrong = Vec::new();
    let about = |rule: &&files::Rule| promql::metrics(&rule.expression).is_subset(&known);
    let mut asked = 0;
    for rule in all.iter().filter(about) {
        asked += 1;
        if let Some(names) = unknown(&rule.expression, &exported) {
            wrong.push(format!(
                "{}: the program does not export {names}: {}",
                rule.name, rule.expression
            ));
        }
        if let Err(error) = server.query_at(&rule.expression, span.end).await {
            wrong.push(format!("{}: {error:#}: {}", rule.name, rule.expression));
        }
    }
    for group in list(&server.rules().await?) {
        for rule in list(&group["rules"]).filter(|rule| rule["health"] == "err") {
            wrong.push(format!("{}: {}", text(&rule["name"]), text(&rule["lastError"])));
        }
    }
    eprintln!("rules: {asked} of {}", all.len());
    Ok(wrong)
}

/// Returns the labels of metrics that a label of their target hides: no query finds them by their
/// names.
pub async fn hidden(server: &Server) -> Result<Vec<String>> {
    let labels = server.labels().await?.into_iter();
    let of_metrics = labels.filter_map(|label| label.strip_prefix("exported_").map(str::to_owned));
    Ok(of_metrics.map(|label| format!("a target's label hides {label} of a metric")).collect())
}
