//! Services: NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE.

use serde_json::{Value, json};

use super::{Column, or, text};

pub(super) const COLUMNS: &[Column] = &[
    ("Name", false),
    ("Type", false),
    ("Cluster-IP", false),
    ("External-IP", false),
    ("Port(s)", false),
    ("Age", false),
    ("Selector", true),
];

pub(super) fn cells(service: &Value, age: String) -> Value {
    let spec = &service["spec"];
    let ports: Vec<_> = items(&spec["ports"]).map(port).collect();
    let selector: Vec<_> = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    json!([
        text(&service["metadata"]["name"]),
        text(&spec["type"]),
        or(text(&spec["clusterIP"]), "<none>"),
        external(service),
        or(&ports.join(","), "<none>"),
        age,
        or(&selector.join(","), "<none>"),
    ])
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn port(port: &Value) -> String {
    let (number, protocol) = (&port["port"], text(&port["protocol"]));
    match port["nodePort"].as_i64() {
        Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external(service: &Value) -> String {
    let spec = &service["spec"];
    let fixed = items(&spec["externalIPs"]).map(text);
    match text(&spec["type"]) {
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        "LoadBalancer" => {
            let ingress = items(&service["status"]["loadBalancer"]["ingress"])
                .map(|point| or(text(&point["ip"]), text(&point["hostname"])));
            or(&ingress.chain(fixed).collect::<Vec<_>>().join(","), "<pending>").to_owned()
        }
        _ => or(&fixed.collect::<Vec<_>>().join(","), "<none>").to_owned(),
    }
}
