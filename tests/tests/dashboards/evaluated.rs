//! Checks with Prometheus' answers.

use std::collections::BTreeSet;

use anyhow::Result;
use ccm_tests::prometheus::{
    dashboards::{Dashboard, Query, list, text},
    promql, rules as files,
    story::Told,
    variables::Variables,
};
use serde_json::Value;

/// A number that stands for "none so far" must not hide that there is no such metric.
const OR_ZERO: &str = " or vector(0)";

/// The queries of a dashboard that have no answer.
pub async fn dashboard(dashboard: &Dashboard, seen: &Told) -> Result<Vec<String>> {
    let variables = Variables::ask(dashboard, &seen.server, seen.span).await?;
    let exported = seen.server.metrics().await?;
    let mut wrong = Vec::new();
    let queries = dashboard.queries();
    for query in &queries {
        let expression = variables.fill(query.expression.trim_end_matches(OR_ZERO));
        let problem = match unknown(&expression, &exported) {
            Some(names) => Some(format!("no program exports {names}")),
            None => answer(query, &expression, seen).await,
        };
        wrong.extend(
            problem.map(|problem| format!("{}: {problem}: {}", query.panel, query.expression)),
        );
    }
    eprintln!("{}: {} queries", dashboard.name, queries.len());
    Ok(wrong)
}

/// The names in an expression that no program exports.
fn unknown(expression: &str, exported: &BTreeSet<String>) -> Option<String> {
    let names: Vec<_> =
        promql::metrics(expression).into_iter().filter(|name| !exported.contains(name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Why a query has no answer, if it has none: an error, no series, or no number.
async fn answer(query: &Query, expression: &str, seen: &Told) -> Option<String> {
    let result = if query.instant {
        seen.server.query_at(expression, seen.span.end).await
    } else {
        seen.server.query_range(expression, seen.span).await
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

/// The rules that cannot be evaluated, or that name what no program exports.
pub async fn rules(seen: &Told) -> Result<Vec<String>> {
    let all = files::all()?;
    let mut known = seen.server.metrics().await?;
    // A rule may use what another one writes, although it has written nothing so far.
    known.extend(all.iter().filter_map(|rule| rule.record.clone()));
    let mut wrong = Vec::new();
    for rule in &all {
        if let Some(names) = unknown(&rule.expression, &known) {
            wrong.push(format!("{}: no program exports {names}: {}", rule.name, rule.expression));
        }
        if let Err(error) = seen.server.query_at(&rule.expression, seen.span.end).await {
            wrong.push(format!("{}: {error:#}: {}", rule.name, rule.expression));
        }
    }
    for group in list(&seen.server.rules().await?) {
        for rule in list(&group["rules"]).filter(|rule| rule["health"] == "err") {
            wrong.push(format!("{}: {}", text(&rule["name"]), text(&rule["lastError"])));
        }
    }
    eprintln!("rules: {}", all.len());
    Ok(wrong)
}
