use std::collections::BTreeMap;

use ccm_cloud::{ClusterId, Digest, Owner};
use ccm_openstack_client::lbaas::ApiVersion;

use super::*;
use crate::balancers::annotations::read;

fn port(number: u16, protocol: Protocol) -> FrontEndPort {
    let (name, app_protocol) = (String::new(), None);
    FrontEndPort { name, protocol, port: number, member_port: Some(30_000), app_protocol }
}

fn front_end(annotations: &[(&str, &str)]) -> FrontEnd {
    let cluster = ClusterId { name: "c".to_owned(), uid: "c-1".to_owned() };
    let (uid, namespace, name) = ("u".to_owned(), "ns".to_owned(), "web".to_owned());
    let annotation = |(key, value): &(&str, &str)| {
        (format!("loadbalancer.openstack.org/{key}"), (*value).to_owned())
    };
    FrontEnd {
        owner: Owner { cluster, uid, namespace, name },
        digest: Digest { version: 1, hash: 1 },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports: vec![port(1, Protocol::Tcp), port(2, Protocol::Udp), port(3, Protocol::Sctp)],
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings: annotations.iter().map(annotation).collect(),
        service: None,
    }
}

fn tree(front_end: &FrontEnd, minor: u32, driver: &str) -> Result<Tree, CloudError> {
    let options = crate::tests::config();
    let settings = read(&front_end.settings, &options, front_end.traffic).unwrap();
    let features = Features::new(ApiVersion { major: 2, minor }, driver);
    Tree::new(
        names::balancer(&front_end.owner),
        front_end,
        &settings,
        features,
        &[IpFamily::V4],
        Unasked::Kept,
    )
}

/// Octavia pairs few protocols of listeners and pools.
#[test]
fn each_port_has_protocols_that_octavia_pairs() {
    let tls = ("default-tls-container-ref", "https://b/v1/secrets/x");
    for (annotations, tcp) in [
        (vec![], ("TCP", "TCP")),
        (vec![("x-forwarded-for", "true")], ("HTTP", "HTTP")),
        (vec![("proxy-protocol", "v1")], ("TCP", "PROXY")),
        (vec![("proxy-protocol", "v2")], ("TCP", "PROXYV2")),
        (vec![tls], ("TERMINATED_HTTPS", "HTTP")),
        (vec![tls, ("x-forwarded-for", "true")], ("TERMINATED_HTTPS", "HTTP")),
        (vec![tls, ("proxy-protocol", "v1")], ("TERMINATED_HTTPS", "PROXY")),
    ] {
        let tree = tree(&front_end(&annotations), 26, "amphora").unwrap();
        let pairs: Vec<_> =
            tree.listeners.iter().map(|one| (one.protocol, one.pool.protocol)).collect();
        assert_eq!(pairs, [tcp, ("UDP", "UDP"), ("SCTP", "SCTP")], "{annotations:?}");
        let has_header = |one: &Listener| one.headers.contains_key("X-Forwarded-For");
        let headers: Vec<_> = tree.listeners.iter().map(has_header).collect();
        let wanted = annotations.contains(&("x-forwarded-for", "true"));
        assert_eq!(headers, [wanted, false, false], "{annotations:?}");
    }
}

#[test]
fn monitors_are_of_the_kind_that_the_driver_has() {
    let local = Traffic::Local { health_check_port: 31_000 };
    let plain = [Some("TCP"), Some("UDP-CONNECT"), Some("SCTP")];
    let (http, first) = (Some("HTTP"), [Some(31_000), None, None]);
    for (traffic, minor, driver, kinds, port) in [
        (Traffic::Cluster, 26, "amphora", plain, [None; 3]),
        (local, 26, "amphora", [http; 3], [Some(31_000); 3]),
        (local, 15, "amphora", [http, plain[1], plain[2]], first),
        (Traffic::Cluster, 26, "ovn", [plain[0], plain[1], None], [None; 3]),
        (local, 26, "ovn", [plain[0], plain[1], None], [None; 3]),
    ] {
        let mut wanted = front_end(&[("enable-health-monitor", "true")]);
        wanted.traffic = traffic;
        let tree = tree(&wanted, minor, driver).unwrap();
        let shown = tree.listeners.iter().map(|one| one.pool.monitor.as_ref().map(|it| it.kind));
        assert_eq!(shown.collect::<Vec<_>>(), kinds, "{driver} 2.{minor}");
        let ports: Vec<_> = tree.listeners.iter().map(|one| one.pool.monitor_port).collect();
        assert_eq!(ports, port, "{driver} 2.{minor}");
        // Without monitors nothing is checked at another port.
        wanted.settings = BTreeMap::new();
        let tree = self::tree(&wanted, minor, driver).unwrap();
        assert!(tree.listeners.iter().all(|one| one.pool.monitor_port.is_none()));
    }
}

#[test]
fn old_versions_and_ovn_are_sent_what_they_know() {
    for (minor, driver, timeouts, cidrs) in [
        (0, "amphora", false, false),
        (1, "amphora", true, false),
        (12, "amphora", true, true),
        (26, "ovn", false, false),
    ] {
        let tree = tree(&front_end(&[]), minor, driver).unwrap();
        for listener in &tree.listeners {
            assert_eq!(listener.timeouts.is_some(), timeouts, "{driver} 2.{minor}");
            assert_eq!(listener.allowed_cidrs.is_some(), cidrs, "{driver} 2.{minor}");
        }
    }
    let refused = |annotation, driver| tree(&front_end(&[annotation]), 21, driver).is_err();
    assert!(
        refused(("proxy-protocol", "v2"), "amphora")
            && !refused(("proxy-protocol", "v1"), "amphora")
    );
    assert!(
        refused(("proxy-protocol", "v1"), "ovn") && refused(("x-forwarded-for", "true"), "ovn")
    );
}
