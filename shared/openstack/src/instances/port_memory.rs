//! Remembers the ports that Neutron has returned, so that an incomplete response does not
//! remove addresses from a node.
//!
//! Neutron silently omits ports that it cannot or may not show; a node would lose addresses, or get
//! another primary one. Nova's list of a server's addresses contains the MAC addresses of the
//! ports, but it is a cache: a port that was just detached stays in it for a while, at worst until
//! Nova's periodic heal. So a missing port alone is not an error, otherwise a healthy node would
//! never get new addresses. These cases are errors:
//!
//! * No port of a server is returned, although Nova lists addresses of ports, and although Neutron
//!   has returned ports to this process before. A server that has really lost all its ports is not
//!   a healthy node. If none of this server was ever returned, they may belong to another project,
//!   which Neutron never shows: then it is an error for [`UNSHOWN`] only.
//! * A port is missing that was returned before, and Nova or the trunk still lists it. This
//!   is an error for [`HOLD`]; after that the port counts as gone.
//!
//! A port that is missing from the first response on is not detected.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::message::one_line;
use ccm_openstack_client::{
    compute::Server,
    ids::ServerId,
    network::{Port, Ports},
    text::MAX_VALUE,
};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a port that is listed but no longer returned is an error.
const HOLD: Duration = Duration::from_mins(10);
/// How long a server without any returned port is an error.
const UNSHOWN: Duration = Duration::from_mins(1);
/// How long a server is remembered after its last lookup.
const FORGET: Duration = Duration::from_hours(24);

/// The memory.
#[derive(Default)]
pub struct PortMemory(Mutex<PortFacts>);

#[derive(Default)]
struct PortFacts {
    /// True if Neutron has returned any port of a server.
    shows_ports: bool,
    servers: BTreeMap<ServerId, ServerPorts>,
    tidied: Option<Instant>,
}

/// The ports of one server in earlier responses.
struct ServerPorts {
    /// The MAC addresses of the server's ports.
    macs: BTreeSet<String>,
    /// The IDs of the ports that the server's trunks carry.
    carried: BTreeSet<String>,
    /// The missing port, and since when it is missing.
    lacking: Option<(String, Instant)>,
    looked: Instant,
}

impl PortMemory {
    /// Records a response, before its servers are checked.
    pub fn note(&self, ports: &Ports) {
        let now = Instant::now();
        let mut memory = self.0.lock();
        memory.shows_ports |= !ports.of_servers.is_empty();
        if now.duration_since(*memory.tidied.get_or_insert(now)) >= FORGET {
            memory.servers.retain(|_, before| now.duration_since(before.looked) < FORGET);
            memory.tidied = Some(now);
        }
    }

    /// Checks whether these may be all ports of the server; the error names a missing one.
    pub fn check(&self, server: &Server, ports: &[Port], carried: &[Port]) -> Result<(), String> {
        let now = Instant::now();
        let listed: BTreeSet<String> = listed_macs(server).collect();
        let mut memory = self.0.lock();
        if let Some(mac) = listed.first()
            && ports.is_empty()
            && memory.shows_ports
        {
            let before =
                memory.servers.entry(server.id.clone()).or_insert_with(|| ServerPorts::at(now));
            before.looked = now;
            let what = none_shown(mac);
            let may_be_foreign = before.macs.is_empty() && before.lacks(&what, now) >= UNSHOWN;
            return if may_be_foreign { Ok(()) } else { Err(what) };
        }
        let shown = ServerPorts {
            macs: ports.iter().filter_map(mac_of).collect(),
            carried: carried.iter().map(|port| port.id.clone()).collect(),
            ..ServerPorts::at(now)
        };
        let Some(before) = memory.servers.get_mut(&server.id) else {
            memory.servers.insert(server.id.clone(), shown);
            return Ok(());
        };
        match before.missing(&shown, &listed, ports) {
            Some(what) if before.lacks(&what, now) < HOLD => {
                before.macs.extend(shown.macs);
                before.carried.extend(shown.carried);
                before.looked = now;
                Err(what)
            }
            Some(what) => {
                let server = server.id.as_str();
                tracing::warn!(server, "{what}; it counts as gone from now on");
                *before = shown;
                Ok(())
            }
            None => {
                *before = shown;
                Ok(())
            }
        }
    }
}

impl ServerPorts {
    /// Creates the memory of a server, with no ports yet.
    const fn at(looked: Instant) -> Self {
        Self { macs: BTreeSet::new(), carried: BTreeSet::new(), lacking: None, looked }
    }

    /// Returns how long this port has been missing.
    fn lacks(&mut self, what: &str, now: Instant) -> Duration {
        let before = self.lacking.take().filter(|(before, _)| before == what);
        let (_, since) = self.lacking.insert(before.unwrap_or_else(|| (what.to_owned(), now)));
        now.duration_since(*since)
    }

    /// Returns a port that was returned before, is still listed, and is not returned now.
    fn missing(&self, shown: &Self, listed: &BTreeSet<String>, ports: &[Port]) -> Option<String> {
        // A port without a MAC address may be any of the listed ones.
        let comparable = ports.iter().all(|port| port.mac_address.is_some());
        let named = |mac: &&String| listed.contains(*mac);
        if let Some(mac) = self.macs.difference(&shown.macs).find(named).filter(|_| comparable) {
            let mac = one_line(mac, MAX_VALUE);
            return Some(format!(
                "Neutron no longer returns its port with MAC address {mac}, but Nova still lists \
                 its addresses"
            ));
        }
        let named: BTreeSet<&str> = ports.iter().flat_map(Port::sub_port_ids).collect();
        let lost = self.carried.difference(&shown.carried).find(|id| named.contains(id.as_str()));
        let lost = lost.map(|id| one_line(id, MAX_VALUE));
        lost.map(|id| format!("Neutron no longer returns port {id}, but its trunk still lists it"))
    }
}

fn none_shown(mac: &str) -> String {
    let mac = one_line(mac, MAX_VALUE);
    format!(
        "Neutron returns none of its ports, but Nova lists their addresses, the first with MAC \
         address {mac}"
    )
}

/// Returns the MAC addresses of the ports that Nova lists.
fn listed_macs(server: &Server) -> impl Iterator<Item = String> {
    let addresses = server.addresses().flat_map(|(_, list)| list);
    let fixed = addresses.filter(|address| address.kind.as_deref() == Some("fixed"));
    fixed.filter_map(|address| address.mac.as_deref().map(str::to_ascii_lowercase))
}

fn mac_of(port: &Port) -> Option<String> {
    port.mac_address.as_deref().map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The texts come from Neutron and Nova.
    #[test]
    fn a_missing_port_is_named_in_one_line() {
        let odd = "a\t\nb".to_owned();
        let carrier = json!({"id": "p1", "status": "ACTIVE", "network_id": "n1", "fixed_ips": [],
            "mac_address": "m1", "trunk_details": {"sub_ports": [{"port_id": odd}]}});
        let carrier: Port = serde_json::from_value(carrier).expect("a port");
        let now = Instant::now();
        let all = BTreeSet::from([odd.clone()]);
        let by_mac = ServerPorts { macs: all.clone(), ..ServerPorts::at(now) };
        let by_trunk = ServerPorts { carried: all.clone(), ..ServerPorts::at(now) };
        let messages = [
            by_mac.missing(&ServerPorts::at(now), &all, &[]),
            by_trunk.missing(&ServerPorts::at(now), &BTreeSet::new(), &[carrier]),
            Some(none_shown(&odd)),
        ];
        for message in messages {
            let message = message.expect("a port is missing");
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }
}
