//! Nodes: NAME STATUS ROLES AGE VERSION, and with `-o wide` addresses and software.

use serde_json::{Value, json};

use super::{Column, or, text};

pub(super) const COLUMNS: &[Column] = &[
    ("Name", false),
    ("Status", false),
    ("Roles", false),
    ("Age", false),
    ("Version", false),
    ("Internal-IP", true),
    ("External-IP", true),
    ("OS-Image", true),
    ("Kernel-Version", true),
    ("Container-Runtime", true),
];

pub(super) fn cells(node: &Value, age: String) -> Value {
    let info = &node["status"]["nodeInfo"];
    let known = |field: &str| or(text(&info[field]), "<unknown>").to_owned();
    json!([
        node["metadata"]["name"].as_str().unwrap_or_default(),
        status(node),
        roles(&node["metadata"]["labels"]),
        age,
        text(&info["kubeletVersion"]),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        known("osImage"),
        kernel(info),
        known("containerRuntimeVersion"),
    ])
}

fn status(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

/// Returns the kernel's version with the architecture, if both are known.
fn kernel(info: &Value) -> String {
    match (text(&info["kernelVersion"]), text(&info["architecture"])) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    }
}

fn roles(labels: &Value) -> String {
    let mut roles: Vec<&str> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), "<none>").to_owned()
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let addresses = node["status"]["addresses"].as_array();
    let found = addresses.into_iter().flatten().find(|address| address["type"] == kind);
    found.map_or("<none>", |address| text(&address["address"]))
}
