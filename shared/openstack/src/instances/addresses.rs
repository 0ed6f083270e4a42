//! Determines the addresses of a node, and their order. Pure.
//!
//! The order: addresses of the ports, the server's access addresses, its host name, then
//! the other addresses of Nova's list of the server, by network. Ports are sorted by ID, the order
//! of Neutron's pages. (If internal networks are configured, ports on others give no internal
//! address.)
//!
//! A port that is not active adds only addresses that Nova's list still has, so that a flapping
//! port or a stopped server changes nothing.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ccm_base::message::one_line;
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_openstack_client::{
    compute::{Address, Server},
    network::Port,
    text::{MAX_VALUE, is_host_name},
};

use crate::config::Networking;

/// The key of the server's metadata that names its host.
const HOST_NAME: &str = "hostname";

/// The data about one server's addresses.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The server.
    pub server: &'a Server,
    /// Its ports, in any order.
    pub ports: &'a [Port],
    /// The ports that its trunks carry, in any order.
    pub sub_ports: &'a [Port],
    /// Names of networks by ID, as far as they were requested.
    pub names: &'a BTreeMap<String, String>,
}

/// An address of Nova's list of the server, or of a sub-port.
struct ListedAddress {
    ip: IpAddr,
    floating: bool,
    network_id: Option<String>,
}

/// Returns the addresses in order. The error names a text that is not an address: an incomplete set
/// would be worse than an empty one.
pub fn node_addresses(
    known: &Inputs<'_>,
    networking: &Networking,
) -> Result<Vec<NodeAddress>, String> {
    let networks = networks(known)?;
    let mut set = Set { networking, list: Vec::new() };
    set.add_ports(known, &networks)?;
    for access in [&known.server.fields.access_ipv4, &known.server.fields.access_ipv6] {
        if let Some(text) = access.as_deref().filter(|text| !text.is_empty()) {
            set.add(AddressKind::ExternalIp, read_ip(text)?);
        }
    }
    let host = known.server.metadata().find(|(key, _)| key.as_str() == HOST_NAME);
    if let Some((_, name)) = host.filter(|(_, name)| is_host_name(name)) {
        set.list.push(Item::Host(name.clone()));
    }
    for (name, entries) in &networks {
        for entry in entries {
            set.add_entry(name, entry);
        }
    }
    Ok(set.sorted())
}

/// Returns the addresses of the server that the node does not get, and the settings that leave them
/// out; `None` if the node gets all addresses.
pub fn withheld(
    known: &Inputs<'_>,
    networking: &Networking,
    shown: &[NodeAddress],
) -> Option<String> {
    let Networking { ipv6_disabled, internal_networks, .. } = networking;
    let is_shown = |ip: IpAddr| shown.iter().any(|one| one.address.parse() == Ok(ip));
    let mut left_out = Vec::new();
    for (name, entries) in &networks(known).ok()? {
        for ListedAddress { ip, .. } in entries.iter().filter(|entry| !is_shown(entry.ip)) {
            let setting = match *ipv6_disabled && ip.is_ipv6() {
                true => "ipv6-support-disabled leaves it out".to_owned(),
                false if internal_networks.is_empty() => continue,
                false => format!(
                    "internal-network-name = {} does not admit it",
                    one_line(&internal_networks.join(", "), MAX_VALUE)
                ),
            };
            let name = one_line(name, MAX_VALUE);
            left_out.push(format!("{ip} on {name}: [Networking] {setting}"));
        }
    }
    (!left_out.is_empty()).then(|| format!("the server has {}", left_out.join("; ")))
}

/// Returns the networks whose names are needed but not in Nova's list of the server: networks of
/// sub-ports, and of ports that the list does not contain yet.
pub fn networks_to_name<'a>(
    server: &Server,
    ports: &'a [Port],
    sub_ports: &'a [Port],
    networking: &Networking,
) -> impl Iterator<Item = &'a str> {
    let names_decide =
        !networking.public_networks.is_empty() || !networking.internal_networks.is_empty();
    let listed = |port: &Port| {
        let mut listed = server.addresses().flat_map(|(_, list)| list);
        port.fixed_ips.is_empty()
            || listed.any(|address| port.fixed_ips.iter().any(|ip| ip.ip_address == address.addr))
    };
    let unlisted: Vec<_> = ports.iter().filter(|port| names_decide && !listed(port)).collect();
    sub_ports.iter().chain(unlisted).map(|port| port.network_id.as_str())
}

fn read_ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{:?} is not an IP address", one_line(text, MAX_VALUE)))
}

/// Returns Nova's list of the server and its sub-ports, by the name of the network.
fn networks(known: &Inputs<'_>) -> Result<BTreeMap<String, Vec<ListedAddress>>, String> {
    let mut networks: BTreeMap<String, Vec<ListedAddress>> = BTreeMap::new();
    for (name, list) in known.server.addresses() {
        let entries = networks.entry(name.clone()).or_default();
        for address in list {
            let ip = read_ip(&address.addr)?;
            let port = known.ports.iter().find(|port| is_of(address, ip, port));
            entries.push(ListedAddress {
                ip,
                floating: address.kind.as_deref() == Some("floating"),
                network_id: port.map(|port| port.network_id.clone()),
            });
        }
    }
    let mut sub_ports: Vec<_> = known.sub_ports.iter().collect();
    sub_ports.sort_by_key(|port| &port.id);
    for port in sub_ports {
        let name = known.names.get(&port.network_id).unwrap_or(&port.network_id);
        let entries = networks.entry(name.clone()).or_default();
        for ip in ips(port)? {
            let network_id = Some(port.network_id.clone());
            entries.push(ListedAddress { ip, floating: false, network_id });
        }
    }
    Ok(networks)
}

/// Returns true if an entry of Nova's list belongs to this port. Networks may overlap, so the MAC
/// address decides if both have one.
fn is_of(address: &Address, ip: IpAddr, port: &Port) -> bool {
    let same_mac = match (&address.mac, &port.mac_address) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => true,
    };
    same_mac && port.fixed_ips.iter().any(|fixed| fixed.ip_address.parse() == Ok(ip))
}

/// Returns a port's addresses in Neutron's order: sorted as text.
fn ips(port: &Port) -> Result<Vec<IpAddr>, String> {
    let mut texts: Vec<_> = port.fixed_ips.iter().map(|ip| ip.ip_address.as_str()).collect();
    texts.sort_unstable();
    texts.into_iter().map(read_ip).collect()
}

#[derive(Clone, PartialEq, Eq)]
enum Item {
    Ip(AddressKind, IpAddr),
    Host(String),
}

/// Collects addresses.
struct Set<'a> {
    networking: &'a Networking,
    list: Vec<Item>,
}

impl Set<'_> {
    fn add_ports(
        &mut self,
        known: &Inputs<'_>,
        networks: &BTreeMap<String, Vec<ListedAddress>>,
    ) -> Result<(), String> {
        let name_of = |port: &Port| {
            let id = Some(&port.network_id);
            let listed =
                networks.iter().find(|(_, list)| list.iter().any(|e| e.network_id.as_ref() == id));
            listed.map(|(name, _)| name).or_else(|| known.names.get(&port.network_id))
        };
        let mut ports: Vec<_> = known.ports.iter().collect();
        ports.sort_by_key(|port| &port.id);
        for port in ports {
            let name = name_of(port);
            for ip in ips(port)? {
                let listed = networks.values().flatten().any(|entry| entry.ip == ip);
                if listed || (port.is_active() && self.may_be_internal(name, &port.network_id)) {
                    self.add(AddressKind::InternalIp, ip);
                }
            }
        }
        Ok(())
    }

    /// Returns true if a port that Nova's list does not contain yet may count as internal.
    fn may_be_internal(&self, name: Option<&String>, id: &str) -> bool {
        let Networking { public_networks, internal_networks, .. } = self.networking;
        !is_named(public_networks, name, Some(id))
            && (internal_networks.is_empty() || is_named(internal_networks, name, Some(id)))
    }

    fn add_entry(&mut self, name: &String, entry: &ListedAddress) {
        let Networking { public_networks, internal_networks, .. } = self.networking;
        let id = entry.network_id.as_deref();
        if entry.floating {
            self.add(AddressKind::ExternalIp, entry.ip);
        } else if is_named(public_networks, Some(name), id) {
            self.remove(entry.ip);
            self.add(AddressKind::ExternalIp, entry.ip);
        } else if internal_networks.is_empty() || is_named(internal_networks, Some(name), id) {
            self.add(AddressKind::InternalIp, entry.ip);
        } else {
            self.remove(entry.ip);
        }
    }

    /// Removes the address, whatever its kind.
    fn remove(&mut self, ip: IpAddr) {
        self.list.retain(|item| !matches!(item, Item::Ip(_, own) if *own == ip));
    }

    fn add(&mut self, kind: AddressKind, ip: IpAddr) {
        let item = Item::Ip(kind, ip);
        let left_out = self.networking.ipv6_disabled && ip.is_ipv6();
        if !left_out && !self.list.contains(&item) {
            self.list.push(item);
        }
    }

    fn sorted(mut self) -> Vec<NodeAddress> {
        let order = &self.networking.sort_order;
        // The sort is stable: addresses in none of the networks keep their order.
        self.list.sort_by_key(|item| match item {
            Item::Ip(_, ip) => {
                let rank = order.iter().position(|network| network.contains(ip));
                rank.map_or((order.len(), None), |rank| (rank, Some(sixteen_bytes(*ip))))
            }
            Item::Host(_) => (order.len(), None),
        });
        let spelt = self.list.into_iter().map(|item| match item {
            Item::Ip(kind, ip) => NodeAddress::new(kind, ip.to_string()),
            Item::Host(name) => NodeAddress::new(AddressKind::Hostname, name),
        });
        spelt.collect()
    }
}

/// Returns true if a list of names and IDs contains this network.
fn is_named(list: &[String], name: Option<&String>, id: Option<&str>) -> bool {
    list.iter().any(|entry| Some(entry) == name || Some(entry.as_str()) == id)
}

fn sixteen_bytes(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests;
