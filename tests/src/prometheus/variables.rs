//! Replaces a query's variables as Grafana does.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    dashboards::{Dashboard, list, text},
    server::{SCRAPE_SECONDS, Server, Span},
};

/// The variables of a dashboard with their values, in the order of the file: a later one
/// may use an earlier one.
pub struct Variables {
    values: Vec<(String, String)>,
}

impl Variables {
    /// Asks for the values as Grafana does when "All" is chosen everywhere.
    pub async fn ask(dashboard: &Dashboard, server: &Server, span: Span) -> Result<Self> {
        // Grafana's `$__rate_interval`: four times the data source's scrape interval.
        let fixed = [
            ("__rate_interval", format!("{}s", 4 * SCRAPE_SECONDS)),
            ("__interval", format!("{SCRAPE_SECONDS}s")),
            ("__range", format!("{}s", span.seconds())),
        ];
        let values = fixed.map(|(name, value)| (name.to_owned(), value)).into();
        let mut variables = Self { values };
        for variable in list(&dashboard.json["templating"]["list"]) {
            let name = text(&variable["name"]);
            if variable["type"] == "query" {
                let value = variables
                    .everything(variable, server, span)
                    .await
                    .with_context(|| format!("the variable {name}"))?;
                variables.values.push((name.to_owned(), value));
            }
        }
        Ok(variables)
    }

    /// Returns the value of "All": the variable's own, or one of the existing values.
    async fn everything(&self, variable: &Value, server: &Server, span: Span) -> Result<String> {
        let definition = text(&variable["definition"]);
        ensure!(text(&variable["query"]["query"]) == definition, "query and definition differ");
        let (selector, label) = definition
            .strip_prefix("label_values(")
            .and_then(|inside| inside.strip_suffix(')'))
            .and_then(|inside| inside.rsplit_once(", "))
            .with_context(|| format!("{definition:?} is not label_values(selector, label)"))?;
        let found = server.label_values(&self.fill(selector), label, span).await?;
        if let Some(everything) = variable["allValue"].as_str() {
            return Ok(everything.to_owned());
        }
        ensure!(!found.is_empty(), "{definition} finds nothing");
        let quoted: Vec<_> = found.iter().map(|value| escape(value)).collect();
        Ok(format!("({})", quoted.join("|")))
    }

    /// Returns the expression with values in place of variables.
    pub fn fill(&self, expression: &str) -> String {
        let mut filled = expression.to_owned();
        for (name, value) in &self.values {
            filled = filled.replace(&format!("${{{name}}}"), value);
            filled = filled.replace(&format!("${name}"), value);
        }
        filled
    }
}

/// Escapes a value for a regular expression in a PromQL string, as Grafana does.
fn escape(value: &str) -> String {
    let special = |letter: char| r"\^$*+?.()|[]{}/".contains(letter);
    let mut escaped = String::new();
    for letter in value.chars() {
        if special(letter) {
            escaped.push_str(r"\\");
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_both_spellings() {
        let values = [("a", "1"), ("b", "2")].map(|(name, value)| (name.into(), value.into()));
        let variables = Variables { values: values.into() };
        assert_eq!(variables.fill("x{y=~\"$a\"}[${b}]"), "x{y=~\"1\"}[2]");
        assert_eq!(escape("127.0.0.1:80"), r"127\\.0\\.0\\.1:80");
    }
}
