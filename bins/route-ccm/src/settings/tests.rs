use ccm_runtime::program::{Program, load};
use ccm_settings::Invocation;

use super::*;
use crate::RouteCcm;

fn read(arguments: &[&str]) -> Result<RouteSettings, String> {
    let mut invocation = Invocation::with_arguments(["--cloud-provider=sim"]);
    invocation.arguments.extend(arguments.iter().map(Into::into));
    load::<RouteCcm>(&invocation)
        .map(|loaded| RouteSettings::clone(&loaded.own))
        .map_err(|error| error.to_string())
}

#[test]
fn defaults_are_the_documented_ones() {
    let expect = RouteSettings {
        configure_cloud_routes: true,
        cluster_cidr: vec!["10.244.0.0/16".to_owned()],
        route_reconciliation_period: Duration::from_mins(10),
        route_loss: Limit::Percent(10),
        route_loss_window: Duration::from_mins(10),
        scale_down_taints: ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"]
            .map(str::to_owned)
            .into(),
        cloud_call_timeout: Duration::from_secs(30),
        cluster_uid: String::new(),
    };
    assert_eq!(read(&["--cluster-cidr=10.244.0.0/16"]), Ok(expect));
}

#[test]
fn a_wrong_cluster_cidr_names_the_flags() {
    for (argument, what) in [
        ("--cluster-cidr=", "it is empty"),
        ("--cluster-cidr=ten", "\"ten\" is no CIDR"),
        ("--cluster-cidr=10.0.0.0/33", "is no CIDR"),
        ("--cluster-cidr=10.0.0.0/16,10.1.0.0/16", "both CIDRs are IPv4"),
        ("--cluster-cidr=10.0.0.0/16,fd00::/56,fd01::/56", "it has 3 CIDRs"),
    ] {
        let error = read(&[argument]).expect_err(argument);
        let flags = ["--cluster-cidr", "--configure-cloud-routes=false", "--allocate-node-cidrs"];
        assert!(flags.iter().all(|flag| error.contains(flag)), "{argument}: {error}");
        assert!(error.contains(what), "{argument}: {error}");
    }
    let dual = read(&["--cluster-cidr=10.0.0.7/16,fd00::/56"]).expect("two families");
    let texts: Vec<String> = dual.cluster_cidrs().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0/16", "fd00::/56"]);
}

#[test]
fn without_routes_it_is_idle_and_needs_no_network() {
    let idle = read(&["--configure-cloud-routes=false"]).expect("valid");
    assert!(
        RouteCcm::idle(&idle).is_some_and(|why| why.contains("--configure-cloud-routes=false"))
    );
    assert_eq!(RouteCcm::idle(&read(&["--cluster-cidr=10.0.0.0/16"]).expect("valid")), None);
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
