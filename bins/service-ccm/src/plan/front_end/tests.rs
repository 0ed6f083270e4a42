//! Front ends of Services, and mistakes in Services.

use ccm_objects::{ServiceIngress, ServicePort};

use super::*;

fn cluster() -> ClusterId {
    ClusterId { name: "kubernetes".to_owned(), uid: "c-1".to_owned() }
}

fn port(protocol: &str, port: u16) -> ServicePort {
    ServicePort {
        protocol: protocol.into(),
        port,
        node_port: Some(30_000 + port),
        ..ServicePort::default()
    }
}

fn details() -> ServiceDetails {
    ServiceDetails {
        allocates_node_ports: true,
        ports: vec![port("TCP", 443), port("TCP", 80)],
        ip_families: vec!["IPv4".into()],
        ..ServiceDetails::default()
    }
}

fn traits() -> LoadBalancerTraits {
    let annotations = vec!["cloud.example/".to_owned()];
    LoadBalancerTraits { annotations, ..LoadBalancerTraits::default() }
}

/// Returns a Service with local traffic and this health check port.
fn local(health_check_port: u16) -> ServiceDetails {
    ServiceDetails {
        local_traffic: true,
        health_check_node_port: Some(health_check_port),
        ..details()
    }
}

fn read(details: ServiceDetails) -> SpecFrontEnd {
    read_for(details, &traits())
}

fn read_for(details: ServiceDetails, traits: &LoadBalancerTraits) -> SpecFrontEnd {
    let details = Some(Box::new(details));
    let service =
        Service { key: "shop/web".into(), uid: "u-1".into(), details, ..Service::default() };
    spec_front_end(&service, &cluster(), traits)
}

fn front_end(details: ServiceDetails) -> Arc<FrontEnd> {
    let SpecFrontEnd { front_end, problems } = read(details);
    assert_eq!(problems, []);
    front_end.expect("no problem is fatal")
}

/// Returns the fields with fatal problems, and those with remarks.
fn problems(spec: &SpecFrontEnd) -> (Vec<&str>, Vec<&str>) {
    assert_eq!(spec.front_end.is_none(), spec.problems.iter().any(|one| one.fatal));
    let (fatal, remarks): (Vec<&SpecProblem>, _) = spec.problems.iter().partition(|one| one.fatal);
    (fatal.iter().map(|one| &*one.field).collect(), remarks.iter().map(|one| &*one.field).collect())
}

#[test]
fn everything_that_configures_is_in_the_front_end() {
    let front_end = front_end(ServiceDetails {
        class: Some("example.com/lb".into()),
        load_balancer_ip: Some("192.0.2.1".into()),
        source_ranges: vec!["10.1.2.3/8".into(), " 10.0.0.0/8".into(), "192.168.0.0/16".into()],
        local_traffic: true,
        health_check_node_port: Some(31_000),
        client_ip_affinity: Some(60),
        annotations: [("cloud.example/flavor", "big"), ("cloud.example/empty", ""), ("x/y", "z")]
            .map(|(key, value)| (key.into(), value.into()))
            .into(),
        ..details()
    });
    assert_eq!(front_end.owner.to_string(), "shop/web");
    assert_eq!(
        (front_end.owner.uid.as_str(), front_end.owner.cluster.uid.as_str()),
        ("u-1", "c-1")
    );
    let ports: Vec<_> = front_end.ports.iter().map(|port| (port.port, port.member_port)).collect();
    assert_eq!(ports, [(80, Some(30_080)), (443, Some(30_443))], "sorted");
    let ranges: Vec<String> = front_end.source_ranges.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.0.0.0/8", "192.168.0.0/16"], "masked, once each");
    assert_eq!(front_end.address, Some("192.0.2.1".parse().expect("an address")));
    assert_eq!(front_end.affinity, Some(Duration::from_secs(60)));
    assert_eq!(front_end.traffic, Traffic::Local { health_check_port: 31_000 });
    assert_eq!(front_end.class.as_deref(), Some("example.com/lb"));
    let settings: Vec<_> = front_end.settings.iter().collect();
    let expect = [("cloud.example/empty", ""), ("cloud.example/flavor", "big")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(settings, expect.iter().map(|(key, value)| (key, value)).collect::<Vec<_>>());
}

#[test]
fn the_digest_follows_the_configuration_and_nothing_else() {
    let before = front_end(details());
    let same: [ServiceDetails; 4] = [
        ServiceDetails { ports: vec![port("TCP", 80), port("TCP", 443)], ..details() },
        ServiceDetails { annotations: [("x/y".into(), "z".into())].into(), ..details() },
        ServiceDetails { ingress: vec![ServiceIngress::default()], ..details() },
        ServiceDetails { source_ranges: vec!["0.0.0.0/0".into(), "::/0".into()], ..details() },
    ];
    for same in same {
        assert_eq!(front_end(same.clone()).digest, before.digest, "{same:?}");
    }
    let on_node_port = ServicePort { node_port: Some(1), ..port("TCP", 80) };
    let others: [ServiceDetails; 10] = [
        ServiceDetails { ports: vec![port("TCP", 80)], ..details() },
        ServiceDetails { ports: vec![port("TCP", 81), port("TCP", 443)], ..details() },
        ServiceDetails { ports: vec![on_node_port, port("TCP", 443)], ..details() },
        ServiceDetails { source_ranges: vec!["10.0.0.0/8".into()], ..details() },
        ServiceDetails { annotations: [("cloud.example/y".into(), "".into())].into(), ..details() },
        ServiceDetails { client_ip_affinity: Some(1), ..details() },
        ServiceDetails { ip_families: vec!["IPv6".into()], ..details() },
        ServiceDetails { class: Some("a/b".into()), ..details() },
        ServiceDetails { load_balancer_ip: Some("10.0.0.1".into()), ..details() },
        local(31_000),
    ];
    for other in others {
        assert_ne!(front_end(other.clone()).digest, before.digest, "{other:?}");
    }
    assert_ne!(front_end(local(31_000)).digest, front_end(local(31_001)).digest);
    let spoken = |protocol: Option<&str>| {
        let app_protocol = protocol.map(Into::into);
        let port = ServicePort { app_protocol, ..port("TCP", 80) };
        front_end(ServiceDetails { ports: vec![port], ..details() }).digest
    };
    assert_eq!(spoken(Some("http")), spoken(Some("http")));
    assert_ne!(spoken(None), spoken(Some("http")));
    assert_ne!(spoken(Some("http")), spoken(Some("tcp")));
}

#[test]
fn each_protocol_is_configured_where_the_cloud_offers_it() {
    let all = LoadBalancerTraits {
        protocols: vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp],
        ..traits()
    };
    for (text, protocol) in
        [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)]
    {
        let details = ServiceDetails { ports: vec![port(text, 53)], ..details() };
        let spec = read_for(details.clone(), &all);
        assert_eq!(problems(&spec), (vec![], vec![]));
        let ports = spec.front_end.expect("a front end").ports.clone();
        assert_eq!((ports[0].protocol, ports[0].port), (protocol, 53));
        let offered = read(details).front_end.is_some();
        assert_eq!(offered, protocol == Protocol::Tcp, "{text} with a cloud that offers TCP only");
    }
}

/// A misspelt annotation does not change the digest.
#[test]
fn what_the_provider_only_remarks_on_is_in_no_digest() {
    let traits = LoadBalancerTraits {
        annotations: vec!["cloud.example/".to_owned(), "old.example/cloud-internal".to_owned()],
        remarked: vec!["old.example/cloud-".to_owned()],
        ..traits()
    };
    let with = |keys: &[&str]| {
        let annotations = keys.iter().map(|&key| (key.into(), "x".into())).collect();
        let spec = read_for(ServiceDetails { annotations, ..details() }, &traits);
        spec.front_end.expect("a front end")
    };
    let (before, misspelt) = (with(&[]), with(&["old.example/cloud-intern", "old.example/x"]));
    assert_eq!(misspelt.digest, before.digest);
    let passed: Vec<&String> = misspelt.settings.keys().collect();
    assert_eq!(passed, ["old.example/cloud-intern"], "the provider can remark on it");
    assert_ne!(with(&["old.example/cloud-internal"]).digest, before.digest);
}

/// The provider's own annotation would otherwise change the next configuration.
#[test]
fn what_the_provider_writes_is_in_no_digest() {
    let own = LoadBalancerTraits {
        own_annotations: vec!["cloud.example/id".to_owned(), "cloud.example/seen-*".to_owned()],
        ..traits()
    };
    let with = |keys: &[&str]| {
        let annotations = keys.iter().map(|&key| (key.into(), "x".into())).collect();
        let spec = read_for(ServiceDetails { annotations, ..details() }, &own);
        spec.front_end.expect("a front end")
    };
    let before = with(&["cloud.example/flavor"]);
    let written = ["cloud.example/flavor", "cloud.example/id", "cloud.example/seen-address"];
    assert_eq!(with(&written), before);
    assert_ne!(with(&["cloud.example/flavor", "cloud.example/id-format"]).digest, before.digest);
}

/// Only the provider knows which parts of the whole Service it reads.
#[test]
fn the_whole_service_is_in_the_digest_of_a_provider_that_gets_it() {
    let traits = LoadBalancerTraits {
        wants_service: true,
        own_annotations: vec!["vendor.example/id".to_owned()],
        ..traits()
    };
    let digest = |key: &str, ip: &str, selector: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"web","annotations":{{"{key}":"1"}}}},"spec":{{"selector":{selector}}},"status":{{"loadBalancer":"{ip}"}}}}"#
        );
        let service = Service {
            key: "shop/web".into(),
            uid: "u-1".into(),
            details: Some(Box::new(details())),
            json: Some(json.into()),
            ..Service::default()
        };
        spec_front_end(&service, &cluster(), &traits).front_end.expect("a front end").digest
    };
    let before = digest("quartet.dev/load-balancer-id", "192.0.2.1", "{}");
    for own in ["vendor.example/id", "kubectl.kubernetes.io/restartedAt", "quartet.dev/adopt"] {
        assert_eq!(digest(own, "192.0.2.2", "{}"), before, "{own}");
    }
    assert_ne!(digest("vendor.example/size", "192.0.2.1", "{}"), before);
    assert_ne!(digest("quartet.dev/adopt", "192.0.2.1", r#"{"app":"web"}"#), before);
}

/// Stored digests outlive a version of the program. If this digest changes, raise
/// [`DIGEST_VERSION`].
#[test]
fn the_digest_of_a_configuration_stays() {
    assert_eq!(front_end(details()).digest.to_string(), "1-24da247c1c2db85e63a18df58bc9c658");
}

#[test]
fn source_ranges_are_networks() {
    let annotation = |text: &str| ServiceDetails {
        annotations: [(service_keys::SOURCE_RANGES.into(), text.into())].into(),
        ..details()
    };
    let field = |ranges: &[&str]| ServiceDetails {
        source_ranges: ranges.iter().map(|range| (*range).into()).collect(),
        ..details()
    };
    for wrong in
        ["10.0.0.1/33", "foo.bar", "10.0.0.1/32,*", "10.0.0.1/32,", "10.0.0.1/32, ", "10.0.0.1"]
    {
        let from_annotation = read(annotation(wrong));
        let name = format!("annotation {}", service_keys::SOURCE_RANGES);
        assert_eq!(problems(&from_annotation).0, [&*name], "{wrong:?}");
        let parts: Vec<&str> = wrong.split(',').collect();
        let from_field = read(field(&parts));
        let name = format!("spec.loadBalancerSourceRanges[{}]", parts.len() - 1);
        assert_eq!(problems(&from_field).0, [&*name], "{wrong:?}");
    }
    let ranges = |text: &str| {
        let ranges = front_end(annotation(text)).source_ranges.clone();
        ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    };
    for (text, expect) in [
        ("192.168.0.1/32", "192.168.0.1/32"),
        ("192.168.0.1/32,192.168.0.1/32", "192.168.0.1/32"),
        ("192.168.0.2/32 , 192.168.0.1/32 ", "192.168.0.1/32,192.168.0.2/32"),
        ("", ""),
        ("  ", ""),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("192.168.0.0/0", "0.0.0.0/0"),
        ("192.168.0.1/32,0.0.0.0/0", "0.0.0.0/0,192.168.0.1/32"),
    ] {
        assert_eq!(ranges(text), expect, "{text:?}");
    }
    assert_eq!(front_end(details()).source_ranges, [], "neither field nor annotation");
    let mut both = annotation("foo.bar");
    both.source_ranges = vec!["10.0.0.0/8".into()];
    assert_eq!(
        front_end(both).source_ranges.len(),
        1,
        "the field takes precedence over the annotation"
    );
}

#[test]
fn what_a_user_got_wrong_names_the_field() {
    let cases: [(ServiceDetails, &str, &str); 7] = [
        (ServiceDetails { ports: Vec::new(), ..details() }, "spec.ports", "at least one"),
        (
            ServiceDetails { ports: vec![port("TCP", 80), port("QUIC", 81)], ..details() },
            "spec.ports[1].protocol",
            "\"QUIC\"; they offer TCP",
        ),
        (
            ServiceDetails { ports: vec![port("TCP", 80), port("TCP", 80)], ..details() },
            "spec.ports[1].port",
            "twice",
        ),
        (
            ServiceDetails { load_balancer_ip: Some("10.0.0".into()), ..details() },
            "spec.loadBalancerIP",
            "\"10.0.0\" is not an IP address",
        ),
        (
            ServiceDetails { ip_families: vec!["IPv5".into()], ..details() },
            "spec.ipFamilies[0]",
            "expected IPv4 or IPv6",
        ),
        (
            ServiceDetails {
                too_large: Some(TooLarge { part: "spec".into(), bytes: 9, others: 0 }),
                ..details()
            },
            "spec",
            "has 9 bytes",
        ),
        (
            ServiceDetails { local_traffic: true, ..details() },
            "spec.healthCheckNodePort",
            "no health check port yet",
        ),
    ];
    for (details, field, message) in cases {
        let spec = read(details);
        assert_eq!(problems(&spec).0, [field]);
        assert!(spec.problems[0].message.contains(message), "{:?}", spec.problems);
    }
}

#[test]
fn a_port_without_node_port_has_no_members() {
    let without = ServicePort { node_port: None, ..port("TCP", 80) };
    let ports = vec![without, port("TCP", 443)];
    for allocates_node_ports in [true, false] {
        let spec = read(ServiceDetails { ports: ports.clone(), allocates_node_ports, ..details() });
        assert_eq!(problems(&spec), (vec![], vec!["spec.ports[0].nodePort"]));
        let ports = spec.front_end.expect("a front end").ports.clone();
        assert_eq!(
            ports.iter().map(|port| port.member_port).collect::<Vec<_>>(),
            [None, Some(30_443)]
        );
    }
}

#[test]
fn two_families_where_the_cloud_has_one() {
    let both = |policy: &str| ServiceDetails {
        ip_families: vec!["IPv6".into(), "IPv4".into()],
        ip_family_policy: Some(policy.into()),
        ..details()
    };
    let preferred = read(both("PreferDualStack"));
    assert_eq!(problems(&preferred), (vec![], vec!["spec.ipFamilyPolicy"]));
    assert_eq!(preferred.front_end.expect("a front end").families, [IpFamily::V6]);
    assert_eq!(problems(&read(both("RequireDualStack"))).0, ["spec.ipFamilyPolicy"]);
    let traits = LoadBalancerTraits { dual_stack: true, ..traits() };
    for policy in ["PreferDualStack", "RequireDualStack"] {
        let spec = read_for(both(policy), &traits);
        assert_eq!(problems(&spec), (vec![], vec![]));
        let front_end = spec.front_end.expect("a front end");
        assert_eq!(front_end.families, [IpFamily::V6, IpFamily::V4]);
        assert_eq!(front_end.requires_families, policy == "RequireDualStack");
    }
    let digest = |details| read_for(details, &traits).front_end.expect("a front end").digest;
    let one = ServiceDetails { ip_families: vec!["IPv6".into()], ..both("PreferDualStack") };
    let [preferred, required] = ["PreferDualStack", "RequireDualStack"].map(both).map(digest);
    assert_eq!(preferred, required, "the policy changes nothing about an existing load balancer");
    assert_ne!(digest(one), digest(both("PreferDualStack")), "a second family is configured");
}

#[test]
fn problems_without_number_and_texts_without_end_give_one_short_line() {
    let ports = (1..=10_000)
        .map(|number| port("QUIC", number))
        .map(|port| ServicePort { node_port: None, ..port });
    let many = read(ServiceDetails { ports: ports.collect(), ..details() });
    assert_eq!((many.problems.len(), many.front_end), (10_000, None));
    let words = in_words(&many.problems.iter().collect::<Vec<_>>());
    assert!(words.starts_with("spec.ports[0].protocol: ") && words.len() < 1024, "{words}");
    assert!(words.ends_with("; and 9995 more"), "{words}");
    let long = "x\n".repeat(100_000);
    for details in [
        ServiceDetails { load_balancer_ip: Some(long.as_str().into()), ..details() },
        ServiceDetails { source_ranges: vec![long.as_str().into()], ..details() },
        ServiceDetails { ip_families: vec![long.as_str().into()], ..details() },
        ServiceDetails { ports: vec![port(&long, 80)], ..details() },
        ServiceDetails { annotations: [(ADOPT.into(), long.as_str().into())].into(), ..details() },
    ] {
        let wrong = read(details);
        assert_eq!((wrong.problems.len(), wrong.front_end), (1, None));
        let words = in_words(&wrong.problems.iter().collect::<Vec<_>>());
        assert!(words.len() < 1024 && !words.contains('\n'), "{words}");
    }
}

#[test]
fn what_is_to_be_adopted_needs_an_id() {
    let adopts = |id: &str| {
        read(ServiceDetails { annotations: [(ADOPT.into(), id.into())].into(), ..details() })
    };
    assert_eq!(problems(&adopts("lb-1")), (vec![], vec![]));
    for id in ["", " ", "lb-1 ", "a\nb", "a\u{0}b"] {
        let field = "annotation quartet.dev/adopt-load-balancer";
        assert_eq!(problems(&adopts(id)), (vec![field], vec![]), "{id:?}");
    }
}
