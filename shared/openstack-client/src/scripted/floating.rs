//! Plays Neutron's floating IPs and subnets.

use std::collections::BTreeSet;

use ccm_cloud::CloudError;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Request, World, octavia::PROJECT, paged, query_of, replied, segments, uuid};
use crate::api::Answer;

type Done<T> = Result<T, (u16, &'static str, String)>;

/// Neutron's floating IPs.
pub struct Floating {
    pub ips: Vec<Value>,
    /// The number of floating IPs that the project may have.
    pub quota: usize,
    /// The number of addresses that the external networks have.
    pub room: usize,
    /// True if the project may choose an address.
    pub may_choose: bool,
    /// External networks that no router connects with the networks of the ports.
    pub unreachable: BTreeSet<String>,
    made: usize,
}

impl Default for Floating {
    fn default() -> Self {
        Self {
            ips: Vec::new(),
            quota: 1_000,
            room: 1_000,
            may_choose: false,
            unreachable: BTreeSet::new(),
            made: 0,
        }
    }
}

impl Floating {
    /// Detaches the floating IPs of these ports, which are gone.
    pub fn detach(&mut self, ports: &[Value]) {
        let ips = self.ips.iter_mut();
        for ip in ips.filter(|ip| ports.iter().any(|port| port["id"] == ip["port_id"])) {
            change(ip, &json!({ "port_id": null, "fixed_ip_address": null }));
        }
    }
}

impl World {
    /// Answers a request about floating IPs or subnets; `None` for all others.
    pub fn floated(&mut self, request: &Request<'_>) -> Option<Result<Answer, CloudError>> {
        let (path, query) = query_of(request.path);
        let parts = segments(path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let body = request.body.clone().unwrap_or_default();
        let query: Vec<(&str, String)> =
            query.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let reply = match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["floatingips"]) => {
                return Some(Ok(paged(
                    "floatingips",
                    self.floating.ips.iter(),
                    &query,
                    self.limit(),
                )));
            }
            ("GET", ["subnets"]) => {
                return Some(Ok(paged("subnets", self.subnets.iter(), &query, self.limit())));
            }
            ("GET", ["subnets", id]) => {
                let subnet = self.subnets.iter().find(|subnet| subnet["id"] == **id);
                let subnet = subnet.cloned().ok_or_else(|| missing("Subnet", id));
                subnet.map(|subnet| (200, json!({ "subnet": subnet })))
            }
            ("GET", ["quotas", PROJECT, "details"]) => {
                let (limit, used) = (self.floating.quota, self.floating.ips.len());
                let details = json!({ "limit": limit, "used": used, "reserved": 0 });
                Ok((200, json!({ "quota": { "floatingip": details } })))
            }
            ("POST", ["floatingips"]) => self.create_floating_ip(&body["floatingip"]),
            (_, ["floatingips", id]) => self.one_floating_ip(request, id, &body["floatingip"]),
            ("PUT", ["floatingips", id, "tags"]) => match self.floating_ip(id) {
                Err(_) => {
                    let words = format!("Resource floatingips {id} could not be found.");
                    Err((404, "TagResourceNotFound", words))
                }
                Ok(ip) => {
                    change(ip, &json!({ "tags": body["tags"] }));
                    Ok((200, json!({ "tags": body["tags"] })))
                }
            },
            _ => return None,
        };
        let (status, body) = reply.unwrap_or_else(|(status, kind, words)| {
            let fault = json!({ "type": kind, "message": words, "detail": "" });
            (status, json!({ "NeutronError": fault }))
        });
        Some(replied(request, StatusCode::from_u16(status).unwrap(), &body))
    }

    fn floating_ip(&mut self, id: &str) -> Done<&mut Value> {
        let ip = self.floating.ips.iter_mut().find(|ip| ip["id"] == *id);
        ip.ok_or_else(|| {
            (404, "FloatingIPNotFound", format!("Floating IP {id} could not be found"))
        })
    }

    fn create_floating_ip(&mut self, given: &Value) -> Done<(u16, Value)> {
        if given.get("tags").is_some() {
            return Err((400, "HTTPBadRequest", "Attribute 'tags' not allowed in POST".to_owned()));
        }
        let network = given["floating_network_id"].as_str().unwrap_or_default().to_owned();
        let found = self.networks.iter().find(|row| row["id"] == *network);
        match found.map(|row| row["router:external"] == true) {
            None => return Err(missing("Network", &network)),
            Some(false) => {
                let why = format!("Network {network} is not a valid external network.");
                return Err((400, "BadRequest", format!("Bad floatingip request: {why}")));
            }
            Some(true) => {}
        }
        if let Some(subnet) = given["subnet_id"].as_str()
            && !self.subnets.iter().any(|row| row["id"] == *subnet)
        {
            return Err(missing("Subnet", subnet));
        }
        let wanted = given["floating_ip_address"].as_str();
        if wanted.is_some() && !self.floating.may_choose {
            let words = "(rule:create_floatingip and \
                         rule:create_floatingip:floating_ip_address) is disallowed by policy";
            return Err((403, "PolicyNotAuthorized", words.to_owned()));
        }
        let count = self.floating.ips.len();
        if count >= self.floating.quota {
            let words = "Quota exceeded for resources: ['floatingip'].".to_owned();
            return Err((409, "OverQuota", words));
        }
        if count >= self.floating.room {
            let words = format!("No more IP addresses available on network {network}.");
            return Err((409, "IpAddressGenerationFailure", words));
        }
        let number = self.floating.made + 1;
        let free = format!("172.24.{}.{}", number / 250, number % 250 + 1);
        let address = wanted.unwrap_or(&free).to_owned();
        if self.floating.ips.iter().any(|ip| ip["floating_ip_address"] == *address) {
            let words = format!("IP address {address} already allocated in subnet {network}");
            return Err((409, "IpAddressAlreadyAllocated", words));
        }
        let id = uuid(6_000_000 + number);
        let fixed = self.fixed_address(&given["port_id"], &id, &network)?;
        self.floating.made = number;
        let mut ip = json!({
            "id": id, "floating_ip_address": address, "floating_network_id": network,
            "port_id": given["port_id"], "fixed_ip_address": fixed, "status": "DOWN",
            "description": given["description"].as_str().unwrap_or_default(), "tags": [],
            "revision_number": 0, "project_id": PROJECT,
        });
        self.floating.ips.push(ip.clone());
        Ok((201, json!({ "floatingip": ip.take() })))
    }

    /// Returns the address of the port that a floating IP with this ID and network should be
    /// attached to. A port may have one of each network.
    fn fixed_address(&self, port: &Value, own: &str, network: &str) -> Done<Value> {
        let Some(port) = port.as_str() else { return Ok(Value::Null) };
        let Some(row) = self.ports.iter().find(|row| row["id"] == *port) else {
            return Err(missing("Port", port));
        };
        if self.floating.unreachable.contains(network) {
            let subnet = &row["fixed_ips"][0]["subnet_id"];
            let words = format!(
                "External network {network} is not reachable from subnet {subnet}.  Therefore, \
                 cannot associate Port {port} with a Floating IP."
            );
            return Err((404, "ExternalGatewayForFloatingIPNotFound", words));
        }
        let mut fixed = row["fixed_ips"].as_array().unwrap().iter().map(|ip| &ip["ip_address"]);
        let fixed = fixed.find(|ip| ip.as_str().unwrap().contains('.'));
        let mut others = self.floating.ips.iter();
        let is_there = |ip: &Value| {
            ip["port_id"] == *port && ip["floating_network_id"] == *network && ip["id"] != *own
        };
        if others.any(is_there) {
            let words = format!(
                "Cannot associate floating IP {own} with port {port}, as that fixed IP already \
                 has a floating IP on external network {network}."
            );
            return Err((409, "FloatingIPPortAlreadyAssociated", words));
        }
        Ok(fixed.cloned().unwrap_or_default())
    }

    fn one_floating_ip(
        &mut self,
        request: &Request<'_>,
        id: &str,
        given: &Value,
    ) -> Done<(u16, Value)> {
        let current = self.floating_ip(id)?["revision_number"].as_u64().unwrap();
        if let Some(wanted) = request.revision.filter(|wanted| *wanted != current) {
            let words = format!("Constrained to {wanted}, but current revision is {current}");
            return Err((412, "RevisionNumberConstraintFailed", words));
        }
        match request.method {
            Method::DELETE => {
                self.floating.ips.retain(|ip| ip["id"] != *id);
                Ok((204, Value::Null))
            }
            Method::PUT => {
                let mut fields = given.clone();
                if given.get("port_id").is_some() {
                    let network = self.floating_ip(id)?["floating_network_id"].clone();
                    let network = network.as_str().unwrap();
                    let fixed = self.fixed_address(&given["port_id"], id, network)?;
                    fields["fixed_ip_address"] = fixed;
                }
                let ip = self.floating_ip(id)?;
                change(ip, &fields);
                Ok((200, json!({ "floatingip": ip })))
            }
            _ => Ok((200, json!({ "floatingip": self.floating_ip(id)? }))),
        }
    }
}

/// Changes fields of a floating IP, and its revision.
fn change(ip: &mut Value, fields: &Value) {
    let revision = ip["revision_number"].as_u64().unwrap();
    ip.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ip["revision_number"] = json!(revision + 1);
}

fn missing(kind: &str, id: &str) -> (u16, &'static str, String) {
    let name = match kind {
        "Network" => "NetworkNotFound",
        "Port" => "PortNotFound",
        _ => "SubnetNotFound",
    };
    (404, name, format!("{kind} {id} could not be found."))
}
