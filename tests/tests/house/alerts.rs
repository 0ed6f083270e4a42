//! The alert rules, their test cases and their runbooks belong together. `make test-alerts`, which
//! needs Prometheus, checks that the rules are right.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ccm_runtime::programs;
use serde::{Deserialize, de::DeserializeOwned};

const RULES: &str = "grafana/alerts";
const RUNBOOKS: &str = "docs/how-to/runbooks";

/// The headings of every runbook, in this order.
const CHAPTERS: [&str; 6] = [
    "## What it means",
    "## What users notice",
    "## First look",
    "## What to do",
    "## What not to do",
    "## When it ends",
];

/// Files of rules that apply to every controller.
const COMMON: [&str; 2] = ["common.yaml", "cloud.yaml"];

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    alert: Option<String>,
    record: Option<String>,
    expr: String,
    #[serde(rename = "for")]
    lasts: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TestFile {
    rule_files: Vec<String>,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    input_series: Vec<Input>,
    alert_rule_test: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Input {
    series: String,
}

#[derive(Deserialize)]
struct Expectation {
    alertname: String,
    exp_alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    exp_labels: BTreeMap<String, String>,
    exp_annotations: BTreeMap<String, String>,
}

fn root() -> PathBuf {
    ccm_tests::cluster::repository()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the files of a folder with this ending, by name.
fn files(folder: &str, ending: &str) -> BTreeMap<String, PathBuf> {
    let path = root().join(folder);
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, _)| name.ends_with(ending))
        .collect()
}

fn parsed<T: DeserializeOwned>(folder: &str) -> BTreeMap<String, T> {
    let parse = |(name, path): (String, PathBuf)| {
        let value = serde_yaml_ng::from_str(&read(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (name, value)
    };
    files(folder, ".yaml").into_iter().map(parse).collect()
}

/// Returns all rules, with the name of their file.
fn rules() -> Vec<(String, Rule)> {
    let file = |(name, file): (String, RuleFile)| {
        let rules = file.groups.into_iter().flat_map(|group| group.rules);
        rules.map(move |rule| (name.clone(), rule)).collect::<Vec<_>>()
    };
    parsed::<RuleFile>(RULES).into_iter().flat_map(file).collect()
}

fn alerts() -> Vec<(String, Rule)> {
    let alerts: Vec<_> = rules().into_iter().filter(|(_, rule)| rule.alert.is_some()).collect();
    assert!(alerts.len() > 10, "the alerts were not found: {}", alerts.len());
    alerts
}

fn name(rule: &Rule) -> &str {
    rule.alert.as_deref().or(rule.record.as_deref()).unwrap_or_default()
}

/// Returns the address where docs/ is published.
fn docs_url() -> String {
    read(&root().join("grafana/docs-url")).trim().to_owned()
}

fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// Returns the words of an expression that can be metrics.
fn words(expr: &str) -> BTreeSet<&str> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    expr.split(|c| !letter(c)).filter(|word| !word.is_empty()).collect()
}

/// Returns an expression with the expressions of the recordings that it uses, which may use others.
fn expanded(expr: &str, recordings: &BTreeMap<String, String>) -> String {
    let used = words(expr).into_iter().filter_map(|word| recordings.get(word));
    used.fold(expr.to_owned(), |text, inner| text + "\n" + &expanded(inner, recordings))
}

fn recordings() -> BTreeMap<String, String> {
    rules().into_iter().filter_map(|(_, rule)| Some((rule.record?, rule.expr))).collect()
}

#[test]
fn every_alert_says_what_a_person_needs() {
    let (mut broken, recordings) = (Vec::new(), recordings());
    for (file, rule) in alerts() {
        let mut complain = |what: String| broken.push(format!("{file}: {}: {what}", name(&rule)));
        let severity = rule.labels.get("severity").map(String::as_str);
        if !matches!(severity, Some("critical" | "warning")) {
            complain(format!("severity is {severity:?}, must be critical or warning"));
        }
        for key in ["summary", "description"] {
            if rule.annotations.get(key).is_none_or(|text| text.trim().is_empty()) {
                complain(format!("has no {key}"));
            }
        }
        let runbook = format!("{RUNBOOKS}/{}.md", name(&rule));
        let url = format!("{}/how-to/runbooks/{}.md", docs_url(), name(&rule));
        if rule.annotations.get("runbook_url") != Some(&url) {
            complain(format!("runbook_url must be {url}"));
        }
        if !root().join(&runbook).exists() {
            complain(format!("{runbook} is missing"));
        }
        // A label that the expression does not keep would be empty in every message.
        let expr = expanded(&rule.expr, &recordings);
        for text in rule.annotations.values() {
            for label in text.split("$labels.").skip(1).filter_map(|rest| rest.split(' ').next()) {
                if !words(&expr).contains(label) {
                    complain(format!("mentions the label {label}, which its expression drops"));
                }
            }
        }
    }
    check("a page at night must give enough information", &broken);
}

#[test]
fn every_alert_is_seen_firing_and_silent() {
    let tests = parsed::<TestFile>("grafana/alerts/tests");
    let cases: Vec<&Case> = tests.values().flat_map(|file| &file.tests).collect();
    let (mut broken, recordings) = (Vec::new(), recordings());
    for (_, rule) in alerts() {
        let expr = expanded(&rule.expr, &recordings);
        let metrics = words(&expr);
        let about = |case: &&&Case| {
            case.input_series.iter().any(|input| {
                input.series.split('{').next().is_some_and(|metric| metrics.contains(metric))
            })
        };
        let expectations = |case: &Case| -> Vec<bool> {
            let ours = case.alert_rule_test.iter().filter(|test| test.alertname == name(&rule));
            let fires =
                |alert: &Alert| alert.exp_labels.get("severity") == rule.labels.get("severity");
            ours.map(|test| test.exp_alerts.iter().any(fires)).collect()
        };
        let fires = cases.iter().filter(about).any(|case| expectations(case).contains(&true));
        let silent = cases.iter().filter(about).any(|case| {
            let expected = expectations(case);
            !expected.is_empty() && !expected.contains(&true)
        });
        if !fires || !silent {
            let severity = rule.labels.get("severity");
            broken.push(format!("{} {severity:?}: fires {fires}, silent {silent}", name(&rule)));
        }
    }
    check("an alert needs a case in which it fires and one in which it stays silent", &broken);
}

#[test]
fn the_cases_are_about_rules_that_exist() {
    let (known, mut broken) = (files(RULES, ".yaml"), Vec::new());
    let alerts: BTreeSet<String> = alerts().iter().map(|(_, rule)| name(rule).to_owned()).collect();
    for (file, tests) in parsed::<TestFile>("grafana/alerts/tests") {
        for path in &tests.rule_files {
            if path.strip_prefix("../").is_none_or(|name| !known.contains_key(name)) {
                broken.push(format!("{file}: no rules in {path}"));
            }
        }
        for case in &tests.tests {
            for test in &case.alert_rule_test {
                if !alerts.contains(&test.alertname) {
                    broken.push(format!("{file}: {}: no alert {}", case.name, test.alertname));
                }
                let complete = |alert: &Alert| alert.exp_annotations.contains_key("description");
                if !test.exp_alerts.iter().all(complete) {
                    broken.push(format!("{file}: {}: does not show the message", case.name));
                }
            }
        }
    }
    check("a test case names an alert that does not exist", &broken);
}

#[test]
fn every_runbook_belongs_to_an_alert_and_answers_the_same_questions() {
    let alerts: BTreeSet<String> = alerts().iter().map(|(_, rule)| name(rule).to_owned()).collect();
    let (index, mut broken) = (read(&root().join(RUNBOOKS).join("README.md")), Vec::new());
    for (file, path) in files(RUNBOOKS, ".md").iter().filter(|(file, _)| *file != "README.md") {
        let text = read(path);
        if !alerts.contains(file.trim_end_matches(".md")) {
            broken.push(format!("{file}: this alert does not exist"));
        }
        if !index.contains(&format!("]({file})")) {
            broken.push(format!("{file}: README.md does not list it"));
        }
        let chapters: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if chapters != CHAPTERS {
            broken.push(format!("{file}: has {chapters:?}, must have {CHAPTERS:?}"));
        }
    }
    check("runbooks", &broken);
}

/// The parts of a line between backticks.
fn code(line: &str) -> String {
    line.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_runbook_says_when_its_alert_fires() {
    let (mut broken, recordings) = (Vec::new(), recordings());
    for (_, rule) in alerts() {
        let text = read(&root().join(RUNBOOKS).join(format!("{}.md", name(&rule))));
        let start = match rule.lasts.as_deref() {
            None | Some("0s") => "Fires when ".to_owned(),
            Some("1m") => "Fires after a minute of ".to_owned(),
            Some(time) => format!("Fires after {} minutes of ", time.trim_end_matches('m')),
        };
        let Some(line) = text.lines().find(|line| line.starts_with(&start)) else {
            broken.push(format!("{}: no line begins with {start:?}", name(&rule)));
            continue;
        };
        let (code, expr) = (code(line), expanded(&rule.expr, &recordings));
        let (named, used) = (words(&code), words(&expr));
        let of_others = named.iter().filter(|word| word.contains('_') && !used.contains(*word));
        broken.extend(of_others.map(|word| format!("{}: {word} is not in the rule", name(&rule))));
        if named.is_disjoint(&used) {
            broken.push(format!("{}: the line does not name a metric of the rule", name(&rule)));
        }
    }
    check("each runbook names the metrics of its alert", &broken);
}

#[test]
fn rules_for_every_controller_name_none() {
    // `node-ccm` and its metrics, `ccm_node_*`.
    let particular: Vec<String> = programs::shipped()
        .map(|program| program.binary)
        .flat_map(|binary| [binary.to_owned(), format!("ccm_{}_", binary.trim_end_matches("-ccm"))])
        .collect();
    let is_common = |file: &str| COMMON.contains(&file);
    let broken: Vec<String> = rules()
        .iter()
        .filter(|(file, _)| is_common(file))
        .filter(|(_, rule)| particular.iter().any(|word| rule.expr.contains(word.as_str())))
        .map(|(file, rule)| format!("{file}: {}", name(rule)))
        .collect();
    check("a rule for one controller belongs into its own file", &broken);
}

/// A condition that holds for one scrape must not page anyone; where a rule has no `for`, its
/// window ensures that.
#[test]
fn no_alert_fires_on_a_single_sample() {
    let broken: Vec<String> = alerts()
        .iter()
        .filter(|(_, rule)| rule.lasts.is_none())
        .filter(|(_, rule)| !expanded(&rule.expr, &recordings()).contains("increase("))
        .map(|(file, rule)| format!("{file}: {}", name(rule)))
        .collect();
    check("an alert without `for` must look at a window", &broken);
}

/// One command sets where the pages are: in alerts, their cases, dashboards and the operator's
/// rules.
#[test]
fn the_pages_can_be_anywhere() {
    const LINKING: [&str; 4] = [
        "grafana/alerts",
        "grafana/alerts/tests",
        "grafana/dashboards",
        "manifests/components/prometheus-operator",
    ];
    let folder = tempfile::tempdir().unwrap();
    let copy = |path: &Path| {
        let to = folder.path().join(path.strip_prefix(root()).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, &to).unwrap();
        to
    };
    let all = LINKING.iter().flat_map(|folder| [files(folder, ".yaml"), files(folder, ".json")]);
    let copied: Vec<_> = all.flat_map(BTreeMap::into_values).map(|path| copy(&path)).collect();
    copy(&root().join("grafana/docs-url"));
    let script = copy(&root().join("grafana/docs-url.sh"));
    let links =
        |base: &str| -> usize { copied.iter().map(|path| read(path).matches(base).count()).sum() };
    let (old, new) = (docs_url(), "https://git.example.com/a/b/docs");
    let before = links(&old);
    let moved = |to: &str| Command::new(&script).arg(to).status().unwrap().success();
    assert!(!moved("docs/runbooks") && !moved(""), "a text that is not a URL is refused");
    assert!(before > 100 && moved(&format!("{new}/")), "{before}");
    assert_eq!((links(&old), links(new)), (0, before));
    assert!(moved(&old) && links(&old) == before);
}
