//! Remembers the ports that are next hops, as Neutron last showed them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ccm_cloud::{Call, CloudError};
use ccm_openstack_client::network::{Hop, Neutron};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A port is requested again after this time, so that a missing pair is noticed. Writes to a port
/// name its revision, so an old view of the port does no harm.
const FRESH: Duration = Duration::from_mins(5);

/// The cache.
#[derive(Default)]
pub struct Hops(Mutex<KnownHops>);

#[derive(Default)]
struct KnownHops {
    /// The router's networks: an address elsewhere is another one.
    networks: Option<(BTreeSet<String>, Instant)>,
    /// By address; `None` if not exactly one port has it.
    ports: BTreeMap<IpAddr, (Option<Hop>, Instant)>,
}

impl Hops {
    /// Returns the ports with these addresses in the router's networks. An address that no port
    /// has, or several, is missing in the result.
    pub async fn find(
        &self,
        neutron: &Neutron,
        router: &str,
        addresses: &BTreeSet<IpAddr>,
        call: Call,
    ) -> Result<BTreeMap<IpAddr, Hop>, CloudError> {
        let (fresh, unknown, networks) = {
            let known = self.0.lock();
            let is_fresh = |at: &Instant| at.elapsed() < FRESH;
            let known_of = |ip: &IpAddr| known.ports.get(ip).filter(|(_, at)| is_fresh(at));
            let fresh = |ip: &IpAddr| Some((*ip, known_of(ip)?.0.clone()));
            let fresh: BTreeMap<_, _> = addresses.iter().filter_map(fresh).collect();
            let lacks = |ip: &&IpAddr| !fresh.contains_key(ip);
            let unknown: BTreeSet<IpAddr> = addresses.iter().filter(lacks).copied().collect();
            let networks = known.networks.clone().filter(|(_, at)| is_fresh(at));
            (fresh, unknown, networks.map(|(networks, _)| networks))
        };
        if !unknown.is_empty() {
            let own = async {
                match networks {
                    Some(networks) => Ok::<_, CloudError>(networks),
                    None => {
                        let ports = neutron.router_ports(router, call).await?;
                        Ok(ports.into_iter().map(|port| port.network_id).collect())
                    }
                }
            };
            let (own, ports) = tokio::join!(own, neutron.hops(&unknown, call));
            self.keep(own?, &unknown, ports?);
        }
        let known = self.0.lock();
        // An entry that has expired during the request is still good enough for this call.
        let port = |ip: &IpAddr| known.ports.get(ip).map(|(port, _)| port).or(fresh.get(ip));
        let port = |ip: &IpAddr| Some((*ip, port(ip)?.clone()?));
        Ok(addresses.iter().filter_map(port).collect())
    }

    fn keep(&self, networks: BTreeSet<String>, asked: &BTreeSet<IpAddr>, ports: Vec<Hop>) {
        let now = Instant::now();
        let mut found: BTreeMap<IpAddr, Vec<Hop>> = BTreeMap::new();
        for port in ports.into_iter().filter(|port| networks.contains(&port.network_id)) {
            for address in port.addresses().filter(|address| asked.contains(address)) {
                found.entry(address).or_default().push(port.clone());
            }
        }
        let mut known = self.0.lock();
        known.ports.retain(|_, (_, at)| now.duration_since(*at) < FRESH);
        for address in asked {
            let port = match found.remove(address).as_deref() {
                Some([port]) => Some(port.clone()),
                _ => None,
            };
            known.ports.insert(*address, (port, now));
        }
        known.networks = Some((networks, now));
    }

    /// Records that a port was read or written: this is its state now; `None` if it is gone.
    pub fn update(&self, id: &str, port: Option<&Hop>) {
        let mut known = self.0.lock();
        for (own, at) in known.ports.values_mut() {
            if own.as_ref().is_some_and(|own| own.id == id) {
                (*own, *at) = (port.cloned(), Instant::now());
            }
        }
    }

    /// Forgets addresses without a port, so that the next use of these addresses requests them: a
    /// port may have come since.
    pub fn forget_missing(&self, addresses: &BTreeSet<IpAddr>) {
        let is_missing = |ip: &IpAddr, port: &Option<Hop>| addresses.contains(ip) && port.is_none();
        self.0.lock().ports.retain(|ip, (port, _)| !is_missing(ip, port));
    }
}
