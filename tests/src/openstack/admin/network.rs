//! Neutron: ports, floating IPs and routers.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use http::Method;
use serde_json::{Value, json};

use super::{Admin, text};

/// A floating IP of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloatingIp {
    /// Its UUID.
    pub id: String,
    /// The address.
    pub address: String,
}

/// A port without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its only address.
    pub address: String,
}

/// A network with one subnet of few addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarrowNetwork {
    /// The network's UUID.
    pub network: String,
    /// The subnet's UUID.
    pub subnet: String,
}

impl Admin {
    /// Creates a floating IP for the server's first port.
    pub async fn add_floating_ip(&self, server: &str) -> Result<FloatingIp> {
        let ports = self.ports(server).await?;
        let port = text(ports.first().context("a server without a port")?, "/id")?;
        let public = self.id_by_name(&format!("{}/networks", self.network), "public").await?;
        self.float_port(&public, &port, "").await
    }

    /// Creates a floating IP of an external network for a port, with this description.
    pub async fn float_port(&self, network: &str, port: &str, words: &str) -> Result<FloatingIp> {
        let body = json!({"floating_network_id": network, "port_id": port, "description": words});
        self.new_floating_ip(body).await
    }

    /// Creates a floating IP of an external network for no port, with this description.
    pub async fn free_floating_ip(&self, network: &str, words: &str) -> Result<FloatingIp> {
        self.new_floating_ip(json!({"floating_network_id": network, "description": words})).await
    }

    async fn new_floating_ip(&self, body: Value) -> Result<FloatingIp> {
        let url = format!("{}/floatingips", self.network);
        let made = self.post(&url, json!({ "floatingip": body })).await?;
        Ok(FloatingIp {
            id: text(&made, "/floatingip/id")?,
            address: text(&made, "/floatingip/floating_ip_address")?,
        })
    }

    /// Deletes a floating IP.
    pub async fn delete_floating_ip(&self, id: &str) -> Result<()> {
        self.delete(&format!("{}/floatingips/{id}", self.network)).await
    }

    /// Returns the IDs of all floating IPs of the project.
    pub async fn floating_ips(&self) -> Result<Vec<String>> {
        let url = format!("{}/floatingips?project_id={}", self.network, self.project_id);
        let document = self.get(&url).await?;
        let list = document["floatingips"].as_array().context("no floatingips")?;
        list.iter().map(|entry| text(entry, "/id")).collect()
    }

    /// Returns the ports of a server, from Neutron.
    pub async fn ports(&self, server: &str) -> Result<Vec<Value>> {
        let document = self.get(&format!("{}/ports?device_id={server}", self.network)).await?;
        Ok(document["ports"].as_array().context("no ports")?.clone())
    }

    /// Creates ports on the project's network, with port security or without.
    pub async fn create_ports(&self, names: &[String], is_secure: bool) -> Result<Vec<Port>> {
        let network = self.network(&self.project).await?;
        self.create_ports_in(&network, names, is_secure).await
    }

    /// Creates ports on a network, with port security or without.
    pub async fn create_ports_in(
        &self,
        network: &str,
        names: &[String],
        is_secure: bool,
    ) -> Result<Vec<Port>> {
        let port = |name: &String| json!({"name": name, "network_id": network, "port_security_enabled": is_secure});
        let mut ports = Vec::new();
        for some in names.chunks(50) {
            let body = json!({"ports": some.iter().map(port).collect::<Vec<_>>()});
            let made = self.post(&format!("{}/ports", self.network), body).await?;
            for port in made["ports"].as_array().context("no ports")? {
                ports.push(Port {
                    id: text(port, "/id")?,
                    name: text(port, "/name")?,
                    address: text(port, "/fixed_ips/0/ip_address")?,
                });
            }
        }
        Ok(ports)
    }

    /// Returns the IDs of the project's ports whose names start with this prefix.
    pub async fn ports_named(&self, prefix: &str) -> Result<Vec<String>> {
        let document = self.get(&format!("{}/ports?fields=id&fields=name", self.network)).await?;
        let all = document["ports"].as_array().context("no ports")?;
        let named = |port: &&Value| port["name"].as_str().is_some_and(|n| n.starts_with(prefix));
        all.iter().filter(named).map(|port| text(port, "/id")).collect()
    }

    /// Deletes a port.
    pub async fn delete_port(&self, id: &str) -> Result<()> {
        self.delete(&format!("{}/ports/{id}", self.network)).await
    }

    /// Switches port security of a port on or off.
    pub async fn secure_port(&self, port: &str, is_secure: bool) -> Result<()> {
        let mut change = json!({"port_security_enabled": is_secure});
        if !is_secure {
            change["security_groups"] = json!([]);
            change["allowed_address_pairs"] = json!([]);
        }
        let url = format!("{}/ports/{port}", self.network);
        self.done(Method::PUT, &url, Some(&json!({ "port": change }))).await?;
        Ok(())
    }

    /// Creates a network whose only subnet has this number of free addresses.
    pub async fn narrow_network(
        &self,
        name: &str,
        cidr: &str,
        addresses: u8,
    ) -> Result<NarrowNetwork> {
        let body = json!({"network": {"name": name}});
        let made = self.post(&format!("{}/networks", self.network), body).await?;
        let network = text(&made, "/network/id")?;
        let prefix = cidr.rsplit_once('.').context("not an IPv4 network")?.0;
        let pool =
            json!({"start": format!("{prefix}.2"), "end": format!("{prefix}.{}", 1 + addresses)});
        let body = json!({"subnet": {
            "name": name, "network_id": network, "cidr": cidr, "ip_version": 4,
            "enable_dhcp": false, "gateway_ip": null, "allocation_pools": [pool]
        }});
        let made = self.post(&format!("{}/subnets", self.network), body).await?;
        Ok(NarrowNetwork { network, subnet: text(&made, "/subnet/id")? })
    }

    /// Adds an IPv6 subnet to a network, and returns its UUID.
    pub async fn add_ipv6_subnet(&self, network: &str, name: &str, cidr: &str) -> Result<String> {
        let body = json!({"subnet": {
            "name": name, "network_id": network, "cidr": cidr, "ip_version": 6,
            "enable_dhcp": false, "gateway_ip": null
        }});
        let made = self.post(&format!("{}/subnets", self.network), body).await?;
        text(&made, "/subnet/id")
    }

    /// Deletes a network with its subnets.
    pub async fn delete_network(&self, id: &str) -> Result<()> {
        self.delete(&format!("{}/networks/{id}", self.network)).await
    }

    /// Returns the ID of a network.
    pub async fn network(&self, name: &str) -> Result<String> {
        self.id_by_name(&format!("{}/networks", self.network), name).await
    }

    /// Returns the ID of a subnet that the project sees.
    pub async fn subnet(&self, name: &str) -> Result<String> {
        self.id_by_name(&format!("{}/subnets", self.network), name).await
    }

    /// Sets quotas of a project in Neutron, `floatingip` for example. Only for the operator.
    pub async fn set_network_quota(&self, project: &Admin, quota: Value) -> Result<()> {
        let url = format!("{}/quotas/{}", self.network, project.project_id);
        self.done(Method::PUT, &url, Some(&json!({ "quota": quota }))).await?;
        Ok(())
    }

    /// Removes the quotas of a project in Neutron. Only for the operator.
    pub async fn clear_network_quota(&self, project: &Admin) -> Result<()> {
        self.delete(&format!("{}/quotas/{}", self.network, project.project_id)).await
    }

    /// Returns the floating IPs of the project, as Neutron shows them.
    pub async fn floating_ip_details(&self) -> Result<Vec<Value>> {
        let url = format!("{}/floatingips?project_id={}", self.network, self.project_id);
        Ok(self.get(&url).await?["floatingips"].as_array().context("no floatingips")?.clone())
    }

    /// Sets the allowed address pairs of a port to these networks.
    pub async fn set_pairs(&self, port: &str, networks: &[&str]) -> Result<()> {
        let pairs: Vec<_> = networks.iter().map(|it| json!({"ip_address": it})).collect();
        let body = json!({"port": {"allowed_address_pairs": pairs}});
        self.done(Method::PUT, &format!("{}/ports/{port}", self.network), Some(&body)).await?;
        Ok(())
    }

    /// Returns the ID of the project's router.
    pub async fn router(&self) -> Result<String> {
        self.id_by_name(&format!("{}/routers", self.network), &self.project).await
    }

    /// Returns the extra routes of a router: destination and next hop.
    pub async fn routes(&self, id: &str) -> Result<BTreeSet<(String, String)>> {
        let document = self.get(&format!("{}/routers/{id}", self.network)).await?;
        let entries = document["router"]["routes"].as_array().context("no routes")?;
        let route = |entry| Ok((text(entry, "/destination")?, text(entry, "/nexthop")?));
        entries.iter().map(route).collect()
    }

    /// Sets the extra routes of a router: destination and next hop.
    pub async fn set_routes(&self, id: &str, routes: &[(&str, &str)]) -> Result<()> {
        let route = |(to, by): &(&str, &str)| json!({"destination": to, "nexthop": by});
        let routes: Vec<_> = routes.iter().map(route).collect();
        let body = json!({"router": {"routes": routes}});
        self.done(Method::PUT, &format!("{}/routers/{id}", self.network), Some(&body)).await?;
        Ok(())
    }
}
