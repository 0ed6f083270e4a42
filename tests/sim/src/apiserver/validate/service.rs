//! Services, as far as the rules concern a load balancer controller.

use serde_json::Value;

use super::{super::status::Cause, names};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
const IP_MODES: [&str; 2] = ["Proxy", "VIP"];

pub(super) fn check(service: &Value, causes: &mut Vec<Cause>) {
    let spec = &service["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let headless = spec["clusterIP"] == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        check_port(port, index, ports, causes);
    }
    if !TYPES.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &spec["type"], &TYPES));
    }
    if kind != "LoadBalancer" && !spec["loadBalancerClass"].is_null() {
        causes.push(Cause::forbidden(
            "spec.loadBalancerClass",
            "may only be used when `type` is 'LoadBalancer'",
        ));
    }
    let class = spec["loadBalancerClass"].as_str().filter(|_| kind == "LoadBalancer");
    for problem in class.into_iter().flat_map(names::qualified) {
        causes.push(Cause::invalid("spec.loadBalancerClass", &spec["loadBalancerClass"], &problem));
    }
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    if kind != "LoadBalancer" && !ingress.is_null() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("status.loadBalancer.ingress", detail));
        return;
    }
    for (index, point) in ingress.as_array().into_iter().flatten().enumerate() {
        check_ingress(point, &format!("status.loadBalancer.ingress[{index}]"), causes);
    }
}

fn check_port(port: &Value, index: usize, ports: &[Value], causes: &mut Vec<Cause>) {
    let field = format!("spec.ports[{index}]");
    if ports.len() > 1 && port["name"].is_null() {
        causes.push(Cause::required(format!("{field}.name"), ""));
    }
    for number in ["port", "targetPort"] {
        if port[number].as_i64().is_some_and(|number| !(1..=65535).contains(&number)) {
            let detail = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(format!("{field}.{number}"), &port[number], detail));
        }
    }
    let node_port = &port["nodePort"];
    if node_port.as_i64().is_some_and(|number| number != 0 && !NODE_PORTS.contains(&number)) {
        let detail =
            "provided port is not in the valid range. The range of valid ports is 30000-32767";
        causes.push(Cause::invalid(format!("{field}.nodePort"), node_port, detail));
    }
    let protocol = &port["protocol"];
    if !protocol.as_str().is_some_and(|protocol| PROTOCOLS.contains(&protocol)) {
        causes.push(Cause::unsupported(format!("{field}.protocol"), protocol, &PROTOCOLS));
    }
    let earlier = ports.iter().take(index);
    if !port["name"].is_null() && earlier.clone().any(|other| other["name"] == port["name"]) {
        causes.push(Cause::duplicate(format!("{field}.name"), &port["name"].to_string()));
    } else if earlier
        .clone()
        .any(|other| other["port"] == port["port"] && other["protocol"] == port["protocol"])
    {
        let shown = format!(
            "{{\"Name\":\"\",\"Protocol\":{protocol},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
            port["port"]
        );
        causes.push(Cause::duplicate(field, &shown));
    }
}

fn check_ingress(point: &Value, field: &str, causes: &mut Vec<Cause>) {
    let (ip, mode) = (&point["ip"], &point["ipMode"]);
    if ip.as_str().is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_err()) {
        causes.push(Cause::invalid(
            format!("{field}.ip"),
            ip,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
    }
    match (ip.is_null(), mode.as_str()) {
        (false, None) => causes
            .push(Cause::required(format!("{field}.ipMode"), "must be specified when `ip` is set")),
        (true, Some(_)) => {
            causes.push(Cause::forbidden(
                format!("{field}.ipMode"),
                "may not be specified when `ip` is not set",
            ));
        }
        (false, Some(known)) if !IP_MODES.contains(&known) => {
            causes.push(Cause::unsupported(format!("{field}.ipMode"), mode, &IP_MODES));
        }
        _ => {}
    }
}

/// Checks the cluster IP, which stays as long as the type needs one; the class never changes.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (&old["spec"], &new["spec"]);
    let has_ip = |spec: &Value| spec["type"] != "ExternalName";
    if has_ip(old)
        && has_ip(new)
        && !old["clusterIP"].is_null()
        && old["clusterIP"] != new["clusterIP"]
    {
        causes.push(Cause::invalid(
            "spec.clusterIPs[0]",
            &new["clusterIPs"],
            "may not change once set",
        ));
    }
    let balanced = |spec: &Value| spec["type"] == "LoadBalancer";
    if balanced(old) && balanced(new) && old["loadBalancerClass"] != new["loadBalancerClass"] {
        causes.push(Cause::invalid(
            "spec.loadBalancerClass",
            &new["loadBalancerClass"],
            "may not change once set",
        ));
    }
}
