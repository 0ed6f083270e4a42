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

impl Admin {
    /// Creates a floating IP for the server's first port.
    pub async fn add_floating_ip(&self, server: &str) -> Result<FloatingIp> {
        let ports = self.ports(server).await?;
        let port = text(ports.first().context("a server without a port")?, "/id")?;
        let public = self.id_by_name(&format!("{}/networks", self.network), "public").await?;
        let body = json!({"floatingip": {"floating_network_id": public, "port_id": port}});
        let made = self.post(&format!("{}/floatingips", self.network), body).await?;
        Ok(FloatingIp {
            id: text(&made, "/floatingip/id")?,
            address: text(&made, "/floatingip/floating_ip_address")?,
        })
    }

    /// Deletes a floating IP.
    pub async fn delete_floating_ip(&self, id: &str) -> Result<()> {
        self.delete(&format!("{}/floatingips/{id}", self.network)).await
    }

    /// The IDs of all floating IPs of the project.
    pub async fn floating_ips(&self) -> Result<Vec<String>> {
        let url = format!("{}/floatingips?project_id={}", self.network, self.project_id);
        let document = self.get(&url).await?;
        let list = document["floatingips"].as_array().context("no floatingips")?;
        list.iter().map(|entry| text(entry, "/id")).collect()
    }

    /// The ports of a server, from Neutron.
    pub async fn ports(&self, server: &str) -> Result<Vec<Value>> {
        let document = self.get(&format!("{}/ports?device_id={server}", self.network)).await?;
        Ok(document["ports"].as_array().context("no ports")?.clone())
    }
    /// Sets the allowed address pairs of a port to these networks.
    pub async fn set_pairs(&self, port: &str, networks: &[&str]) -> Result<()> {
        let pairs: Vec<_> = networks.iter().map(|it| json!({"ip_address": it})).collect();
        let body = json!({"port": {"allowed_address_pairs": pairs}});
        self.done(Method::PUT, &format!("{}/ports/{port}", self.network), Some(&body)).await?;
        Ok(())
    }

    /// The ID of the project's router.
    pub async fn router(&self) -> Result<String> {
        self.id_by_name(&format!("{}/routers", self.network), &self.project).await
    }

    /// The extra routes of a router: destination and next hop.
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
