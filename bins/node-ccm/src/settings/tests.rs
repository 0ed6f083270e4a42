//! The numbers refer to the scenarios in docs/internal/parity.md.

use ccm_tests::in_process::loaded;

use super::*;
use crate::NodeCcm;

fn read(arguments: &[&str]) -> Result<NodeSettings, String> {
    ccm_tests::in_process::settings::<NodeCcm>(arguments)
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = read(&[]).unwrap();
    let expect = NodeSettings {
        node_identity: IdentityPolicy::Strict,
        concurrent_node_syncs: 32,
        concurrent_node_status_updates: 32,
        node_correction_qps: Some(50.0),
        node_status_update_frequency: Duration::from_mins(5),
        cloud_call_timeout: Duration::from_secs(30),
        node_internal_ip_change: InternalIpChange::Apply,
        node_change_budget: Limit::Percent(10),
        node_change_budget_window: Duration::from_hours(1),
        node_label_policy: LabelPolicy::Follow,
        node_addresses_required: true,
        node_selector: NodeSelector::default(),
    };
    assert_eq!(settings, expect);
}

/// Both worker counts as `syncs/updates`, or parts of the error message.
#[test]
fn worker_counts_are_checked() {
    for (number, syncs, updates, expect) in [
        (82, "-5", "0", Err(&["concurrent-node-syncs", "-5", "from 1 to 1000"] as &[&str])),
        (83, "0", "0", Err(&["concurrent-node-syncs", "0", "from 1 to 1000"])),
        (84, "5", "0", Ok("5/5")),
        (85, "5", "5", Ok("5/5")),
        (86, "5", "-1", Err(&["concurrent-node-status-updates", "-1", "from 0 to 1000"])),
        (87, "1", "0", Ok("1/1")),
        (88, "1", "2", Ok("1/2")),
        (0, "1001", "0", Err(&["1001", "from 1 to 1000"])),
        (0, "many", "0", Err(&["concurrent-node-syncs", "many", "from 1 to 1000"])),
    ] {
        let arguments = [
            &*format!("--concurrent-node-syncs={syncs}"),
            &*format!("--concurrent-node-status-updates={updates}"),
        ];
        let got = read(&arguments).map(|got| {
            format!("{}/{}", got.concurrent_node_syncs, got.concurrent_node_status_updates)
        });
        match (&got, expect) {
            (Ok(got), Ok(expect)) => assert_eq!(got, expect, "scenario {number}"),
            (Err(got), Err(parts)) => {
                let one = got.lines().any(|line| parts.iter().all(|part| line.contains(part)));
                assert!(one, "scenario {number}: {got}");
            }
            _ => panic!("scenario {number}: {got:?}"),
        }
    }
}

#[test]
fn durations_and_the_policy_are_validated() {
    for (argument, expect) in [
        ("--node-status-update-frequency=soon", Some("node-status-update-frequency=soon")),
        ("--cloud-call-timeout=1s", None),
        ("--cloud-call-timeout=999ms", Some("from 1s to 10m0s")),
        ("--cloud-call-timeout=11m", Some("from 1s to 10m0s")),
        ("--node-correction-qps=0.5", None),
        ("--node-correction-qps=-1", None),
        ("--node-correction-qps=many", Some("node-correction-qps=many")),
        ("--node-internal-ip-change=hold", None),
        ("--node-internal-ip-change=maybe", Some("must be apply or hold")),
        ("--node-change-budget=0", None),
        ("--node-change-budget=101%", Some("must be a number of nodes or a percentage")),
        ("--node-change-budget-window=59s", Some("must be at least 1m")),
        ("--node-label-policy=once", None),
        ("--node-label-policy=on", Some("must be follow or once or off")),
        ("--node-addresses-required=false", None),
    ] {
        let got = read(&[argument]).err().unwrap_or_default();
        match expect {
            None => assert_eq!(got, "", "{argument}"),
            Some(part) => assert!(got.contains(part), "{argument}: {got}"),
        }
    }
}

#[test]
fn a_shorter_interval_of_an_old_manifest_counts_as_10s() {
    for (given, used) in [("0s", 10_000), ("9.9s", 10_000), ("10s", 10_000), ("10.1s", 10_100)] {
        let argument = format!("--node-status-update-frequency={given}");
        let loaded = loaded::<NodeCcm>(&[&argument]).unwrap();
        assert_eq!(loaded.own.node_status_update_frequency.as_millis(), used, "{given}");
        let warning = format!(
            "{argument} (flag): all nodes are looked up in each interval, so the shortest one is used, 10s"
        );
        let expect = if given.starts_with("10") { Vec::new() } else { vec![warning] };
        assert_eq!(loaded.warnings, expect);
    }
}

#[test]
fn all_problems_are_reported_together() {
    let got = read(&[
        "--concurrent-node-syncs=0",
        "--cloud-call-timeout=0s",
        "--node-internal-ip-change=x",
    ])
    .unwrap_err();
    assert_eq!(got.lines().count(), 3, "{got}");
}
