use ccm_testing::Log;
use serde_json::{Value, json};

use super::*;

fn node(name: &str) -> ObjectRef {
    ObjectRef { kind: "Node", name: name.to_owned(), ..ObjectRef::default() }
}

fn step(step: &'static str, change: &str) -> Step {
    Step { step, changes: vec![change.to_owned()], reason: "so it is".to_owned(), held: None }
}

fn held(step: &'static str) -> Step {
    let (changes, reason) = (Vec::new(), "it is gone".to_owned());
    Step { step, changes, reason, held: Some("the breaker is open".to_owned()) }
}

/// Returns the page without timestamps.
fn json(plans: &Plans, name: Option<&str>) -> Value {
    let mut page: Value = serde_json::from_str(&plans.json(name)).unwrap();
    for plan in page["plans"].as_array_mut().unwrap() {
        plan["since"].take().as_str().expect("a time");
    }
    page
}

fn sample(key: &str, metrics: &Metrics) -> Option<u64> {
    let page = metrics.encode().unwrap();
    let line = page.lines().find(|line| line.split_once(' ').is_some_and(|(name, _)| name == key));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

#[test]
fn the_page_shows_each_objects_steps() {
    let plans = Plans::new(Mode::Observe, &Metrics::new());
    plans.set(&node("node-2"), vec![held("delete")]);
    plans.set(
        &node("node-1"),
        vec![step("addresses", "InternalIP 10.0.0.1"), step("labels", "a=b")],
    );
    let namespace = Some("web".to_owned());
    let balancer = ObjectRef { kind: "Service", namespace, ..node("front") };
    plans.set(&balancer, vec![step("labels", "c=d")]);
    let first = json!({
        "kind": "Node", "name": "node-1", "since": null,
        "steps": [
            {"step": "addresses", "changes": ["InternalIP 10.0.0.1"], "reason": "so it is"},
            {"step": "labels", "changes": ["a=b"], "reason": "so it is"},
        ],
    });
    let second = json!({
        "kind": "Node", "name": "node-2", "since": null,
        "steps": [{"step": "delete", "changes": [], "reason": "it is gone", "held": "the breaker is open"}],
    });
    let third = json!({
        "kind": "Service", "name": "web/front", "since": null,
        "steps": [{"step": "labels", "changes": ["c=d"], "reason": "so it is"}],
    });
    let expect = json!({
        "mode": "observe", "standby": false, "objects": 3, "omitted": 0, "due": {"addresses": 1, "labels": 2},
        "held": {"delete": 1}, "blocked": 0, "plans": [first, second, third],
    });
    assert_eq!(json(&plans, None), expect);
    let text = plans.text(None);
    let lines: Vec<_> = text.lines().map(|line| line.split(", since").next().unwrap()).collect();
    let expect = [
        "mode: observe, no step is executed",
        "objects: 3; steps due: 1 addresses, 2 labels; held: 1 delete",
        "",
        "Node node-1",
        "  1. addresses: InternalIP 10.0.0.1 (so it is)",
        "  2. labels: a=b (so it is)",
        "",
        "Node node-2",
        "  1. delete (it is gone), held: the breaker is open",
        "",
        "Service web/front",
        "  1. labels: c=d (so it is)",
    ];
    assert_eq!(lines, expect);
    assert_eq!(json(&plans, Some("node-2"))["plans"], json!([second]));
}

#[test]
fn a_step_is_counted_and_logged_once() {
    let (log, metrics) = (Log::new(), Metrics::new());
    let _listening = log.listen(tracing::Level::INFO);
    let plans = Plans::new(Mode::Observe, &metrics);
    for _ in 0..3 {
        plans.set(&node("node-1"), vec![step("labels", "a=b")]);
    }
    // The object has one more step, and the first one is not new.
    plans.set(&node("node-1"), vec![step("labels", "a=b"), held("delete")]);
    plans.clear("Node", "node-1");
    plans.clear("Node", "node-1");
    plans.set(&node("node-1"), vec![step("labels", "a=b")]);
    assert_eq!(sample("ccm_plan_steps_total{step=\"labels\"}", &metrics), Some(2));
    assert_eq!(sample("ccm_plan_steps_total{step=\"delete\"}", &metrics), None, "it is held");
    assert_eq!(sample("ccm_plan_objects", &metrics), Some(1));
    assert_eq!(sample("ccm_observing", &metrics), Some(1));
    let both =
        "Node node-1: labels: a=b (so it is); delete (it is gone), held: the breaker is open";
    assert_eq!(log.lines_with("would change "), 4, "{}", log.text());
    assert_eq!(log.lines_with("Node node-1: labels: a=b (so it is) "), 2, "{}", log.text());
    assert_eq!(log.lines_with(both), 1, "{}", log.text());
    assert_eq!(log.lines_with("Node node-1: nothing"), 1, "{}", log.text());
}

#[test]
fn a_leader_shows_what_it_has_not_done_yet() {
    let metrics = Metrics::new();
    let plans = Plans::new(Mode::Control, &metrics);
    assert_eq!(
        plans.text(None),
        "mode: control, steps that are not executed yet\nobjects: 0; steps due: none; held: none\n"
    );
    plans.set(&node("node-1"), vec![step("labels", "a=b")]);
    assert_eq!(json(&plans, None)["due"], json!({"labels": 1}));
    plans.clear("Node", "node-1");
    assert_eq!(json(&plans, None)["plans"], json!([]));
    assert_eq!(sample("ccm_observing", &metrics), Some(0));
}

#[test]
fn the_page_is_bounded() {
    let plans = Plans::new(Mode::Observe, &Metrics::new());
    for number in 0..SHOWN + 7 {
        plans.set(&node(&format!("node-{number:05}")), vec![step("labels", &"x\n".repeat(2000))]);
    }
    let page = json(&plans, None);
    assert_eq!((&page["objects"], &page["omitted"]), (&json!(SHOWN + 7), &json!(7)));
    assert_eq!(page["plans"].as_array().unwrap().len(), SHOWN);
    let change = page["plans"][0]["steps"][0]["changes"][0].as_str().unwrap();
    assert!(change.chars().count() <= LONGEST_LINE, "words of others are cut");
    assert!(plans.text(None).ends_with("\n7 more objects; use /plan?name=NAME for a single one\n"));
    let last = format!("node-{:05}", SHOWN + 6);
    assert_eq!(json(&plans, Some(&last))["plans"][0]["name"], json!(last));
}

#[test]
fn a_standby_says_that_it_plans_nothing() {
    let plans = Plans::new(Mode::Control, &Metrics::new());
    assert!(plans.json(None).contains("\"standby\": false"));
    plans.stand_by(true);
    assert!(plans.text(None).starts_with("mode: control, standby: only the leader's page"));
    assert!(plans.json(None).contains("\"standby\": true"));
    plans.stand_by(false);
    assert!(plans.text(None).starts_with("mode: control, steps that are not executed yet"));
}

#[tokio::test(start_paused = true)]
async fn the_line_says_which_object_waits_longest() {
    let plans = Plans::new(Mode::Control, &Metrics::new());
    assert_eq!(plans.waiting(), Verdict::Passed("no object".to_owned()));
    plans.set(&node("node-2"), vec![held("delete")]);
    tokio::time::advance(Duration::from_secs(100)).await;
    plans.set(&node("node-1"), vec![step("labels", "a=b")]);
    tokio::time::advance(Duration::from_secs(199)).await;
    let first = |time: &str| {
        format!(
            "2 objects, longest Node node-2 for {time}: delete (it is gone), held: the breaker is open"
        )
    };
    assert_eq!(plans.waiting(), Verdict::Passed(first("4 min")));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(plans.waiting(), Verdict::Failed(first("5 min")));
    // The object still waits after its step has changed, but not after the step is gone.
    plans.set(&node("node-2"), vec![step("taint", "c")]);
    assert!(!plans.waiting().is_passed());
    plans.set(&node("node-2"), Vec::new());
    let other = "1 object, longest Node node-1 for 3 min: labels: a=b (so it is)";
    assert_eq!(plans.waiting(), Verdict::Passed(other.to_owned()));
    let observer = Plans::new(Mode::Observe, &Metrics::new());
    observer.set(&node("node-1"), vec![step("labels", "a=b")]);
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(observer.waiting().is_passed());
}

#[tokio::test(start_paused = true)]
async fn a_blocked_object_is_shown_with_its_reason_and_waits_for_nobody() {
    let (log, metrics) = (Log::new(), Metrics::new());
    let _listening = log.listen(tracing::Level::INFO);
    let plans = Plans::new(Mode::Control, &metrics);
    plans.block(&node("node-1"), "its instance\nis not found");
    plans.set(&node("node-2"), vec![held("delete")]);
    let page = json(&plans, None);
    assert_eq!((&page["objects"], &page["blocked"]), (&json!(1), &json!(1)));
    let shown = json!({
        "kind": "Node", "name": "node-1", "since": null, "steps": [],
        "blocked": "its instance is not found",
    });
    assert_eq!(page["plans"], json!([page["plans"][0], shown]), "steps come first");
    let text = plans.text(None);
    assert!(text.contains("steps due: none; held: 1 delete; objects blocked: 1"), "{text}");
    assert!(
        plans.text(Some("node-1")).contains("\n  blocked: its instance is not found"),
        "{text}"
    );
    assert_eq!(sample("ccm_plan_objects", &metrics), Some(1));
    tokio::time::advance(LONG * 2).await;
    plans.clear("Node", "node-2");
    assert!(plans.waiting().is_passed(), "{:?}", plans.waiting());
    // An object counts as waiting from the moment at which it had its first step.
    plans.set(&node("node-1"), vec![step("labels", "a=b")]);
    assert!(plans.waiting().is_passed(), "{:?}", plans.waiting());
    plans.clear("Node", "node-1");
    assert!(!plans.text(None).contains("node-1"));
}
