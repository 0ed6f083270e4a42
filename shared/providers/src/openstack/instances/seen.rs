//! What Neutron has shown of servers' ports, so that an answer that lacks some is not
//! taken for a change.
//!
//! Neutron leaves out of a list what it cannot or may not show, and says nothing of it; a
//! node described by such a list would lose addresses, or get another primary one. Nova's
//! own list of a server's addresses names the ports by their MAC addresses, but it is a
//! cache: a port that was just detached stays in it for a while, at worst until Nova heals
//! it by itself. So an absent port alone is no error, or a healthy node could be left
//! without new addresses for ever. What is one:
//!
//! * Not one port of a server is shown, although Nova lists addresses of ports, and although
//!   Neutron has shown this process ports, so it may see them. A server that truly has lost
//!   all its ports is no healthy node. Where none was ever shown they may be another
//!   project's, which Neutron never shows: then it is an error for [`HOLD`].
//! * A port is missing that was shown before, and Nova, or the trunk, still names it. This
//!   is an error for [`HOLD`]; after that the port counts as gone.
//!
//! What was missing from the first answer on is not noticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::{
    ids::ServerId,
    neutron::{Port, Ports},
    nova::Server,
};

/// So long a port that is named but not shown any more is waited for.
const HOLD: Duration = Duration::from_mins(10);
/// What was shown of a server is forgotten when nobody has asked about it for so long.
const FORGET: Duration = Duration::from_hours(24);

/// What has been shown so far.
#[derive(Default)]
pub(super) struct Seen(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// Whether Neutron has shown any server's port.
    shows_ports: bool,
    servers: BTreeMap<ServerId, Before>,
    tidied: Option<Instant>,
}

/// What was shown of one server.
struct Before {
    /// MAC addresses of its ports.
    macs: BTreeSet<String>,
    /// IDs of the ports that its trunks carry.
    carried: BTreeSet<String>,
    /// What is missing, and since when.
    lacking: Option<(String, Instant)>,
    looked: Instant,
}

impl Seen {
    /// Takes notice of an answer, before servers are looked at by it.
    pub(super) fn note(&self, ports: &Ports) {
        let now = Instant::now();
        let mut memory = self.0.lock();
        memory.shows_ports |= !ports.of_servers.is_empty();
        if now.duration_since(*memory.tidied.get_or_insert(now)) >= FORGET {
            memory.servers.retain(|_, before| now.duration_since(before.looked) < FORGET);
            memory.tidied = Some(now);
        }
    }

    /// Whether these may be all ports of the server; if not, what is missing.
    pub(super) fn check(
        &self,
        server: &Server,
        ports: &[Port],
        carried: &[Port],
    ) -> Result<(), String> {
        let now = Instant::now();
        let listed: BTreeSet<String> = listed_macs(server).collect();
        let mut memory = self.0.lock();
        if let Some(mac) = listed.first()
            && ports.is_empty()
            && memory.shows_ports
        {
            let before = memory.servers.entry(server.id.clone()).or_insert_with(|| Before::at(now));
            before.looked = now;
            let what = none_shown(mac);
            let may_be_foreign = before.macs.is_empty() && before.lacks(&what, now) >= HOLD;
            return if may_be_foreign { Ok(()) } else { Err(what) };
        }
        let shown = Before {
            macs: ports.iter().filter_map(mac_of).collect(),
            carried: carried.iter().map(|port| port.id.clone()).collect(),
            ..Before::at(now)
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

impl Before {
    /// Nothing was shown.
    const fn at(looked: Instant) -> Self {
        Self { macs: BTreeSet::new(), carried: BTreeSet::new(), lacking: None, looked }
    }

    /// For how long just this has been missing.
    fn lacks(&mut self, what: &str, now: Instant) -> Duration {
        let before = self.lacking.take().filter(|(before, _)| before == what);
        let (_, since) = self.lacking.insert(before.unwrap_or_else(|| (what.to_owned(), now)));
        now.duration_since(*since)
    }

    /// What was shown before, is still named, and is not shown now.
    fn missing(&self, shown: &Self, listed: &BTreeSet<String>, ports: &[Port]) -> Option<String> {
        // A port without a MAC address may be any of them.
        let comparable = ports.iter().all(|port| port.mac_address.is_some());
        let named = |mac: &&String| listed.contains(*mac);
        if let Some(mac) = self.macs.difference(&shown.macs).find(named).filter(|_| comparable) {
            return Some(format!(
                "Neutron does not show its port with MAC address {mac} any more, but Nova still \
                 lists its addresses"
            ));
        }
        let named: BTreeSet<&str> = ports.iter().flat_map(Port::sub_port_ids).collect();
        let lost = self.carried.difference(&shown.carried).find(|id| named.contains(id.as_str()));
        lost.map(|id| {
            format!("Neutron does not show port {id} any more, but its trunk still carries it")
        })
    }
}

fn none_shown(mac: &str) -> String {
    format!(
        "Neutron shows none of its ports, but Nova lists addresses of them, the first with MAC \
         address {mac}"
    )
}

/// The MAC addresses of the ports that Nova names.
fn listed_macs(server: &Server) -> impl Iterator<Item = String> {
    let addresses = server.addresses().flat_map(|(_, list)| list);
    let fixed = addresses.filter(|address| address.kind.as_deref() == Some("fixed"));
    fixed.filter_map(|address| address.mac.as_deref().map(str::to_ascii_lowercase))
}

fn mac_of(port: &Port) -> Option<String> {
    port.mac_address.as_deref().map(str::to_ascii_lowercase)
}
