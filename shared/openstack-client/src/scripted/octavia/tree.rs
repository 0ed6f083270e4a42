//! Plays the creation of a load balancer with all that is below it, and its status tree.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Octavia, PROJECT, Reply, World, invalid};
use crate::scripted::uuid;

const KNOWN: [&str; 14] = [
    "name",
    "description",
    "tags",
    "provider",
    "flavor_id",
    "availability_zone",
    "vip_address",
    "vip_port_id",
    "vip_subnet_id",
    "vip_network_id",
    "additional_vips",
    "admin_state_up",
    "listeners",
    "pools",
];

/// The place of a virtual address: its subnet and network, and the address if it is given.
struct Place {
    subnet: Value,
    address: Option<IpAddr>,
}

impl World {
    /// Makes a load balancer, all that is below it, and the port of its addresses; or nothing.
    pub fn create_balancer(&mut self, body: &Value) -> Reply {
        let argument = "load_balancer.loadbalancer";
        let given = &body["loadbalancer"];
        let fields = self.octavia.fields(argument, given, &KNOWN)?;
        let first = self.octavia.providers[0];
        let provider = fields.get("provider").and_then(Value::as_str).unwrap_or(first).to_owned();
        if !self.octavia.providers.contains(&provider.as_str()) {
            return Err((400, format!("Provider '{provider}' is not enabled.")));
        }
        let exists = |field: &str, all: &[String]| {
            given[field].as_str().is_none_or(|value| all.iter().any(|one| one == value))
        };
        if !exists("flavor_id", &[uuid(1), uuid(7)]) {
            return Err(invalid("Invalid flavor_id."));
        }
        if !exists("availability_zone", &["zone 1".to_owned()]) {
            return Err(invalid("Invalid availability zone."));
        }
        let places = self.places(given)?;
        self.octavia.within_quota("Load Balancer", 1)?;
        let id = self.octavia.next_id();
        let addresses = self.addresses(given, &places)?;
        self.octavia.insert_balancer(&id, given, &provider, &places, &addresses);
        self.octavia.insert_graph(&id, given)?;
        if given["vip_port_id"].is_null() {
            let fixed: Vec<_> = places.iter().zip(&addresses).map(|(place, address)| {
                json!({ "subnet_id": place.subnet["id"], "ip_address": address })
            }).collect();
            self.ports.push(json!({
                "id": vip_port(&id), "device_id": format!("lb-{id}"), "device_owner": "Octavia",
                "status": "DOWN", "network_id": places[0].subnet["network_id"],
                "fixed_ips": fixed, "_of_octavia": true, "port_security_enabled": true,
            }));
        }
        self.octavia.pending.insert(id.clone(), self.octavia.polls);
        if self.octavia.holds_all {
            self.octavia.held.insert(id.clone());
        }
        Ok((201, json!({ "loadbalancer": self.octavia.graph(&id) })))
    }

    /// Returns the subnets of the addresses.
    fn places(&self, given: &Value) -> Result<Vec<Place>, (u16, String)> {
        let subnet = |id: &Value| {
            let found = self.subnets.iter().find(|subnet| subnet["id"] == *id);
            let id = id.as_str().unwrap_or_default();
            found.cloned().ok_or_else(|| (400, format!("Subnet {id} not found.")))
        };
        let address = |given: &Value| given.as_str().and_then(|text| text.parse().ok());
        if let Some(id) = given["vip_port_id"].as_str() {
            let port = self.ports.iter().find(|port| port["id"] == *id);
            let port = port.ok_or_else(|| (400, format!("Port {id} not found.")))?;
            match port["device_id"].as_str().unwrap_or_default() {
                "" => {}
                device => {
                    let why = format!("Port {id} is already used by device {device} ");
                    return Err(invalid(&why));
                }
            }
            let fixed = port["fixed_ips"].as_array().unwrap().iter();
            let places = fixed.map(|ip| {
                let subnet = subnet(&ip["subnet_id"])?;
                Ok(Place { subnet, address: address(&ip["ip_address"]) })
            });
            return places.collect();
        }
        let first = match (&given["vip_subnet_id"], &given["vip_network_id"]) {
            (Value::Null, Value::Null) => {
                let why = "VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.";
                return Err(invalid(why));
            }
            (Value::Null, network) => {
                let mut of_network: Vec<_> =
                    self.subnets.iter().filter(|subnet| subnet["network_id"] == *network).collect();
                of_network.sort_by_key(|subnet| subnet["ip_version"].as_u64());
                let id = network.as_str().unwrap_or_default();
                let first = of_network.first().copied().cloned();
                first.ok_or_else(|| (400, format!("Network {id} not found.")))?
            }
            (id, _) => subnet(id)?,
        };
        let mut places = vec![Place { subnet: first, address: address(&given["vip_address"]) }];
        for more in given["additional_vips"].as_array().into_iter().flatten() {
            let subnet = subnet(&more["subnet_id"])?;
            if subnet["network_id"] != places[0].subnet["network_id"] {
                return Err(invalid("All VIP subnets must belong to the same network."));
            }
            places.push(Place { subnet, address: address(&more["ip_address"]) });
        }
        Ok(places)
    }

    /// Returns the addresses in these subnets: the wished ones, or free ones.
    fn addresses(&self, given: &Value, places: &[Place]) -> Result<Vec<IpAddr>, (u16, String)> {
        let failed = |why: String| (500, format!("Provider 'amphora' reports error: {why}\n"));
        let addresses = places.iter().map(|Place { subnet, address }| {
            let cidr: IpNet = subnet["cidr"].as_str().unwrap().parse().unwrap();
            let taken = |address: &IpAddr| {
                let wanted = address.to_string();
                let mut fixed =
                    self.ports.iter().filter_map(|port| port["fixed_ips"].as_array()).flatten();
                fixed.any(|ip| ip["ip_address"] == *wanted)
            };
            match address {
                Some(address) if !given["vip_port_id"].is_null() => Ok(*address),
                Some(address) if !cidr.contains(address) => Err(failed(format!(
                    "IP address {address} is not a valid IP for the specified subnet."
                ))),
                Some(address) if taken(address) => Err(failed(format!(
                    "IP address {address} already allocated in subnet {}",
                    subnet["id"].as_str().unwrap()
                ))),
                Some(address) => Ok(*address),
                None => cidr.hosts().skip(1).find(|address| !taken(address)).ok_or_else(|| {
                    let network = subnet["network_id"].as_str().unwrap();
                    failed(format!("No more IP addresses available on network {network}."))
                }),
            }
        });
        addresses.collect()
    }
}

impl Octavia {
    fn insert_balancer(
        &mut self,
        id: &str,
        given: &Value,
        provider: &str,
        places: &[Place],
        addresses: &[IpAddr],
    ) {
        let more: Vec<_> = places.iter().zip(addresses).skip(1).map(|(place, address)| {
            json!({ "subnet_id": place.subnet["id"], "ip_address": address })
        }).collect();
        let own_port = given["vip_port_id"].as_str().map_or_else(|| vip_port(id), str::to_owned);
        let text = |field: &str| given[field].as_str().unwrap_or_default();
        self.clock += self.seconds_per_change;
        self.balancers.push(json!({
            "id": id, "name": text("name"), "description": text("description"),
            "tags": given.get("tags").cloned().unwrap_or_else(|| json!([])),
            "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
            "admin_state_up": true, "project_id": PROJECT, "created_at": self.now(),
            "updated_at": null, "vip_address": addresses[0], "vip_port_id": own_port,
            "vip_subnet_id": places[0].subnet["id"], "vip_network_id": places[0].subnet["network_id"],
            "additional_vips": more, "provider": provider, "flavor_id": given["flavor_id"],
            "availability_zone": given["availability_zone"], "vip_qos_policy_id": null,
        }));
    }

    /// Adds all that a creation nests: first the pools, then the listeners.
    fn insert_graph(&mut self, balancer: &str, given: &Value) -> Result<(), (u16, String)> {
        let given = given["listeners"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<&str> = Vec::new();
        for pool in given.iter().map(|listener| &listener["default_pool"]) {
            match pool["name"].as_str() {
                _ if pool.is_null() => {}
                None | Some("") => {
                    let why = "Pools must be named when creating a fully populated loadbalancer.";
                    return Err(invalid(why));
                }
                Some(name) if names.contains(&name) => {
                    let why = "Pool names must be unique when creating a fully populated \
                               loadbalancer.";
                    return Err(invalid(why));
                }
                Some(name) => names.push(name),
            }
        }
        self.within_quota("Pool", names.len())?;
        let mut pools = Vec::new();
        for listener in &given {
            let pool = &listener["default_pool"];
            pools.push(if pool.is_null() { None } else { Some(self.nested_pool(balancer, pool)?) });
        }
        self.within_quota("Listener", given.len())?;
        for (mut listener, pool) in given.into_iter().zip(pools) {
            let fields = listener.as_object_mut().unwrap();
            fields.remove("default_pool");
            if let Some(pool) = pool {
                fields.insert("default_pool_id".to_owned(), json!(pool));
            }
            self.insert_listener(balancer, &listener)?;
        }
        for rows in [&mut self.listeners, &mut self.pools, &mut self.members, &mut self.monitors] {
            for row in rows.iter_mut().filter(|row| row["_balancer"] == *balancer) {
                row["_nested"] = json!(true);
            }
        }
        Ok(())
    }

    fn nested_pool(&mut self, balancer: &str, given: &Value) -> Result<String, (u16, String)> {
        let mut pool = given.clone();
        let fields = pool.as_object_mut().unwrap();
        let members = fields.remove("members").unwrap_or_default();
        let monitor = fields.remove("healthmonitor").unwrap_or_default();
        let id = self.insert_pool(balancer, &pool)?;
        let members = members.as_array().cloned().unwrap_or_default();
        self.within_quota("Member", members.len())?;
        for member in &members {
            self.insert_member(balancer, &id, member)?;
        }
        if !monitor.is_null() {
            self.within_quota("Health Monitor", 1)?;
            self.insert_monitor(balancer, &id, &monitor)?;
        }
        Ok(id)
    }

    /// Returns the load balancer with all that is below it, as the answer to its creation shows it.
    fn graph(&self, id: &str) -> Value {
        let mut shown = self.shown_row("loadbalancers", self.balancer(id).unwrap());
        let of = |kind: &str, rows: &[Value]| -> Value {
            let rows = rows.iter().filter(|row| row["_balancer"] == *id);
            rows.map(|row| self.shown_row(kind, row)).collect::<Vec<_>>().into()
        };
        shown["listeners"] = of("listeners", &self.listeners);
        shown["pools"] = of("pools", &self.pools);
        shown
    }

    /// Returns the status tree. A pool without a listener is not in it.
    pub fn tree(&self, balancer: &Value) -> Value {
        let mut shown = short(balancer, &[]);
        let listeners = self.listeners.iter().filter(|row| row["_balancer"] == balancer["id"]);
        let listeners = listeners.map(|listener| {
            let mut shown = short(listener, &[]);
            let pools = self.pools.iter().filter(|row| row["id"] == listener["default_pool_id"]);
            shown["pools"] = pools.map(|pool| self.pool_tree(pool)).collect::<Vec<_>>().into();
            shown
        });
        shown["listeners"] = listeners.collect::<Vec<_>>().into();
        shown
    }

    fn pool_tree(&self, pool: &Value) -> Value {
        let mut shown = short(pool, &[]);
        let of_pool = |row: &&Value| row["_pool"] == pool["id"];
        let monitor = self.monitors.iter().find(of_pool);
        if let Some(monitor) = monitor {
            shown["health_monitor"] = short(monitor, &["type"]);
        }
        let members = self.members.iter().filter(of_pool);
        let members = members.map(|member| {
            let mut shown = short(member, &["address", "protocol_port"]);
            shown["operating_status"] = match monitor {
                None => json!("NO_MONITOR"),
                Some(_) if self.unreachable.contains(&shown["address"].to_string()) => {
                    json!("ERROR")
                }
                Some(_) => json!("ONLINE"),
            };
            shown
        });
        shown["members"] = members.collect::<Vec<_>>().into();
        shown
    }
}

/// Returns the fields of a row that the tree shows.
fn short(row: &Value, more: &[&str]) -> Value {
    let fields = ["id", "name", "provisioning_status", "operating_status"];
    fields.iter().chain(more).map(|field| ((*field).to_owned(), row[*field].clone())).collect()
}

/// Returns the ID of the port that the load balancer's addresses have.
fn vip_port(balancer: &str) -> String {
    balancer.replacen("0000-4000", "0000-4001", 1)
}
