use super::*;
use crate::ServiceCcm;

fn read(arguments: &[&str]) -> Result<ServiceSettings, String> {
    ccm_tests::in_process::settings::<ServiceCcm>(arguments)
}

#[test]
fn defaults_are_the_documented_ones() {
    let expect = ServiceSettings {
        concurrent_service_syncs: 16,
        load_balancer_classes: Vec::new(),
        serve_classless_services: true,
        member_update_interval: Duration::from_secs(10),
        load_balancer_member_loss: Limit::Percent(10),
        load_balancer_member_loss_window: Duration::from_hours(6),
        scale_down_taints: ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"]
            .map(str::to_owned)
            .into(),
        load_balancer_foreign_nodes: false,
        node_selector: NodeSelector::default(),
        load_balancer_audit_period: Duration::from_mins(5),
        load_balancer_look_period: Duration::from_hours(24),
        orphaned_load_balancers: Policy::Report,
        orphan_confirmation_period: Duration::from_mins(15),
        adopt_load_balancers: false,
        max_load_balancers_per_namespace: 0,
        load_balancer_allowed_addresses: Vec::new(),
        service_cluster_ip_range: Vec::new(),
        provider_annotation_prefixes: Vec::new(),
        cloud_call_timeout: Duration::from_secs(30),
        cluster_uid: String::new(),
    };
    assert_eq!(read(&[]), Ok(expect));
}

#[test]
fn values_that_would_do_nothing_or_harm_are_refused() {
    for (argument, parts) in [
        ("--concurrent-service-syncs=0", ["concurrent-service-syncs", "from 1 to 1000"]),
        ("--concurrent-service-syncs=-1", ["concurrent-service-syncs", "from 1 to 1000"]),
        ("--concurrent-service-syncs=1001", ["concurrent-service-syncs", "from 1 to 1000"]),
        ("--member-update-interval=999ms", ["member-update-interval", "at least 1s"]),
        ("--load-balancer-member-loss-window=0s", ["member-loss-window", "at least 1s"]),
        ("--load-balancer-member-loss=many", ["load-balancer-member-loss", "many"]),
        ("--load-balancer-audit-period=9s", ["load-balancer-audit-period", "at least 10s"]),
        ("--load-balancer-look-period=59m", ["load-balancer-look-period", "0s, or at least 1h"]),
        ("--orphaned-load-balancers=keep", ["orphaned-load-balancers", "report or delete"]),
        ("--orphan-confirmation-period=0s", ["orphan-confirmation-period", "at least 1s"]),
        ("--max-load-balancers-per-namespace=-1", ["max-load-balancers-per-namespace", "from 0"]),
        ("--load-balancer-classes=example.com/a b", ["load-balancer-classes", "a b"]),
        ("--load-balancer-allowed-addresses=x", ["allowed-addresses", "192.0.2.0/24; \"x\""]),
        ("--service-cluster-ip-range=10.0.0.0/33", ["service-cluster-ip-range", "networks"]),
        ("--provider-annotation-prefixes=example.com", ["annotation-prefixes", "a slash"]),
        ("--provider-annotation-prefixes=quartet.dev/", ["annotation-prefixes", "quartet.dev"]),
        ("--provider-annotation-prefixes=x.quartet.dev/", ["annotation-prefixes", "subdomain"]),
        ("--provider-annotation-prefixes=a/,x.kubernetes.io/", ["annotation-prefixes", "x.kube"]),
        ("--cluster-uid=a,b", ["cluster-uid", "letters, digits"]),
        ("--cluster-uid=a b", ["cluster-uid", "letters, digits"]),
        ("--cluster-name=a,b", ["cluster-name", "comma"]),
        ("--cloud-call-timeout=11m", ["cloud-call-timeout", "from 1s to 10m"]),
    ] {
        let error = read(&[argument]).expect_err(argument);
        assert!(parts.iter().all(|part| error.contains(part)), "{argument}: {error}");
    }
}

#[test]
fn networks_and_single_addresses_can_be_allowed() {
    let settings = read(&["--load-balancer-allowed-addresses=10.0.0.7/24,192.0.2.1,fd00::1"]);
    let allowed = settings.expect("settings").parameters(None).shown.allowed;
    let texts: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0/24", "192.0.2.1/32", "fd00::1/128"]);
}
