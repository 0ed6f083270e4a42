//! Metrics of a program, parsed from its report.

use std::collections::{BTreeMap, BTreeSet};

use ccm_cloud::ProviderFactory;
use ccm_runtime::metrics::Metrics;

/// One metric with all its series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// Its name as a query has it, without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The help text.
    pub help: String,
    /// The label names, each with the values seen; without `le`.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// Number of lines.
    pub samples: usize,
}

impl Family {
    /// Returns `ALPHA`, `BETA`, or empty as upstream leaves it.
    pub fn stability(&self) -> &str {
        let rest = self.help.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        rest.map_or("", |(stability, _)| stability)
    }

    /// Returns the names of its series.
    pub fn series(&self) -> Vec<String> {
        let parts: &[&str] =
            if self.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        parts.iter().map(|part| format!("{}{part}", self.name)).collect()
    }

    /// Returns its meaning, in one sentence.
    pub fn meaning(&self) -> &str {
        self.help.split_once("] ").map_or(self.help.as_str(), |(_, meaning)| meaning)
    }

    /// Returns the unit, derived from Prometheus' naming rules.
    pub fn unit(&self) -> &'static str {
        let base = self.name.trim_end_matches("_total");
        match base.rsplit('_').next() {
            _ if ["Whether ", "1 if "].iter().any(|word| self.meaning().starts_with(word)) => {
                "0 or 1"
            }
            _ if self.meaning().starts_with("Share of ") => "0 to 1",
            Some("request") => "per request",
            Some("seconds") => "seconds",
            Some("bytes") => "bytes",
            Some("info") => "always 1",
            Some("rate") => "per second",
            _ => "number",
        }
    }
}

/// Returns the metrics in a text in either format, in its order.
pub fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            families.push(Family {
                name: name.to_owned(),
                help: help.to_owned(),
                ..Family::default()
            });
        } else if let Some((_, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let Some(family) = families.last_mut() else { continue };
            family.kind = kind.to_owned();
            // In OpenMetrics the name of a counter lacks this suffix.
            if kind == "counter" && !family.name.ends_with("_total") {
                family.name.push_str("_total");
            }
        } else if !line.starts_with('#')
            && let Some(family) = families.last_mut()
        {
            family.samples += 1;
            for (label, value) in labels(line) {
                family.labels.entry(label).or_default().insert(value);
            }
        }
    }
    families
}

/// Returns the labels of one line, without a histogram's bound.
fn labels(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = line.split_once('{').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some(end) = closing_quote(after) else { break };
        let (value, next) = after.split_at(end);
        if name != "le" {
            found.push((name.to_owned(), value.to_owned()));
        }
        let Some(next) = next.strip_prefix("\",") else { break };
        rest = next;
    }
    found
}

/// Returns the end of the quoted text. A backslash escapes the next character.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// Returns the metrics that this provider adds to the common ones.
pub fn of_provider(factory: &dyn ProviderFactory) -> anyhow::Result<Vec<Family>> {
    let metrics = Metrics::new();
    let common: Vec<_> =
        families(&metrics.encode()?).into_iter().map(|family| family.name).collect();
    factory.specimens(&metrics);
    let all = families(&metrics.encode()?);
    Ok(all.into_iter().filter(|family| !common.contains(&family.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_labels() {
        let text = "# HELP a_seconds [BETA] How long, \"so\".\n# TYPE a_seconds histogram\n\
                    a_seconds_bucket{le=\"0.5\",kind=\"x\",why=\"a \\\"b\\\", c\"} 1\n\
                    a_seconds_bucket{le=\"+Inf\",kind=\"y\",why=\"\"} 1\n\
                    # HELP b Whether it is.\n# TYPE b counter\nb_total 7\n\
                    # HELP c 1 if it is, 0 if not.\n# TYPE c gauge\nc 1\n# EOF\n";
        let found = families(text);
        let [a, b, c] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (a.stability(), a.meaning(), a.unit()),
            ("BETA", "How long, \"so\".", "seconds")
        );
        assert_eq!(a.samples, 2);
        let values = |label: &str| a.labels[label].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(a.labels.keys().collect::<Vec<_>>(), ["kind", "why"]);
        assert_eq!(values("kind"), ["x", "y"]);
        assert_eq!(values("why"), ["", "a \\\"b\\\", c"]);
        assert_eq!((b.name.as_str(), b.kind.as_str(), b.unit()), ("b_total", "counter", "0 or 1"));
        assert_eq!(c.unit(), "0 or 1");
        assert_eq!(b.stability(), "");
    }
}
