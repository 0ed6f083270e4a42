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
        r#"ccm_node_refreshes_total{result="ok"} 0"#,
    ] {
        assert!(text.lines().any(|line| line == series), "{series} in\n{text}");
    }
}
