//! The effect of each annotation and option, at the creation and on existing objects.

use ccm_cloud::{ErrorKind, IpFamily, IpMode, Member, Traffic};
use ccm_openstack_client::scripted::{port as server_port, uuid};
use serde_json::{Value, json};

use super::rig::{Rig, addresses, annotated, changed, members, wanted, with};

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Annotations, and what Octavia shows after them: kind, field and value.
type Case = (Vec<(&'static str, &'static str)>, &'static str, &'static str, Value);

fn cases() -> Vec<Case> {
    let monitor = ("enable-health-monitor", "true");
    vec![
        (vec![("connection-limit", "100")], "listeners", "connection_limit", json!(100)),
        (vec![("timeout-client-data", "1")], "listeners", "timeout_client_data", json!(1)),
        (vec![("timeout-member-connect", "2")], "listeners", "timeout_member_connect", json!(2)),
        (vec![("timeout-member-data", "3")], "listeners", "timeout_member_data", json!(3)),
        (vec![("timeout-tcp-inspect", "4")], "listeners", "timeout_tcp_inspect", json!(4)),
        (vec![("x-forwarded-for", "true")], "listeners", "protocol", json!("HTTP")),
        (vec![("x-forwarded-for", "true")], "pools", "protocol", json!("HTTP")),
        (
            vec![("x-forwarded-for", "true")],
            "listeners",
            "insert_headers",
            json!({ "X-Forwarded-For": "true" }),
        ),
        (vec![("proxy-protocol", "true")], "pools", "protocol", json!("PROXY")),
        (vec![("proxy-protocol", "v1")], "pools", "protocol", json!("PROXY")),
        (vec![("proxy-protocol", "v2")], "pools", "protocol", json!("PROXYV2")),
        (vec![("proxy-protocol", "false")], "pools", "protocol", json!("TCP")),
        (
            vec![("lb-method", "LEAST_CONNECTIONS")],
            "pools",
            "lb_algorithm",
            json!("LEAST_CONNECTIONS"),
        ),
        (vec![monitor], "monitors", "type", json!("TCP")),
        (vec![monitor], "monitors", "delay", json!(5)),
        (vec![monitor], "monitors", "timeout", json!(3)),
        (vec![monitor], "monitors", "max_retries", json!(1)),
        (vec![monitor], "monitors", "max_retries_down", json!(3)),
        (vec![monitor, ("health-monitor-delay", "9")], "monitors", "delay", json!(9)),
        (vec![monitor, ("health-monitor-timeout", "2")], "monitors", "timeout", json!(2)),
        (vec![monitor, ("health-monitor-max-retries", "4")], "monitors", "max_retries", json!(4)),
        (
            vec![monitor, ("health-monitor-max-retries-down", "5")],
            "monitors",
            "max_retries_down",
            json!(5),
        ),
    ]
}

#[tokio::test]
async fn annotations_take_effect_at_the_creation_and_later() {
    for (annotations, kind, field, value) in cases() {
        let mut web = wanted("web");
        for (key, text) in &annotations {
            web = annotated(&web, key, text);
        }
        for first in [None, Some(wanted("web"))] {
            let rig = Rig::new();
            if let Some(first) = &first {
                rig.settle(first).await;
            }
            let done = rig.settle(&web).await;
            let rows = rig.rows(kind);
            assert_eq!(rows.len(), 2, "{annotations:?}");
            for row in &rows {
                assert_eq!(row[field], value, "{annotations:?} {field}");
            }
            assert_eq!(done.notes, [], "{annotations:?}");
            // And back.
            let plain = changed(&wanted("web"), |it| it.digest.hash = 77);
            rig.settle(&plain).await;
            let plain_rig = Rig::new();
            plain_rig.settle(&wanted("web")).await;
            let of = |rig: &Rig| -> Vec<Value> {
                rig.rows(kind).iter().map(|row| row[field].clone()).collect()
            };
            assert_eq!(of(&rig), of(&plain_rig), "{annotations:?}");
        }
    }
}

#[tokio::test]
async fn where_a_load_balancer_is() {
    for (key, kind, field, value) in [
        ("subnet-id", "balancers", "vip_subnet_id", uuid(9)),
        ("member-subnet-id", "members", "subnet_id", uuid(8)),
        ("flavor-id", "balancers", "flavor_id", uuid(7)),
        ("availability-zone", "balancers", "availability_zone", "zone 1".to_owned()),
    ] {
        let rig = Rig::new();
        let mut elsewhere = ccm_openstack_client::scripted::subnet(9, "10.9.0.0/24");
        rig.cloud.world.lock().subnets.push(elsewhere.clone());
        elsewhere["id"] = json!(uuid(8));
        rig.cloud.world.lock().subnets.push(elsewhere);
        let web = annotated(&wanted("web"), key, &value);
        let done = rig.settle(&web).await;
        assert_eq!(rig.rows(kind)[0][field], json!(value), "{key}");
        assert_eq!(done.notes, [], "{key}");
        // What cannot be changed any more is said.
        if kind == "balancers" {
            let other = annotated(&wanted("web"), key, &uuid(99));
            let done = rig.settle(&other).await;
            let text = &done.notes[0].message;
            assert!(text.contains(key) && text.contains("no effect"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_port_and_a_network_decide_over_the_subnet() {
    let rig = Rig::new();
    let own = json!({
        "id": uuid(4_000), "device_id": "", "device_owner": "", "network_id": uuid(77),
        "fixed_ips": [{ "subnet_id": uuid(1), "ip_address": "10.8.0.200" }], "status": "DOWN",
    });
    rig.cloud.world.lock().ports.push(own);
    let done = rig.settle(&annotated(&wanted("web"), "port-id", &uuid(4_000))).await;
    let row = &rig.rows("balancers")[0];
    assert_eq!(
        (&row["vip_port_id"], &row["vip_address"]),
        (&json!(uuid(4_000)), &json!("10.8.0.200"))
    );
    assert_eq!(done.notes, []);
    let rig = Rig::with(|options| {
        options.networks.network_id = Some(uuid(77));
        options.networks.floating_network_id = Some(uuid(50));
    });
    rig.settle(&wanted("web")).await;
    assert_eq!(rig.rows("balancers")[0]["vip_subnet_id"], uuid(1));
}

/// Without any setting the first node's subnet is used, and the first external network with IPv4.
#[tokio::test]
async fn networks_are_found_out() {
    let rig = Rig::with(|_| {});
    {
        let mut world = rig.cloud.world.lock();
        let mut port = server_port(1);
        port["fixed_ips"] = json!([{ "subnet_id": uuid(1), "ip_address": "10.8.1.1" }]);
        world.ports.push(port);
        let mut v6 = ccm_openstack_client::scripted::subnet(60, "2001:db8:9::/64");
        v6["network_id"] = json!(uuid(49));
        world.subnets.push(v6);
        let external =
            json!({ "id": uuid(49), "name": "v6", "router:external": true, "subnets": [uuid(60)] });
        world.networks.insert(0, external);
        world.networks.insert(
            0,
            json!({ "id": uuid(48), "name": "none", "router:external": true, "subnets": [] }),
        );
    }
    let done = rig.settle(&wanted("web")).await;
    assert_eq!(rig.rows("balancers")[0]["vip_subnet_id"], uuid(1));
    assert!(rig.rows("members").iter().all(|row| row["subnet_id"] == uuid(1)));
    assert_eq!(rig.cloud.world.lock().floating.ips[0]["floating_network_id"], uuid(50));
    assert_eq!(addresses(&done), ["172.24.0.2"]);
    // Found once, used again.
    rig.cloud.operations();
    rig.settle(&wanted("api")).await;
    assert!(!rig.cloud.operations().contains(&"network_list"));
    // None: an internal address, and a remark.
    let rig = Rig::with(|options| options.networks.subnet_id = Some(uuid(1)));
    rig.cloud.world.lock().networks.clear();
    let done = rig.settle(&wanted("web")).await;
    assert_eq!(done.notes[0].reason, "LoadBalancerForcedInternal");
    assert_eq!(json!(addresses(&done)), json!([rig.rows("balancers")[0]["vip_address"]]));
    // The same by an empty annotation, which does not mean: find one.
    let rig = Rig::new();
    let done = rig.settle(&annotated(&wanted("web"), "floating-network-id", "")).await;
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 0);
    let [note] = &done.notes[..] else { panic!("{:?}", done.notes) };
    assert!(note.reason == "LoadBalancerForcedInternal" && note.warning, "{note:?}");
    assert!(note.message.contains("floating-network-id is empty"), "{note:?}");
    assert_eq!(json!(addresses(&done)), json!([rig.rows("balancers")[0]["vip_address"]]));
}

#[tokio::test]
async fn a_class_has_networks_of_its_own() {
    let rig = Rig::with(|options| {
        options.networks.subnet_id = Some(uuid(1));
        let class = crate::config::LoadBalancerClass {
            floating_network_id: Some(uuid(50)),
            subnet_id: Some(uuid(9)),
            ..Default::default()
        };
        options.classes.insert("dmz".to_owned(), class);
    });
    rig.cloud.world.lock().subnets.push(ccm_openstack_client::scripted::subnet(9, "10.9.0.0/24"));
    let web = annotated(&wanted("web"), "class", "dmz");
    rig.settle(&web).await;
    assert_eq!(rig.rows("balancers")[0]["vip_subnet_id"], uuid(9));
    // An external one is where its class says, an internal one where its annotation does.
    let api = annotated(&annotated(&wanted("api"), "class", "dmz"), "subnet-id", &uuid(1));
    rig.settle(&api).await;
    assert_eq!(rig.rows("balancers")[1]["vip_subnet_id"], uuid(9));
    let db = annotated(&annotated(&wanted("db"), "class", "dmz"), "subnet-id", &uuid(1));
    rig.settle(&with(&db, INTERNAL, "true")).await;
    assert_eq!(rig.rows("balancers")[2]["vip_subnet_id"], uuid(1));
}

#[tokio::test]
async fn internal_ones_have_the_address_that_is_asked_for() {
    for by_option in [true, false] {
        let rig = Rig::with(|options| {
            options.networks.subnet_id = Some(uuid(1));
            options.networks.floating_network_id = Some(uuid(50));
            options.load_balancer.internal = by_option;
        });
        // The option cannot be undone by the annotation.
        let web = with(&wanted("web"), INTERNAL, if by_option { "false" } else { "true" });
        let web = changed(&web, |it| it.address = "10.8.0.55".parse().ok());
        assert_eq!(addresses(&rig.settle(&web).await), ["10.8.0.55"]);
        assert!(rig.cloud.world.lock().floating.ips.is_empty());
    }
}

#[tokio::test]
async fn the_status_shows_what_clients_use() {
    let rig = Rig::with(|options| {
        options.networks.subnet_id = Some(uuid(1));
        options.load_balancer.internal = true;
        options.load_balancer.enable_ingress_hostname = true;
    });
    let named = annotated(&wanted("web"), "hostname", "web.example.com");
    assert_eq!(addresses(&rig.settle(&named).await), ["web.example.com"]);
    let done = rig.settle(&annotated(&wanted("web"), "proxy-protocol", "v1")).await;
    let vip = rig.rows("balancers")[0]["vip_address"].as_str().unwrap().to_owned();
    assert_eq!(addresses(&done), [format!("{vip}.nip.io")]);
    let rig = Rig::new();
    let done = rig.settle(&annotated(&wanted("web"), "proxy-protocol", "v1")).await;
    assert_eq!(done.ingress[0].ip_mode, IpMode::Proxy);
}

#[tokio::test]
async fn only_selected_nodes_are_members() {
    let rig = Rig::with(|options| {
        options.networks.subnet_id = Some(uuid(1));
        options.networks.floating_network_id = Some(uuid(50));
        options.load_balancer.node_selector = Some("number=1".to_owned());
    });
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    assert_eq!(rig.nodes(), [1]);
    rig.members_with(&web, &id, members(&[1, 2, 3, 4], &[])).await;
    assert_eq!(rig.nodes(), [1], "what joins is selected as well");
    // The annotation replaces the option; the empty one selects all.
    rig.settle(&annotated(&web, "node-selector", "number=3")).await;
    assert_eq!(rig.nodes(), [3]);
    rig.settle(&annotated(&web, "node-selector", "number")).await;
    assert_eq!(rig.nodes(), [1, 2, 3]);
    let all = annotated(&web, "node-selector", "");
    rig.members_with(&all, &id, members(&[4], &[])).await;
    assert_eq!(rig.nodes(), [1, 2, 3, 4]);
    // No member fits: the last one stays.
    rig.settle(&annotated(&web, "node-selector", "number=99")).await;
    assert_eq!(rig.nodes().len(), 1);
}

#[tokio::test]
async fn affinity_follows_with_its_time_where_octavia_has_one() {
    let rig = Rig::new();
    let both = changed(&wanted("web"), |it| {
        it.ports = vec![
            super::port(53, ccm_cloud::Protocol::Tcp),
            super::port(53, ccm_cloud::Protocol::Udp),
        ];
    });
    rig.settle(&both).await;
    let shown = || -> Vec<Value> {
        rig.rows("pools").iter().map(|row| row["session_persistence"].clone()).collect()
    };
    assert_eq!(shown(), [Value::Null, Value::Null]);
    let sticky = changed(&both, |it| it.affinity = Some(std::time::Duration::from_secs(99)));
    rig.settle(&sticky).await;
    assert!(shown().iter().all(|it| it["type"] == "SOURCE_IP"), "{:?}", shown());
    assert!(shown().iter().any(|it| it["persistence_timeout"] == 99), "{:?}", shown());
    rig.settle(&both).await;
    assert_eq!(shown(), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn clients_are_restricted_by_family() {
    let rig = Rig::new();
    let cidrs = |rig: &Rig| rig.rows("listeners")[0]["allowed_cidrs"].clone();
    let ranges = |texts: &[&str]| {
        let texts: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        changed(&wanted("web"), |it| it.source_ranges = texts)
    };
    rig.settle(&ranges(&["192.0.2.0/24", "198.51.100.0/24"])).await;
    assert_eq!(cidrs(&rig), json!(["192.0.2.0/24", "198.51.100.0/24"]));
    let done = rig.settle(&ranges(&["192.0.2.0/24", "2001:db8::/32"])).await;
    assert_eq!(cidrs(&rig), json!(["192.0.2.0/24"]));
    assert_eq!(done.notes[0].reason, "LoadBalancerSourceRangesIgnored");
    // No range of the VIP's family is left: the listener must not be open to all clients.
    let error = rig.ensure(&ranges(&["2001:db8::/32"])).await.unwrap_err();
    assert!(error.message.contains("spec.loadBalancerSourceRanges"), "{error}");
    assert_eq!(cidrs(&rig), json!(["192.0.2.0/24"]));
    rig.settle(&ranges(&[])).await;
    assert_eq!(cidrs(&rig), json!(["0.0.0.0/0"]));
}

#[tokio::test]
async fn both_families_where_octavia_has_them() {
    let plain = changed(&wanted("web"), |it| it.families = vec![IpFamily::V4, IpFamily::V6]);
    for minor in [26, 27] {
        let rig = Rig::new();
        rig.cloud.world.lock().octavia.minor = minor;
        assert_eq!(addresses(&rig.settle(&plain).await).len(), 2);
    }
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.minor = 27;
    let dual = changed(&wanted("web"), |it| {
        it.families = vec![IpFamily::V4, IpFamily::V6];
        it.source_ranges = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    });
    let done = rig.settle(&dual).await;
    let shown = addresses(&done);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0] == "172.24.0.2" && shown[1].contains(':'), "{shown:?}");
    assert_eq!(rig.rows("listeners")[0]["allowed_cidrs"], json!(["192.0.2.0/24", "2001:db8::/32"]));
    assert_eq!(done.notes, []);
    // One that has one family keeps it, and says so.
    let web = changed(&wanted("api"), |_| {});
    rig.settle(&web).await;
    let later = changed(&web, |it| it.families = vec![IpFamily::V4, IpFamily::V6]);
    let done = rig.settle(&later).await;
    assert!(done.notes[0].message.contains("spec.ipFamilies"), "{:?}", done.notes);
    // IPv6 alone needs no floating IP.
    let rig = Rig::with(|options| options.networks.subnet_id = Some(uuid(2)));
    let mut six = changed(&wanted("web"), |it| it.families = vec![IpFamily::V6]);
    let with_six = |member: &Member| {
        let mut member = member.clone();
        let number = member.node.trim_start_matches("node-0000");
        let six = format!("2001:db8::{number}");
        member.addresses.push(ccm_cloud::NodeAddress::new(ccm_cloud::AddressKind::InternalIp, six));
        member
    };
    six.members.present = six.members.present.iter().map(with_six).collect();
    let done = rig.settle(&six).await;
    assert!(addresses(&done)[0].contains(':'));
    assert!(rig.rows("members").iter().all(|row| row["address"].as_str().unwrap().contains(':')));
    assert_eq!(done.notes[0].reason, "LoadBalancerFloatingIPSkipped");
    assert!(!done.notes[0].warning);
}

/// Without a subnet of the second family, a Service gets no load balancer. An existing one stays.
#[tokio::test]
async fn both_families_are_required_or_preferred() {
    let both = |requires| {
        changed(&wanted("web"), |it| {
            (it.families, it.requires_families) = (vec![IpFamily::V4, IpFamily::V6], requires);
        })
    };
    let rig = Rig::new();
    rig.cloud.world.lock().subnets.retain(|row| row["id"] != uuid(2));
    let error = rig.ensure(&both(true)).await.unwrap_err();
    assert_eq!(error.kind, ccm_cloud::ErrorKind::Conflict, "a subnet may come: {error}");
    for part in ["spec.ipFamilyPolicy", "no IPv6 subnet", "PreferDualStack"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(rig.rows("balancers").is_empty() && rig.cloud.world.lock().floating.ips.is_empty());
    let done = rig.settle(&both(false)).await;
    assert_eq!((&*done.notes[0].reason, done.notes.len()), ("LoadBalancerSingleStack", 1));
    let again = rig.settle(&both(true)).await;
    assert_eq!((again.id, again.ingress, again.notes), (done.id, done.ingress, done.notes));
    // With such a subnet, the load balancer has both families.
    let rig = Rig::new();
    let done = rig.settle(&both(true)).await;
    assert_eq!((addresses(&done).len(), done.notes), (2, vec![]));
}

#[tokio::test]
async fn tags_of_a_user_are_added() {
    let rig = Rig::new();
    let web = annotated(&wanted("web"), "load-balancer-tags", "team=a, cost=b");
    let web = annotated(&annotated(&web, "listener-tags", "l"), "pool-tags", "p");
    for first in [wanted("web"), web.clone()] {
        rig.settle(&first).await;
        rig.settle(&web).await;
        let has = |kind: &str, tag: &str| {
            rig.rows(kind).iter().all(|row| row["tags"].as_array().unwrap().contains(&json!(tag)))
        };
        assert!(has("balancers", "team=a") && has("balancers", "cost=b"));
        assert!(has("listeners", "l") && has("pools", "p"));
        let count = rig.rows("balancers")[0]["tags"].as_array().unwrap().len();
        assert_eq!(count, 6, "{:?}", rig.rows("balancers")[0]["tags"]);
    }
}

/// The driver ovn: no source ranges, no time limits, no HTTP checks, none of SCTP members, one algorithm.
#[tokio::test]
async fn ovn_gets_what_it_takes() {
    let rig = Rig::with(|options| {
        options.networks.subnet_id = Some(uuid(1));
        options.networks.floating_network_id = Some(uuid(50));
        options.load_balancer.provider = "ovn".to_owned();
    });
    rig.cloud.world.lock().octavia.providers = vec!["ovn", "amphora"];
    let web = annotated(&wanted("web"), "enable-health-monitor", "true");
    let web = annotated(&annotated(&web, "flavor-id", &uuid(7)), "timeout-client-data", "7");
    let web = changed(&web, |it| {
        it.ports.push(super::port(99, ccm_cloud::Protocol::Sctp));
        it.traffic = Traffic::Local { health_check_port: 31_999 };
        it.source_ranges = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let done = rig.settle(&web).await;
    let mut reasons: Vec<_> = done.notes.iter().map(|note| note.reason.as_str()).collect();
    reasons.sort_unstable();
    let what = ["Flavor", "HealthMonitor", "SourceRanges"];
    assert_eq!(reasons, what.map(|what| format!("LoadBalancer{what}Ignored")));
    assert_eq!(
        (rig.rows("pools").len(), rig.rows("monitors").len()),
        (3, 2),
        "no monitor for SCTP"
    );
    assert!(rig.rows("pools").iter().all(|row| row["lb_algorithm"] == "SOURCE_IP_PORT"));
    assert!(rig.rows("monitors").iter().all(|row| row["type"] == "TCP"));
    assert!(rig.rows("members").iter().all(|row| row["monitor_port"].is_null()));
    // No endless updates.
    rig.writes();
    assert!(matches!(rig.ensure(&web).await, Ok(ccm_cloud::Progress::Done(_))));
    assert_eq!(rig.writes(), [""; 0]);
    for key in ["proxy-protocol", "x-forwarded-for"] {
        let error = rig.ensure(&annotated(&web, key, "true")).await.unwrap_err();
        assert!(error.message.contains(key) && error.message.contains("ovn"), "{error}");
    }
}

/// A pool that is not kept empties nothing of another one.
#[tokio::test]
async fn a_port_without_a_node_port_has_no_members() {
    let rig = Rig::new();
    let web = changed(&wanted("web"), |it| it.ports[1].member_port = None);
    let id = rig.settle(&web).await.id;
    assert_eq!(rig.rows("members").len(), 3);
    rig.members_with(&web, &id, members(&[4], &[])).await;
    assert_eq!(rig.rows("members").len(), 4);
    let shown = rig.shown(&id, ccm_cloud::Depth::Members).await;
    assert_eq!((shown.members.unwrap().len(), shown.digest.is_some()), (4, true));
    // It gets one.
    rig.settle(&changed(&wanted("web"), |it| it.digest.hash = 9)).await;
    assert_eq!(rig.rows("members").len(), 4 + 3);
}

/// If nothing enforces the source ranges, the load balancer is open to all with a remark, or refused.
#[tokio::test]
async fn ranges_that_have_no_effect_can_be_refused() {
    let ranges = |name: &str| {
        changed(&wanted(name), |it| it.source_ranges = vec!["192.0.2.0/24".parse().unwrap()])
    };
    for (driver, minor) in [("ovn", 26), ("amphora", 11)] {
        let strict = Rig::with(|options| {
            options.networks.subnet_id = Some(uuid(super::rig::SUBNET));
            options.load_balancer.internal = true;
            options.load_balancer.provider = driver.to_owned();
            options.load_balancer.method = "SOURCE_IP_PORT".to_owned();
            options.load_balancer.require_source_ranges = true;
        });
        {
            let mut world = strict.cloud.world.lock();
            (world.octavia.minor, world.octavia.providers) = (minor, vec!["ovn", "amphora"]);
        }
        let error = strict.ensure(&ranges("web")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        for words in ["spec.loadBalancerSourceRanges", "require-source-ranges"] {
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(strict.preview(&ranges("web")).await, Err(error));
        assert_eq!(strict.rows("balancers").len(), 0);
        // An existing load balancer stays.
        strict.settle(&wanted("api")).await;
        let done = strict.settle(&ranges("api")).await;
        assert!(done.notes.iter().any(|it| it.message.contains("has no effect")), "{done:?}");
    }
}
