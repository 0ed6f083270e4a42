use ccm_cloud::{CloudError, ErrorKind};
use ccm_runtime::metrics::Metrics;

use super::*;
use crate::plan::WaitReason;

fn ledger() -> (Ledger, Metrics) {
    let metrics = Metrics::new();
    (Ledger::new(NodeMetrics::new(&metrics), Some(1.0)), metrics)
}

fn name() -> Arc<str> {
    Arc::from("node-1")
}

fn node(uid: &str) -> Arc<Node> {
    Arc::new(Node { name: name(), uid: uid.into(), ..Node::default() })
}

fn answer() -> LookupResult {
    Err(CloudError::new(ErrorKind::Invalid, "no"))
}

/// The sample of `/metrics` that begins with this.
fn sample(metrics: &Metrics, begin: &str) -> Option<String> {
    let text = metrics.encode().unwrap();
    text.lines().find_map(|line| line.strip_prefix(begin)).map(|rest| rest.trim().to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_reused_for_30_s_and_for_the_same_node_only() {
    let (ledger, _) = ledger();
    ledger.remember(node("a"), answer());
    assert_eq!(ledger.remembered(&node("a")), Some(answer()));
    tokio::time::advance(FRESH).await;
    assert_eq!(ledger.remembered(&node("a")), Some(answer()));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ledger.remembered(&node("a")), None);

    ledger.remember(node("a"), answer());
    let mut named = Node::clone(&node("a"));
    named.provider_id = Some("sim://i-1".into());
    assert_eq!(ledger.remembered(&named), None, "its identity has changed");
    ledger.remember(node("a"), answer());
    assert_eq!(ledger.remembered(&node("b")), None, "another node of the same name");
    ledger.remember(node("a"), answer());
    ledger.settled(&name());
    assert_eq!(ledger.remembered(&node("a")), None, "the node is up to date");
}

#[tokio::test]
async fn gauges_follow_the_states() {
    let (ledger, metrics) = ledger();
    let other: Arc<str> = Arc::from("node-2");
    ledger.set_state(&name(), State::Pending);
    ledger.set_state(&other, State::Foreign);
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"pending\"}").as_deref(), Some("1"));
    assert_eq!(sample(&metrics, "ccm_node_foreign_nodes").as_deref(), Some("1"));
    ledger.set_state(&name(), State::Waiting(WaitReason::Cloud(ErrorKind::Throttled)));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"pending\"}").as_deref(), Some("0"));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"waiting\"}").as_deref(), Some("1"));
    assert_eq!(sample(&metrics, "ccm_node_waiting{reason=\"throttled\"}").as_deref(), Some("1"));
    ledger.set_state(&name(), State::Initialised);
    assert_eq!(sample(&metrics, "ccm_node_waiting{reason=\"throttled\"}").as_deref(), Some("0"));
    ledger.forget(&name());
    ledger.forget(&other);
    ledger.forget(&other);
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"initialised\"}").as_deref(), Some("0"));
    assert_eq!(sample(&metrics, "ccm_node_foreign_nodes").as_deref(), Some("0"));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"unknown\"}").as_deref(), Some("0"));
}

#[tokio::test]
async fn a_required_lookup_is_taken_once_and_consecutive_conflicts_are_counted() {
    let (ledger, _) = ledger();
    assert!(!ledger.take_required_lookup(&name()));
    ledger.require_lookup(&name());
    assert!(ledger.take_required_lookup(&name()));
    assert!(!ledger.take_required_lookup(&name()));
    assert_eq!([ledger.conflict(&name()), ledger.conflict(&name())], [1, 2]);
    ledger.settled(&name());
    assert_eq!(ledger.conflict(&name()), 1);
}

/// Dashboards of upstream select on these bounds.
#[test]
fn the_histograms_of_upstream_keep_their_bounds() {
    let metrics = Metrics::new();
    NodeMetrics::new(&metrics).initialised(Duration::from_secs(17));
    for name in [
        "node_controller_initial_node_sync_delay_seconds",
        "node_controller_cloud_provider_taint_removal_delay_seconds",
    ] {
        for (bound, count) in [
            ("1.0", "0"),
            ("4.0", "0"),
            ("16.0", "0"),
            ("64.0", "1"),
            ("256.0", "1"),
            ("1024.0", "1"),
            ("+Inf", "1"),
        ] {
            let line = format!("{name}_bucket{{le=\"{bound}\"}}");
            assert_eq!(sample(&metrics, &line).as_deref(), Some(count), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_needs_no_turn_any_more_does_not_wait() {
    let (ledger, metrics) = ledger();
    let waiting = || sample(&metrics, "ccm_node_corrections_waiting ");
    let other: Arc<str> = Arc::from("node-2");
    assert_eq!(ledger.take_turn(&name(), 1), Ok(()));
    for end in [Ledger::settled, Ledger::forget] {
        ledger.take_turn(&other, 1).unwrap_err();
        assert_eq!(waiting().as_deref(), Some("1"));
        end(&ledger, &other);
        assert_eq!(waiting().as_deref(), Some("0"));
    }
    ledger.take_turn(&other, 1).unwrap_err();
    assert_eq!(ledger.set_correction_rate(None), [Arc::clone(&other)]);
    assert_eq!((ledger.take_turn(&other, 1), waiting().as_deref()), (Ok(()), Some("0")));
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_a_series_of_lookups_without_one() {
    let (ledger, _) = ledger();
    assert_eq!([ledger.unanswered(&name()), ledger.unanswered(&name())], [1, 2]);
    ledger.remember(node("a"), answer());
    assert_eq!(ledger.unanswered(&name()), 1);
}

/// L1: a refresh walks over the nodes that it has listed, and one of them is deleted meanwhile.
#[tokio::test]
async fn a_node_that_is_recorded_when_it_is_gone_is_forgotten_by_the_next_refresh() {
    let (ledger, metrics) = ledger();
    let initialised = "ccm_node_nodes{state=\"initialised\"}";
    ledger.set_state(&name(), State::Initialised);
    ledger.forget(&name());
    ledger.set_state(&name(), State::Initialised);
    let other = Arc::from("node-2");
    ledger.set_state(&other, State::Initialised);
    assert_eq!(sample(&metrics, initialised).as_deref(), Some("2"));
    ledger.retain(|name| name == "node-2");
    assert_eq!(sample(&metrics, initialised).as_deref(), Some("1"));
    assert_eq!(ledger.state("node-1"), None);
}
