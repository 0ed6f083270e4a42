use ccm_runtime::program::{Need, Program};
use ccm_tests::in_process::loaded;

use super::*;
use crate::RouteCcm;

fn read(arguments: &[&str]) -> Result<RouteSettings, String> {
    ccm_tests::in_process::settings::<RouteCcm>(arguments)
}

#[test]
fn defaults_are_the_documented_ones() {
    let expect = RouteSettings {
        max_pod_cidr: MaxPodCidr::default(),
        configure_cloud_routes: true,
        cluster_cidr: vec!["10.244.0.0/16".to_owned()],
        allocate_node_cidrs: false,
        cidr_allocator_type: AllocatorType::RangeAllocator,
        service_cluster_ip_range: Vec::new(),
        node_cidr_mask_size: 0,
        node_cidr_mask_size_ipv4: 0,
        node_cidr_mask_size_ipv6: 0,
        route_reconciliation_period: Duration::from_mins(10),
        route_loss: Limit::Percent(10),
        route_loss_window: Duration::from_mins(10),
        scale_down_taints: ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"]
            .map(str::to_owned)
            .into(),
        node_selector: NodeSelector::default(),
        cloud_call_timeout: Duration::from_secs(30),
        cluster_uid: String::new(),
    };
    assert_eq!(read(&["--cluster-cidr=10.244.0.0/16"]), Ok(expect));
}

#[test]
fn a_wrong_cluster_cidr_names_the_flags() {
    const CIDRS_ONLY: &[&str] = &["--configure-cloud-routes=false", "--allocate-node-cidrs=true"];
    let both = ["--allocate-node-cidrs"];
    for on in [&[][..], CIDRS_ONLY, &both] {
        for (argument, what) in [
            ("--cluster-cidr=", "it is empty"),
            ("--cluster-cidr=ten", "\"ten\" is not a network"),
            ("--cluster-cidr=10.0.0.0/33", "is not a network"),
            ("--cluster-cidr=10.0.0.0/16,10.1.0.0/16", "are both IPv4"),
            ("--cluster-cidr=10.0.0.0/16,fd00::/56,fd01::/56", "are both IPv6"),
        ] {
            let error = read(&[&[argument], on].concat()).expect_err(argument);
            let flags =
                ["--cluster-cidr", "--configure-cloud-routes=false", "--allocate-node-cidrs=false"];
            assert!(flags.iter().all(|flag| error.contains(flag)), "{argument}: {error}");
            assert!(error.contains(what), "{argument}: {error}");
            assert_eq!(error.lines().count(), 1, "{argument}: {error}");
        }
    }
    let dual = read(&["--cluster-cidr=10.0.0.7/16,fd00::/56"]).expect("two families");
    let texts: Vec<String> = dual.cluster_cidrs().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0/16", "fd00::/56"]);
}

#[test]
fn wrong_flags_of_node_ipam_are_named_with_their_values() {
    let check = |arguments: &[&str], expect: &str| {
        let on = ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16"];
        let error = read(&[&on, arguments].concat()).expect_err(expect);
        assert!(error.starts_with(expect), "{error}");
    };
    check(&["--cidr-allocator-type=Other"], "--cidr-allocator-type=Other (flag): must be");
    check(
        &["--node-cidr-mask-size-ipv6=64"],
        "--node-cidr-mask-size-ipv6=64 (flag): --cluster-cidr has no IPv6 network",
    );
    check(
        &["--service-cluster-ip-range=x"],
        "--service-cluster-ip-range=x (flag): \"x\" is not a network",
    );
    check(&["--node-cidr-mask-size-ipv4=33"], "--node-cidr-mask-size-ipv4=33 (flag): must be");
    // Without --allocate-node-cidrs they do nothing.
    assert!(read(&["--cluster-cidr=10.0.0.0/16", "--service-cluster-ip-range=x"]).is_ok());
}

#[test]
fn a_single_length_of_pod_cidrs_is_of_the_only_family() {
    let most = |cidrs: &str, most: &str| {
        let arguments = [format!("--cluster-cidr={cidrs}"), format!("--max-pod-cidr={most}")];
        let settings = read(&arguments.each_ref().map(String::as_str))?;
        Ok::<_, String>(settings.max_pod_cidr().to_string())
    };
    for (cidrs, given, expect) in [
        ("fd00::/56", "64", "64"),
        // Each size of IPv6.
        ("fd00::/56", "0", "0"),
        ("fd00::/56", "0,64", "64"),
        ("10.0.0.0/16", "22", "22"),
        ("10.0.0.0/16,fd00::/56", "22,64", "22,64"),
    ] {
        assert_eq!(most(cidrs, given).as_deref(), Ok(expect), "{cidrs} {given}");
    }
    for cidrs in ["10.0.0.0/16", "10.0.0.0/16,fd00::/56"] {
        let error = most(cidrs, "64").expect_err("two families");
        assert!(error.starts_with("--max-pod-cidr=64 (flag): only IPv6 has"), "{error}");
        assert!(error.contains("such as 22,64") && error.lines().count() == 1, "{error}");
    }
}

/// The four cases.
#[test]
fn what_the_program_needs_follows_from_the_switches() {
    use ccm_cloud::Capability::{Instances, Routes};
    const NETWORK: &str = "--cluster-cidr=10.0.0.0/16";
    const NO_ROUTES: &str = "--configure-cloud-routes=false";
    const CIDRS: &str = "--allocate-node-cidrs";
    const CLOUD: &str = "--cidr-allocator-type=CloudAllocator";
    for (arguments, needs) in [
        (&[NETWORK][..], vec![Need::Required(Routes)]),
        (&[NETWORK, CIDRS], vec![Need::Known(Routes)]),
        (&[NETWORK, CIDRS, CLOUD], vec![Need::Known(Routes), Need::Known(Instances)]),
        (&[NETWORK, NO_ROUTES, CIDRS], vec![]),
        (&[NO_ROUTES, CIDRS, CLOUD], vec![Need::Required(Instances)]),
        (&[NETWORK, CIDRS, "--controllers=*,-nodeipam"], vec![Need::Required(Routes)]),
        (&[NETWORK, CIDRS, "--controllers=nodeipam"], vec![]),
        (&[NETWORK, CIDRS, "--controllers=-node-route-controller,*"], vec![]),
    ] {
        let settings = read(arguments).expect("valid");
        assert_eq!(RouteCcm::idle(&settings), None, "{arguments:?}");
        assert_eq!(RouteCcm::needs(&settings), needs, "{arguments:?}");
    }
    for arguments in [
        &[NO_ROUTES][..],
        &["--controllers=*,-route"],
        &[CIDRS, "--controllers=*,-route,-node-ipam-controller"],
    ] {
        let idle = RouteCcm::idle(&read(arguments).expect("valid"));
        assert!(idle.is_some_and(|why| why.contains("--allocate-node-cidrs")), "{arguments:?}");
    }
}

#[test]
fn a_switch_that_controllers_overrules_is_named() {
    let warnings = |arguments: &[&str]| loaded::<RouteCcm>(arguments).expect("valid").warnings;
    let off = "--controllers=*,-route,-nodeipam";
    assert_eq!(warnings(&[off]), [""; 0]);
    let found = warnings(&[off, "--allocate-node-cidrs", "--configure-cloud-routes=true"]);
    let expect =
        ["--controllers disables node-route-controller", "--controllers disables node-ipam"];
    assert!(found.iter().zip(expect).all(|(line, what)| line.contains(what)), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn values_that_would_do_nothing_or_harm_are_refused() {
    for (argument, parts) in [
        ("--route-reconciliation-period=9s", ["route-reconciliation-period", "at least 10s"]),
        ("--route-loss-window=0s", ["route-loss-window", "at least 1s"]),
        ("--route-loss=many", ["route-loss", "many"]),
        ("--cloud-call-timeout=11m", ["cloud-call-timeout", "from 1s to 10m"]),
    ] {
        let error = read(&["--cluster-cidr=10.0.0.0/16", argument]).expect_err(argument);
        assert!(parts.iter().all(|part| error.contains(part)), "{argument}: {error}");
    }
}
