//! Parsing of Services.

use ccm_objects::{LARGEST_SERVICE, TooLarge};
use serde_json::{Value, json};

use super::*;
use crate::wire::Received;

fn read(object: &Value) -> Service {
    read_by(None, object)
}

fn read_by(reading: Option<ServiceReading>, object: &Value) -> Service {
    let received: Received<Service> = serde_json::from_str(&object.to_string()).unwrap();
    received.into_object(&Rule { number: 7, kept: reading }).unwrap()
}

/// Returns a program that serves one class, whose provider wants the whole Service.
fn reading() -> ServiceReading {
    ServiceReading {
        classes: vec!["example.com/lb".to_owned()],
        classless: false,
        annotations: ["quartet.dev/", "example.com/"].map(str::to_owned).into(),
        json: true,
    }
}

/// Creates a Service that asks for a load balancer, and shows nothing of any controller.
fn new(class: &str) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"},
            "annotations": {"example.com/a": "1", "other.dev/b": "2"},
        },
        "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    })
}

fn whole() -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "42",
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-03T00:00:00Z",
            "finalizers": ["other.dev/x", "service.kubernetes.io/load-balancer-cleanup"],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/a": "",
            },
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "clusterIP": "10.1.2.3",
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080, "appProtocol": "http"},
                {"port": 53, "protocol": "UDP", "nodePort": 0},
                {"port": 443},
                {"name": "no port"},
            ],
            "allocateLoadBalancerNodePorts": false, "loadBalancerIP": "192.0.2.1",
            "loadBalancerSourceRanges": ["10.0.0.0/8", 5], "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
        },
        "status": {
            "loadBalancer": {"ingress": [
                {"ip": "192.0.2.1", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP", "error": "QuotaExceeded"}]},
                {"hostname": "lb.example.com"},
            ]},
            "conditions": [
                {"type": "LoadBalancerServing", "status": "True", "reason": "Ready", "message": "m",
                 "lastTransitionTime": "2026-01-02T03:04:06Z"},
                {"status": "True"},
            ],
        },
    })
}

#[test]
fn what_matters_for_the_load_balancer_is_kept() {
    let service = read(&whole());
    assert_eq!((service.names(), &*service.uid), (("shop", "web"), "u-1"));
    assert!(service.deleting && service.has_finalizer && service.is_load_balancer);
    assert_eq!(service.annotation("example.com/a"), Some(""));
    assert_eq!(service.condition("LoadBalancerServing").map(|one| &*one.reason), Some("Ready"));
    let details = service.details.as_deref().unwrap();
    assert_eq!(details.annotations.len(), 1, "what kubectl keeps is left out");
    let ports: Vec<_> = details
        .ports
        .iter()
        .map(|port| (&*port.name, &*port.protocol, port.port, port.node_port))
        .collect();
    let expect = [("http", "TCP", 80, Some(30080)), ("", "UDP", 53, None), ("", "TCP", 443, None)];
    assert_eq!(ports, expect);
    assert_eq!(details.class.as_deref(), Some("example.com/lb"));
    assert!(!details.allocates_node_ports && details.local_traffic);
    assert_eq!(details.load_balancer_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(details.source_ranges, ["10.0.0.0/8".into()]);
    assert_eq!(
        (details.health_check_node_port, details.client_ip_affinity),
        (Some(31000), Some(60))
    );
    assert_eq!(details.ip_families, ["IPv4".into(), "IPv6".into()]);
    assert_eq!(details.ip_family_policy.as_deref(), Some("PreferDualStack"));
    // The status is compared with what the API server stores, so it is kept whole.
    assert_eq!(json!(details.ingress), whole()["status"]["loadBalancer"]["ingress"]);
    assert_eq!(details.conditions.len(), 1);
}

#[test]
fn other_services_keep_almost_nothing() {
    let mut object = whole();
    object["spec"]["type"] = json!("ClusterIP");
    object["metadata"]["finalizers"] = json!(["other.dev/x"]);
    let service = read(&object);
    assert!(!service.concerns_load_balancers() && service.details.is_none());
    // With the finalizer, a load balancer may exist that has to be deleted.
    object["metadata"]["finalizers"] = json!([service_keys::CLEANUP]);
    let service = read(&object);
    assert!(!service.is_load_balancer && service.details.is_some());
}

/// One update has removed type and finalizer.
#[test]
fn what_service_ccm_wrote_is_seen_on_any_service() {
    let service = |annotation: &str, condition: &str| {
        read(&json!({"kind": "Service", "apiVersion": "v1",
            "metadata": {"name": "web", "namespace": "shop", "annotations": {annotation: "lb-1"}},
            "spec": {"type": "ClusterIP", "ports": [{"port": 80}]},
            "status": {"conditions": [{"type": condition, "status": "True"}, {"status": 7}]}}))
    };
    for (annotation, condition, is_seen) in [
        ("quartet.dev/load-balancer-id", "Other", true),
        ("other.dev/id", "LoadBalancerProvisioning", true),
        ("other.dev/id", "Other", false),
    ] {
        let service = service(annotation, condition);
        assert_eq!(service.details.is_some(), is_seen, "{annotation} {condition}");
        assert!(!service.concerns_load_balancers(), "it has no load balancer for that");
    }
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let metadata = json!({"name": "web", "namespace": "shop"});
    let service = read(&json!({"metadata": metadata, "spec": {"type": "LoadBalancer"}}));
    let expect = ServiceDetails { allocates_node_ports: true, ..ServiceDetails::default() };
    assert_eq!(service.details.as_deref(), Some(&expect));
    let spec = json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"});
    let service = read(&json!({"metadata": metadata, "spec": spec}));
    assert_eq!(service.details.unwrap().client_ip_affinity, Some(DEFAULT_AFFINITY));
}

/// Providers that want the whole Service get its description, and nothing that is large.
#[test]
fn the_whole_service_has_metadata_spec_and_addresses() {
    let service = read(&whole());
    let json: Value = serde_json::from_str(service.json.as_deref().expect("JSON")).unwrap();
    let mut expect = whole();
    expect["status"].as_object_mut().unwrap().retain(|key, _| key == "loadBalancer");
    let metadata = expect["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.insert("annotations".to_owned(), json!({"example.com/a": ""}));
    assert_eq!(json, expect);
}

/// Upstream's controller compares some of these fields, but load balancers do not have them.
#[test]
fn what_configures_no_load_balancer_is_no_change() {
    let own = || ServiceReading { json: false, ..reading() };
    let (read_whole, read) =
        (|object: &Value| read(object), |object: &Value| read_by(Some(own()), object));
    let before = read(&whole());
    let mut object = whole();
    object["spec"]["ports"][0]["targetPort"] = json!(8080);
    object["spec"]["externalIPs"] = json!(["192.0.2.7"]);
    object["spec"]["selector"] = json!({"app": "web"});
    object["metadata"]["resourceVersion"] = json!("43");
    assert_eq!(read(&object), before);
    assert_ne!(read_whole(&object), read_whole(&whole()), "a provider that gets all of it may act");
    object["metadata"]["finalizers"] = json!(null);
    assert!(!read(&object).has_finalizer);
    assert_ne!(read(&object), before);
}

#[test]
fn a_service_that_is_not_served_costs_its_name_and_class() {
    let served = read_by(Some(reading()), &new("example.com/lb"));
    let details = served.details.as_deref().unwrap();
    assert_eq!((details.ports.len(), details.ingress.len(), details.labels.len()), (1, 1, 1));
    let other = read_by(Some(reading()), &new("other.dev/lb"));
    let only_class =
        ServiceDetails { class: Some("other.dev/lb".into()), ..ServiceDetails::default() };
    assert_eq!((other.details.as_deref(), &other.json), (Some(&only_class), &None));
    assert!(other.is_load_balancer && other.rule == 7);
    // A load balancer may exist that has to be deleted or kept.
    for (key, value) in [
        ("finalizers", json!([service_keys::CLEANUP])),
        ("annotations", json!({service_keys::LOAD_BALANCER_ID: "lb-1"})),
    ] {
        let mut marked = new("other.dev/lb");
        marked["metadata"][key] = value;
        let marked = read_by(Some(reading()), &marked);
        assert_eq!(marked.details.map(|details| details.ports.len()), Some(1), "{key}");
    }
}

#[test]
fn annotations_that_nobody_reads_are_not_kept() {
    let service = read_by(Some(reading()), &new("example.com/lb"));
    let json: Value = serde_json::from_str(service.json.as_deref().expect("JSON")).unwrap();
    assert_eq!(
        json["metadata"]["annotations"],
        new("")["metadata"]["annotations"],
        "of the whole, all"
    );
    assert_eq!(json["metadata"]["labels"], json!({"app": "web"}));
    let reading = ServiceReading { json: false, ..reading() };
    let service = read_by(Some(reading), &new("example.com/lb"));
    assert_eq!(service.json, None);
    let details = service.details.unwrap();
    assert_eq!(details.annotations.keys().map(|key| &**key).collect::<Vec<_>>(), ["example.com/a"]);
}

#[test]
fn what_is_too_large_is_left_out_and_named() {
    let filled_for = |json: bool, place: &str, value: Value| {
        let mut service = new("example.com/lb");
        *service.pointer_mut(place).unwrap() = value;
        read_by(Some(ServiceReading { json, ..reading() }), &service)
    };
    let filled = |place: &str, value: Value| filled_for(true, place, value);
    let large = "x".repeat(LARGEST_SERVICE);
    let service = filled("/metadata/annotations/example.com~1a", json!(large));
    let details = service.details.as_deref().unwrap();
    let expect = TooLarge {
        part: "annotation example.com/a".into(),
        bytes: LARGEST_SERVICE + "example.com/a".len() + 2,
        others: 0,
    };
    assert_eq!((&details.too_large, &service.json), (&Some(expect), &None));
    assert_eq!((details.annotations.len(), details.ports.len()), (1, 1), "the rest is kept");
    // Parts that nobody reads may have any size.
    let service = filled_for(false, "/metadata/annotations/other.dev~1b", json!(large));
    assert_eq!(service.details.unwrap().too_large, None);
    let many: serde_json::Map<String, Value> =
        (0..700).map(|number| (format!("example.com/{number}"), json!("x".repeat(200)))).collect();
    let too_large = filled("/metadata/annotations", json!(many)).details.unwrap().too_large;
    let others = too_large.map(|largest| largest.others);
    assert!(others.is_some_and(|others| (300..500).contains(&others)), "{others:?}");
    for (place, value, part) in [
        ("/metadata/labels", json!({"app": large}), "metadata.labels"),
        ("/spec/ports", json!([{"port": 80, "name": large}]), "spec"),
        ("/metadata/uid", json!(large), "metadata"),
    ] {
        let details = filled(place, value).details.unwrap();
        assert_eq!(details.too_large.as_ref().map(|one| &*one.part), Some(part));
        assert_eq!(details.class.as_deref(), Some("example.com/lb"));
    }
    // Without a reading, as in a request for a single object, everything is read.
    let mut service = new("example.com/lb");
    service["metadata"]["annotations"]["other.dev/b"] = json!(large);
    assert_eq!(read(&service).annotation("other.dev/b").map(str::len), Some(LARGEST_SERVICE));
}
