use super::*;
use crate::LifecycleCcm;

fn read(arguments: &[&str]) -> Result<LifecycleSettings, String> {
    ccm_tests::in_process::settings::<LifecycleCcm>(arguments)
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.parameters.policy, Policy::default());
    assert_eq!(settings.parameters.shutdown_taint_removal, Removal::Cloud);
    assert_eq!(settings.concurrent_node_lifecycle_syncs, 16);
    assert_eq!(settings.parameters.node_selector, NodeSelector::default());
    let marks = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];
    assert_eq!(settings.parameters.scale_down_taints, marks);
}

#[test]
fn every_setting_is_applied() {
    let settings = read(&[
        "--node-monitor-period=1s",
        "--node-deletion-confirmation-period=2s",
        "--node-grace-period=0s",
        "--node-deletion-budget=7",
        "--node-deletion-budget-window=1m",
        "--fleet-shrink-threshold=20%",
        "--ghost-deletion=never",
        "--replaced-nodes=delete",
        "--scale-down-taints=example.com/leaves",
        "--node-selector=pool=a,!spot",
        "--shutdown-taint-removal=ready",
        "--cloud-call-timeout=4s",
        "--concurrent-node-lifecycle-syncs=2",
    ])
    .unwrap();
    let expect = Policy {
        confirmation_period: Duration::from_secs(2),
        grace_period: Duration::ZERO,
        monitor_period: Duration::from_secs(1),
        budget: Limit::Count(7),
        budget_window: Duration::from_mins(1),
        shrink_threshold: 20,
        ghosts: Ghosts::Never,
        replaced: Replaced::Delete,
        evidence_age: Duration::from_secs(4),
    };
    assert_eq!(settings.parameters.policy, expect);
    assert_eq!(settings.parameters.scale_down_taints, ["example.com/leaves"]);
    assert_eq!(settings.parameters.node_selector.to_string(), "pool=a,!spot");
    assert_eq!(settings.parameters.shutdown_taint_removal, Removal::Ready);
    assert_eq!(settings.concurrent_node_lifecycle_syncs, 2);
}

#[test]
fn invalid_values_are_reported_with_their_flag() {
    for (argument, rule) in [
        ("--node-monitor-period=0s", "at least 1s"),
        ("--node-deletion-confirmation-period=500ms", "at least 1s"),
        ("--node-deletion-budget=-1", "a number of nodes or a percentage"),
        ("--node-deletion-budget=101%", "a number of nodes or a percentage"),
        ("--node-deletion-budget=many", "a number of nodes or a percentage"),
        ("--node-deletion-budget-window=0s", "at least 1s"),
        ("--fleet-shrink-threshold=0%", "from 1% to 100%"),
        ("--ghost-deletion=always", "uninitialised or never"),
        ("--replaced-nodes=yes", "report or delete"),
        ("--scale-down-taints=a.io/b:NoSchedule", "\"a.io/b:NoSchedule\" is not one"),
        ("--scale-down-taints=ok,Upper.io/leaves=true", "must be keys of taints"),
        ("--node-selector=pool=a=b", "must be key=value"),
        ("--shutdown-taint-removal=now", "cloud or ready"),
        ("--cloud-call-timeout=11m", "from 1s to 10m0s"),
        ("--cloud-call-timeout=999ms", "from 1s to 10m0s"),
        ("--concurrent-node-lifecycle-syncs=0", "from 1 to 1000"),
        ("--concurrent-node-lifecycle-syncs=1001", "from 1 to 1000"),
    ] {
        let error = read(&[argument]).unwrap_err();
        let (flag, _) = argument.split_once('=').unwrap();
        let found = error.lines().any(|line| line.contains(flag) && line.contains(rule));
        assert!(found, "{argument}: {error}");
    }
}
