use super::*;

fn row_of(plural: &str, value: Value) -> Vec<String> {
    let resource = resources::by_plural(plural).unwrap();
    let object = Object::new(resource, value, 1);
    let options =
        Options { now: "2026-01-02T00:00:00Z".parse().unwrap(), include: Include::Nothing };
    let table = of_one(resource, &object, &options);
    assert_eq!(
        table["columnDefinitions"].as_array().unwrap().len(),
        table["rows"][0]["cells"].as_array().unwrap().len()
    );
    table["rows"][0]["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
        .collect()
}

#[test]
fn ages_read_like_kubectl() {
    for (seconds, expect) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (301, "5m1s"),
        (601, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (9 * 3600 + 61, "9h"),
        (50 * 3600, "2d2h"),
        (9 * 86_400, "9d"),
        (800 * 86_400, "2y70d"),
        (9 * 365 * 86_400, "9y"),
    ] {
        assert_eq!(human(seconds), expect, "{seconds}");
    }
}

#[test]
fn nodes() {
    let node = json!({
        "metadata": { "name": "n", "creationTimestamp": "2026-01-01T23:59:00Z",
            "labels": { "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "" } },
        "spec": { "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.3", "osImage": "" },
        },
    });
    assert_eq!(
        row_of("nodes", node),
        [
            "n",
            "Ready,SchedulingDisabled",
            "control-plane,worker",
            "60s",
            "v1.36.3",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]
    );
    let row = row_of("nodes", json!({ "metadata": { "name": "n" }, "status": {} }));
    assert_eq!(row[1..4], ["Unknown", "<none>", "<unknown>"]);
}

#[test]
fn events() {
    let event = json!({
        "metadata": { "name": "e", "namespace": "default" }, "type": "Normal", "reason": "Synced", "message": "m\n",
        "involvedObject": { "kind": "Node", "name": "n" }, "source": { "component": "c", "host": "h" },
        "firstTimestamp": "2026-01-01T23:00:00Z", "lastTimestamp": "2026-01-01T23:59:50Z", "count": 3,
    });
    assert_eq!(
        row_of("events", event),
        ["10s", "Normal", "Synced", "node/n", "", "c, h", "m", "60m", "3", "e"]
    );
    let event = json!({ "metadata": { "name": "e" }, "eventTime": "2026-01-01T23:59:00.000000Z" });
    assert_eq!(row_of("events", event)[0], "60s");
}

#[test]
fn services() {
    let service = |spec: Value, status: Value| json!({ "metadata": { "name": "s" }, "spec": spec, "status": status });
    let balanced = json!({ "type": "LoadBalancer", "clusterIP": "10.96.0.1",
        "ports": [{ "port": 80, "nodePort": 30001, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }] });
    assert_eq!(
        row_of("services", service(balanced.clone(), json!({})))[1..5],
        ["LoadBalancer", "10.96.0.1", "<pending>", "80:30001/TCP,53/UDP"]
    );
    let ingress =
        json!({ "loadBalancer": { "ingress": [{ "ip": "1.1.1.1" }, { "hostname": "h" }] } });
    assert_eq!(row_of("services", service(balanced, ingress))[3], "1.1.1.1,h");
    let named = service(
        json!({ "type": "ExternalName", "externalName": "a.b", "selector": { "a": "b" } }),
        json!({}),
    );
    assert_eq!(
        row_of("services", named),
        ["s", "ExternalName", "<none>", "a.b", "<none>", "<unknown>", "a=b"]
    );
}

#[test]
fn the_rest() {
    assert_eq!(
        row_of("leases", json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "h" } })),
        ["l", "h", "<unknown>"]
    );
    assert_eq!(
        row_of(
            "configmaps",
            json!({ "metadata": { "name": "c" }, "data": { "a": "" }, "binaryData": { "b": "" } })
        ),
        ["c", "2", "<unknown>"]
    );
}
