use super::{super::identity::Clock, *};

fn created(plural: &str, mut value: Value) -> Value {
    let identity = Identity::new(Clock::Wall, 1, true);
    let resource = resources::by_plural(plural).unwrap();
    prepare_create(resource, &mut value, &identity, &Allocator::default());
    value
}

#[test]
fn base64_both_ways() {
    for (plain, coded) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
    {
        assert_eq!(base64(plain.as_bytes()), coded);
        assert_eq!(unbase64(coded).as_deref(), Some(plain.as_bytes()));
    }
    assert_eq!(unbase64("a b"), None);
}

#[tokio::test]
async fn services_get_what_the_real_server_gives() {
    let service = created(
        "services",
        json!({ "metadata": { "name": "s" }, "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "ports": [{ "port": 80, "targetPort": 0 }] }, "status": { "loadBalancer": { "ingress": [{ "ip": "1" }] } } }),
    );
    assert_eq!(
        service["spec"],
        json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "sessionAffinity": "None",
            "ports": [{ "port": 80, "targetPort": 80, "protocol": "TCP", "nodePort": 30001 }],
            "clusterIP": "10.96.0.16", "clusterIPs": ["10.96.0.16"], "healthCheckNodePort": 30000,
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true,
        })
    );
    assert_eq!(service["status"], json!({ "loadBalancer": {} }));
    let external =
        created("services", json!({ "spec": { "type": "ExternalName", "externalName": "a.b" } }));
    assert_eq!(
        external["spec"],
        json!({ "type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None" })
    );
}

#[tokio::test]
async fn a_service_has_an_address_of_each_family_that_its_policy_says() {
    let resource = resources::by_plural("services").unwrap();
    let allocator = Allocator::default();
    let port = json!([{ "port": 80 }]);
    let seen = |service: &Value| {
        let spec = &service["spec"];
        assert_eq!(spec["clusterIP"], spec["clusterIPs"][0]);
        json!([spec["ipFamilies"], spec["clusterIPs"]])
    };
    for (spec, expected) in [
        (json!({ "ports": port }), json!([["IPv4"], ["10.96.0.16"]])),
        (json!({ "ports": port, "ipFamilies": ["IPv6"] }), json!([["IPv6"], ["fd00:10:96::10"]])),
        (
            json!({ "ports": port, "ipFamilyPolicy": "PreferDualStack" }),
            json!([["IPv4", "IPv6"], ["10.96.0.16", "fd00:10:96::11"]]),
        ),
        (
            json!({ "ports": port, "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"] }),
            json!([["IPv6", "IPv4"], ["fd00:10:96::10", "10.96.0.17"]]),
        ),
        (
            json!({ "ports": port, "clusterIP": "None", "ipFamilyPolicy": "PreferDualStack" }),
            json!([["IPv4", "IPv6"], ["None"]]),
        ),
    ] {
        assert_eq!(seen(&created("services", json!({ "spec": spec }))), expected, "{spec}");
    }
    let old = created("services", json!({ "spec": { "ports": port } }));
    let mut both = old.clone();
    both["spec"]["ipFamilyPolicy"] = json!("PreferDualStack");
    prepare_update(resource, "", &old, &mut both, &allocator);
    assert_eq!(seen(&both), json!([["IPv4", "IPv6"], ["10.96.0.16", "fd00:10:96::10"]]));
    let mut one = both.clone();
    one["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    prepare_update(resource, "", &both, &mut one, &allocator);
    assert_eq!(seen(&one), json!([["IPv4"], ["10.96.0.16"]]));
}

#[tokio::test]
async fn a_change_of_type_gives_back_and_a_put_keeps() {
    let resource = resources::by_plural("services").unwrap();
    let allocator = Allocator::default();
    let old = created(
        "services",
        json!({ "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } }),
    );
    let mut same =
        json!({ "metadata": {}, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    prepare_update(resource, "", &old, &mut same, &allocator);
    assert_eq!(same["spec"], old["spec"]);
    let mut plain = same.clone();
    plain["spec"]["type"] = json!("ClusterIP");
    prepare_update(resource, "", &old, &mut plain, &allocator);
    assert_eq!(
        plain["spec"]["ports"],
        json!([{ "port": 80, "targetPort": 80, "protocol": "TCP" }])
    );
    assert_eq!(plain["spec"].get("externalTrafficPolicy"), None);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let resource = resources::by_plural("nodes").unwrap();
    let old = json!({ "metadata": { "uid": "1", "resourceVersion": "5" }, "spec": { "providerID": "a" },
        "status": { "phase": "Running" } });
    let new = json!({ "metadata": { "labels": { "l": "1" } }, "spec": { "providerID": "b" },
        "status": { "phase": "Pending" } });
    let allocator = Allocator::default();
    let mut main = new.clone();
    prepare_update(resource, "", &old, &mut main, &allocator);
    assert_eq!(
        (&main["spec"]["providerID"], &main["status"]["phase"]),
        (&json!("b"), &json!("Running"))
    );
    let mut status = new;
    prepare_update(resource, "status", &old, &mut status, &allocator);
    assert_eq!(
        (&status["spec"]["providerID"], &status["status"]["phase"]),
        (&json!("a"), &json!("Pending"))
    );
    assert_eq!(
        status["metadata"],
        json!({ "labels": { "l": "1" }, "uid": "1", "resourceVersion": "5" })
    );
}

#[tokio::test]
async fn nodes_namespaces_secrets() {
    let node = created(
        "nodes",
        json!({ "metadata": { "name": "n" }, "spec": { "podCIDR": "10.0.0.0/24" } }),
    );
    assert_eq!(node["spec"]["taints"], json!([{ "key": NOT_READY, "effect": "NoSchedule" }]));
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    let namespace = created("namespaces", json!({ "metadata": { "name": "x" } }));
    assert_eq!(namespace["metadata"]["labels"], json!({ "kubernetes.io/metadata.name": "x" }));
    assert_eq!(namespace["status"], json!({ "phase": "Active" }));
    let secret =
        created("secrets", json!({ "metadata": { "name": "x" }, "stringData": { "a": "b" } }));
    assert_eq!((&secret["data"]["a"], &secret["type"]), (&json!("Yg=="), &json!("Opaque")));
}
