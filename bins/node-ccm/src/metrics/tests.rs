use ccm_runtime::metrics::Metrics;

use super::*;

#[test]
fn counters_start_at_zero() {
    let registry = Metrics::new();
    let _metrics = NodeMetrics::new(&registry);
    let text = registry.encode().unwrap();
    for series in [
        r#"ccm_node_writes_total{kind="taint",result="ok"} 0"#,
        r#"ccm_node_label_drops_total{reason="invalid"} 0"#,
        r#"ccm_node_internal_ip_changes_total{result="held"} 0"#,
        r#"ccm_node_unconfirmed_identities_total{result="held"} 0"#,
        r#"ccm_node_refreshes_total{result="ok"} 0"#,
    ] {
        assert!(text.lines().any(|line| line == series), "{series} in\n{text}");
    }
}

/// Returns the sample of `/metrics` that begins with this.
fn sample(metrics: &Metrics, begin: &str) -> Option<String> {
    let text = metrics.encode().unwrap();
    text.lines().find_map(|line| line.strip_prefix(begin)).map(|rest| rest.trim().to_owned())
}

#[test]
fn gauges_follow_the_states() {
    let metrics = Metrics::new();
    let nodes = NodeMetrics::new(&metrics);
    let goes = |from: Option<NodeState>, to: Option<NodeState>| {
        for (state, by) in [(from, -1), (to, 1)] {
            if let Some(state) = state {
                nodes.count(state, by);
            }
        }
    };
    let throttled = NodeState::Waiting(WaitReason::Cloud(ErrorKind::Throttled));
    goes(None, Some(NodeState::Pending));
    goes(None, Some(NodeState::Foreign));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"pending\"}").as_deref(), Some("1"));
    assert_eq!(sample(&metrics, "ccm_node_foreign_nodes").as_deref(), Some("1"));
    goes(Some(NodeState::Pending), Some(throttled));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"pending\"}").as_deref(), Some("0"));
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"waiting\"}").as_deref(), Some("1"));
    assert_eq!(sample(&metrics, "ccm_node_waiting{reason=\"throttled\"}").as_deref(), Some("1"));
    goes(Some(throttled), Some(NodeState::Initialised));
    assert_eq!(sample(&metrics, "ccm_node_waiting{reason=\"throttled\"}").as_deref(), Some("0"));
    goes(Some(NodeState::Initialised), None);
    goes(Some(NodeState::Foreign), None);
    assert_eq!(sample(&metrics, "ccm_node_nodes{state=\"initialised\"}").as_deref(), Some("0"));
    assert_eq!(sample(&metrics, "ccm_node_foreign_nodes").as_deref(), Some("0"));
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
