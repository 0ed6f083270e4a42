//! Ports and networks in Neutron's JSON.

use ccm_base::message::one_line;
use serde::Deserialize;
use serde_json::Value;

use crate::{api::members, text::MAX_VALUE};

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Port {
    /// Its ID.
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    /// The ID of the server; empty or of another kind for sub-ports of trunks.
    #[serde(default)]
    pub device_id: String,
    /// `ACTIVE` when it carries traffic.
    pub status: String,
    /// The ID of its network.
    pub network_id: String,
    /// Its addresses.
    pub fixed_ips: Vec<FixedIp>,
    /// Its MAC address.
    pub mac_address: Option<String>,
    /// Set if the port is a trunk.
    pub trunk_details: Option<TrunkDetails>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FixedIp {
    /// The address.
    pub ip_address: String,
}

/// The trunk of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TrunkDetails {
    /// The sub-ports.
    #[serde(default)]
    pub sub_ports: Vec<SubPortRef>,
}

/// A reference to a sub-port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SubPortRef {
    /// The port's ID.
    pub port_id: String,
}

/// An entry that cannot be parsed.
#[derive(Debug)]
pub struct MalformedPort {
    /// The ID of the port, if it can be parsed.
    pub port_id: Option<String>,
    /// The server of the port, if it can be parsed.
    pub device_id: Option<String>,
    /// The problem, with the ID of the port.
    pub line: String,
}

impl Port {
    /// Reads an entry.
    pub fn read(json: &str) -> Result<Self, MalformedPort> {
        serde_json::from_str(json).map_err(|error| {
            let known = members(json);
            let text = |key: &str| known.get(key).and_then(Value::as_str);
            let id = one_line(text("id").unwrap_or("without one"), MAX_VALUE);
            let line = format!("port with ID {id:?}: {}", one_line(&error.to_string(), MAX_VALUE));
            let [port_id, device_id] = ["id", "device_id"].map(|key| text(key).map(str::to_owned));
            MalformedPort { port_id, device_id, line }
        })
    }

    /// Returns true if it carries traffic.
    pub fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }

    /// Returns the IDs of the ports that it carries as a trunk.
    pub fn sub_port_ids(&self) -> impl Iterator<Item = &str> {
        let subs = self.trunk_details.iter().flat_map(|trunk| &trunk.sub_ports);
        subs.map(|sub| sub.port_id.as_str())
    }
}

/// Reads ID and name of a network.
pub fn read_network(json: &str) -> Result<(String, String), serde_json::Error> {
    #[derive(Deserialize)]
    struct Network {
        #[serde(deserialize_with = "crate::text::id")]
        id: String,
        name: String,
    }
    let network: Network = serde_json::from_str(json)?;
    Ok((network.id, network.name))
}
