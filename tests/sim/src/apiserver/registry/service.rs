//! Services: defaults, cluster IPs and node ports.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// Allocates cluster IPs and node ports, each once, in order.
#[derive(Debug, Default)]
pub(in super::super) struct Allocator {
    addresses: AtomicU32,
    ports: AtomicU32,
}

const NODE_PORTS: u32 = 2768;

impl Allocator {
    /// Returns an address from 10.96.0.0/16 or fd00:10:96::/112; the first ones are reserved for
    /// the cluster.
    fn address(&self, family: &Value) -> String {
        let next = self.addresses.fetch_add(1, Ordering::Relaxed) % 65_000 + 16;
        match family == "IPv6" {
            true => format!("fd00:10:96::{next:x}"),
            false => format!("10.96.{}.{}", next / 256, next % 256),
        }
    }

    /// Returns a port from 30000-32767.
    fn port(&self) -> u32 {
        30_000 + self.ports.fetch_add(1, Ordering::Relaxed) % NODE_PORTS
    }
}

fn set_default(object: &mut Value, name: &str, value: impl Into<Value>) {
    if object[name].is_null() {
        object[name] = value.into();
    }
}

fn remove(object: &mut Value, name: &str) {
    object.as_object_mut().and_then(|map| map.remove(name));
}

/// Sets the defaults of a Service and removes fields that its type may not have.
pub(super) fn defaults(service: &mut Value, allocator: &Allocator) {
    let spec = &mut service["spec"];
    set_default(spec, "type", "ClusterIP");
    set_default(spec, "sessionAffinity", "None");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        set_default(port, "protocol", "TCP");
        if port["targetPort"].is_null() || port["targetPort"] == 0 {
            port["targetPort"] = port["port"].clone();
        }
    }
    if kind == "ExternalName" {
        for name in
            ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
        {
            remove(spec, name);
        }
    } else {
        cluster_ip(spec, allocator);
    }
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    if external {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    } else {
        remove(spec, "externalTrafficPolicy");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    } else {
        remove(spec, "allocateLoadBalancerNodePorts");
    }
    let checked = kind == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if checked {
        if spec["healthCheckNodePort"].is_null() {
            spec["healthCheckNodePort"] = json!(allocator.port());
        }
    } else {
        remove(spec, "healthCheckNodePort");
    }
    let wants_ports = external && spec["allocateLoadBalancerNodePorts"] != false;
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if !external {
            remove(port, "nodePort");
        } else if wants_ports && port["nodePort"].is_null() {
            port["nodePort"] = json!(allocator.port());
        }
    }
    drop_nulls(spec);
    if kind == "LoadBalancer"
        && let Some(Value::Array(points)) = service.pointer_mut("/status/loadBalancer/ingress")
    {
        for point in points {
            if point["ip"].as_str().is_some_and(|ip| !ip.is_empty()) {
                set_default(point, "ipMode", "VIP");
            }
            drop_nulls(point);
        }
    }
}

fn cluster_ip(spec: &mut Value, allocator: &Allocator) {
    if spec["clusterIP"].is_null() {
        spec["clusterIP"] = spec["clusterIPs"].get(0).cloned().unwrap_or_default();
    }
    set_default(spec, "internalTrafficPolicy", "Cluster");
    // A headless Service without selector may have endpoints of both families.
    let is_headless = spec["clusterIP"] == "None";
    if spec["ipFamilyPolicy"].is_null() {
        let both = is_headless && spec["selector"].is_null();
        spec["ipFamilyPolicy"] = json!(if both { "RequireDualStack" } else { "SingleStack" });
    }
    let families = families(spec);
    let ips = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    let own =
        if ips.first() == Some(&spec["clusterIP"]) { ips } else { vec![spec["clusterIP"].take()] };
    let own = own.into_iter().filter(|ip| !ip.is_null()).map(Some).chain(std::iter::repeat(None));
    let count = if is_headless { 1 } else { families.len() };
    let ips = families.iter().take(count).zip(own);
    let ips: Vec<Value> =
        ips.map(|(family, ip)| ip.unwrap_or_else(|| json!(allocator.address(family)))).collect();
    spec["clusterIP"] = ips.first().cloned().unwrap_or_default();
    spec["clusterIPs"] = ips.into();
    spec["ipFamilies"] = families.into();
}

/// Returns the families of a Service: one, or both with the first one first, as its policy says.
fn families(spec: &Value) -> Vec<Value> {
    let mut families = spec["ipFamilies"].as_array().cloned().unwrap_or_default();
    if families.is_empty() {
        families.push(json!("IPv4"));
    }
    if spec["ipFamilyPolicy"] == "SingleStack" {
        families.truncate(1);
    } else if let [first] = families.as_slice() {
        let other = json!(if first == "IPv4" { "IPv6" } else { "IPv4" });
        families.push(other);
    }
    families
}

/// Removes the nulls that indexing creates for missing fields.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Keeps allocated values that an update omits. A change of the type removes addresses and class. The
/// validation refuses any other change of the class.
pub(super) fn carry_over(old: &Value, new: &mut Value) {
    let old = &old["spec"];
    if new["spec"]["type"] != "LoadBalancer" {
        new["status"]["loadBalancer"] = json!({});
        let same_class = old["loadBalancerClass"] == new["spec"]["loadBalancerClass"];
        if old["type"] == "LoadBalancer" && same_class {
            remove(&mut new["spec"], "loadBalancerClass");
        }
    }
    let spec = &mut new["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
        if spec[name].is_null() && !old[name].is_null() {
            spec[name] = old[name].clone();
        }
    }
    let old_ports = old["ports"].as_array().map_or(&[][..], Vec::as_slice);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if !port["nodePort"].is_null() {
            continue;
        }
        let same = |other: &&Value| {
            other["port"] == port["port"] && other["protocol"] == protocol_of(port)
        };
        if let Some(node_port) = old_ports.iter().find(same).map(|other| other["nodePort"].clone())
        {
            port["nodePort"] = node_port;
        }
    }
}

fn protocol_of(port: &Value) -> Value {
    match &port["protocol"] {
        Value::Null => json!("TCP"),
        given => given.clone(),
    }
}
