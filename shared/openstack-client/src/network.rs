//! Requests to Neutron, in bulk and only with the needed fields.

mod floating_ips;
mod names;
mod port;
mod routers;
mod subnets;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError, ErrorKind};
use futures::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;

pub use floating_ips::{FloatingIp, FloatingIps};
pub use names::NetworkNames;
pub use port::Port;
pub use routers::{ExtraRoute, Hop, Router};
pub use subnets::Subnet;

use crate::{
    api::{AT_ONCE, Api, Collection, Memory, Service, id_of},
    ids::ServerId,
    text::{MAX_MESSAGE, paths},
};

const PORT_FIELDS: &str = "fields=id&fields=device_id&fields=status&fields=network_id\
                           &fields=fixed_ips&fields=mac_address&fields=trunk_details";
const NETWORK_FIELDS: &str = "fields=id&fields=name";

/// The ports of some servers.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Ports by the ID of their server.
    pub of_servers: BTreeMap<String, Vec<Port>>,
    /// Sub-ports of trunks by their own ID.
    pub carried: BTreeMap<String, Port>,
    /// Errors about malformed ports, by the ID of the server.
    pub unreadable: BTreeMap<String, String>,
    /// Errors about malformed sub-ports, by the ID of the sub-port.
    pub unreadable_children: BTreeMap<String, String>,
}

/// Neutron.
pub struct Neutron {
    api: Arc<dyn Api>,
}

impl Neutron {
    /// Creates a client of Neutron that uses this API.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self { api }
    }

    /// Reads the ports of these servers, and the sub-ports of their trunks.
    pub async fn ports_of(
        &self,
        servers: &BTreeSet<ServerId>,
        call: Call,
    ) -> Result<Ports, CloudError> {
        let ids = servers.iter().map(ServerId::as_str);
        let mut ports = Ports::default();
        for entry in self.entries("ports", PORT_FIELDS, "device_id", ids, call).await? {
            match Port::read(&entry) {
                Ok(port) => ports.of_servers.entry(port.device_id.clone()).or_default().push(port),
                Err(trouble) => note(&mut ports.unreadable, trouble.device_id, trouble.line),
            }
        }
        let subs: BTreeSet<_> = ports.sub_port_ids().map(str::to_owned).collect();
        let subs = subs.iter().map(String::as_str);
        for entry in self.entries("ports", PORT_FIELDS, "id", subs, call).await? {
            match Port::read(&entry) {
                Ok(port) => drop(ports.carried.insert(port.id.clone(), port)),
                Err(trouble) => note(&mut ports.unreadable_children, trouble.port_id, trouble.line),
            }
        }
        Ok(ports)
    }

    /// Reads the names of the networks with these IDs, or with these names, by their IDs. Networks
    /// that this project may not see are missing in the result.
    pub async fn network_names(
        &self,
        filter: &str,
        values: &BTreeSet<String>,
        call: Call,
    ) -> Result<BTreeMap<String, String>, CloudError> {
        let values = values.iter().map(String::as_str);
        let entries = self.entries("networks", NETWORK_FIELDS, filter, values, call).await?;
        Ok(entries.iter().filter_map(|entry| port::read_network(entry).ok()).collect())
    }

    /// Returns all entries of a collection whose `filter` is one of `values`, in as few requests as
    /// the length of a URL allows.
    async fn entries(
        &self,
        key: &'static str,
        fields: &str,
        filter: &str,
        values: impl Iterator<Item = &str>,
        call: Call,
    ) -> Result<Vec<String>, CloudError> {
        self.entries_of(key, paths(&format!("/{key}?{fields}"), filter, values), call).await
    }

    /// Returns all entries that these paths of a collection list.
    async fn entries_of(
        &self,
        key: &'static str,
        paths: Vec<String>,
        call: Call,
    ) -> Result<Vec<String>, CloudError> {
        let operation = match key {
            "floatingips" => "floating_ip_list",
            "networks" => "network_list",
            "subnets" => "subnet_list",
            _ => "port_list",
        };
        let memory = &Memory::default();
        let parts = paths.into_iter().map(|path| async move {
            let collection = Collection { service: Service::Network, operation, path: &path, key };
            let mut entries = Vec::new();
            let take = |entry: &str| entries.push(entry.to_owned());
            collection.entries(&*self.api, memory, call, take).await.map(|_| entries)
        });
        let parts = stream::iter(parts.collect::<Vec<_>>()).buffered(AT_ONCE);
        let parts: Vec<Vec<String>> = parts.try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }
}

impl Ports {
    fn sub_port_ids(&self) -> impl Iterator<Item = &str> {
        self.of_servers.values().flatten().flat_map(Port::sub_port_ids)
    }

    /// Adds the ports of other servers.
    pub fn add(&mut self, other: Self) {
        self.of_servers.extend(other.of_servers);
        self.carried.extend(other.carried);
        self.unreadable.extend(other.unreadable);
        self.unreadable_children.extend(other.unreadable_children);
    }
}

/// Notes an entry that cannot be parsed, by the ID of what it belongs to. Without one it is logged.
fn note(unreadable: &mut BTreeMap<String, String>, id: Option<String>, line: String) {
    let Some(id) = id else {
        let line = one_line(&line, MAX_MESSAGE);
        return tracing::warn!("a port in Neutron's response could not be parsed: {line}");
    };
    unreadable.insert(id, line);
}

/// Returns the entries, each of which must be readable: an omitted entry would count as missing.
fn readable<T: DeserializeOwned>(what: &str, entries: &[String]) -> Result<Vec<T>, CloudError> {
    let read = |entry: &String| {
        serde_json::from_str(entry).map_err(|error| {
            let id = id_of(entry).unwrap_or_default();
            let why = format!("cannot parse the {what} with ID {id:?}: {error}");
            CloudError::new(ErrorKind::Malformed, one_line(&why, MAX_MESSAGE))
        })
    };
    entries.iter().map(read).collect()
}
