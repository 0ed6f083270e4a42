//! Neutron: ports and floating IPs.

use anyhow::{Context as _, Result};
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
}
