//! The instances capability: finds nodes among Nova's servers, and describes them with
//! Neutron's ports.

mod addresses;
mod describe;
mod find;
mod flavors;
mod index;
mod port_memory;
mod prove;
mod question;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloud::{
    Call, CloudError, Detail, ErrorKind, Fleet, Instance, InstanceTraits, Instances, Lookup,
    LookupResult, NodeIdentity, ProviderId,
};
use ccm_openstack_client::{
    api::{AT_ONCE, Api},
    compute::{Listing, Nova, Server},
    ids::ServerId,
    network::{NetworkNames, Neutron, Port, Ports},
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::describe::spelt;
use self::flavors::Flavors;
use self::{
    addresses::{Inputs, networks_to_name},
    describe::{describe, named, presence},
    find::Finder,
    index::Found,
    port_memory::PortMemory,
    question::NodeLookup,
};
use crate::{
    config::Config,
    ids::{self, Parsed},
};

/// Up to this number of nodes are requested one by one; for more, the project is listed.
/// Nova's name filter does not support alternatives: it treats `|` as a literal.
const ONE_BY_ONE: usize = 3;
/// The default page size of Nova's lists.
const PAGE: usize = 1_000;
/// After a list that took too long, nodes are requested one by one for this long.
const TOO_LONG: Duration = Duration::from_mins(10);
/// The number of servers in a list of several pages that cost Nova as much as one request by ID.
const LISTED_PER_ASKED: usize = 16;
/// The maximum number of lines about malformed entries. Lines about servers are searched for the
/// names of nodes, so a list with more lines proves nothing.
const MAX_MALFORMED: usize = 1_000;

/// [`Instances`] with Nova and Neutron.
pub struct OpenStackInstances {
    api: Arc<dyn Api>,
    nova: Nova,
    flavors: Flavors,
    neutron: Arc<Neutron>,
    names: Arc<NetworkNames>,
    config: Arc<Config>,
    /// The time until which the project is not listed, because the last list took too long.
    too_long_until: Mutex<Option<Instant>>,
    /// The ports that Neutron has returned so far.
    port_memory: PortMemory,
}

#[async_trait]
impl Instances for OpenStackInstances {
    fn traits(&self) -> InstanceTraits {
        InstanceTraits { lists_for_lookups: true, ..InstanceTraits::default() }
    }

    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let questions: Vec<_> = nodes
            .iter()
            .map(|node| NodeLookup::new(node, self.config.access.region.as_deref()))
            .collect();
        let open = questions.iter().filter(|question| question.asks_the_cloud()).count();
        let most_listed = self.most_listed(open);
        let wants_ports = detail == Detail::Everything;
        // Single requests do not read ports early: a server that is gone does not need them.
        let early: BTreeSet<ServerId> = match most_listed.is_some() && wants_ports {
            true => questions.iter().filter_map(NodeLookup::server).cloned().collect(),
            false => BTreeSet::new(),
        };
        let find = self.find(&questions, most_listed, call);
        let (found, early) = tokio::join!(find, self.early(early, call));
        match wants_ports {
            true => self.describe_found(found, early, call).await,
            false => found.into_iter().map(|found| self.present(found)).collect(),
        }
    }

    async fn list(&self, call: Call) -> Result<Fleet, CloudError> {
        let mut fleet = Fleet::default();
        for entry in self.nova.all_names(call).await? {
            match entry.and_then(|(id, name)| named(&self.config, &id, &name)) {
                Ok(instance) => fleet.instances.push(self.in_region(instance)),
                Err(line) => fleet.malformed.push(line),
            }
        }
        complete(&fleet.malformed)?;
        Ok(fleet)
    }
}

impl OpenStackInstances {
    pub fn new(api: Arc<dyn Api>, config: impl Into<Arc<Config>>) -> Self {
        let config = config.into();
        Self {
            nova: Nova::new(Arc::clone(&api)),
            flavors: Flavors::new(Arc::clone(&api), config.labels.flavor_id),
            neutron: Arc::new(Neutron::new(Arc::clone(&api))),
            api,
            names: Arc::default(),
            config,
            too_long_until: Mutex::default(),
            port_memory: PortMemory::default(),
        }
    }

    /// Adds the ID that names the region in use, if no region is configured: nodes may have it.
    fn in_region(&self, mut instance: Instance) -> Instance {
        if self.config.access.region.is_none()
            && let Some(region) = self.api.region()
            && let Parsed::Ours(id) = ids::parse(instance.provider_id.as_str(), None)
        {
            let regional = ids::format(true, Some(&region), &id);
            instance.other_ids.extend(ProviderId::parse(&regional));
        }
        instance
    }

    /// Reads the ports of servers that may not exist.
    async fn early(&self, servers: BTreeSet<ServerId>, call: Call) -> Early {
        let ports = self.neutron.ports_of(&servers, call).await;
        (servers, ports)
    }

    async fn find(
        &self,
        questions: &[NodeLookup],
        most_listed: Option<usize>,
        call: Call,
    ) -> Vec<Found> {
        let listing = match most_listed {
            Some(most) => self.listing(most, call).await.transpose(),
            None => None,
        };
        let finder = Finder::new(&self.nova, call, listing);
        let found: Vec<_> = questions.iter().map(|question| finder.answer(question)).collect();
        stream::iter(found).buffered(AT_ONCE).collect().await
    }

    /// Returns the list of the project, in half of the time: the other half is for single requests,
    /// should the list take too long. `None` if the project has more servers than it is worth.
    async fn listing(&self, most: usize, call: Call) -> Result<Option<Listing>, CloudError> {
        let half = Call { end: Instant::now() + call.left() / 2, ..call };
        let listing = self.nova.all_servers(half, most).await.inspect_err(|error| {
            if error.kind == ErrorKind::Timeout {
                *self.too_long_until.lock() = Some(Instant::now() + TOO_LONG);
            }
        });
        listing.map(|listing| listing.whole.then_some(listing))
    }

    /// Returns the largest number of servers for which one list is cheaper than this number of
    /// single requests, if it can be. In a project of several pages, which are mostly unrelated
    /// servers, a few single requests are cheaper. The size of the project may be known from a part
    /// of it only.
    fn most_listed(&self, questions: usize) -> Option<usize> {
        if self.too_long_until.lock().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let most = PAGE.max(questions * LISTED_PER_ASKED);
        (questions > ONE_BY_ONE && self.nova.project_size() <= most).then_some(most)
    }

    /// Returns the answer with IDs, name and power state only.
    fn present(&self, found: Found) -> LookupResult {
        match found {
            Found::Settled(answer) => answer,
            Found::Server(server) => presence(&server, &self.config)
                .map(|instance| Lookup::Found(Box::new(self.in_region(instance))))
                .map_err(|line| CloudError::new(ErrorKind::Malformed, line)),
        }
    }

    async fn describe_found(
        &self,
        found: Vec<Found>,
        early: Early,
        call: Call,
    ) -> Vec<LookupResult> {
        let servers: BTreeMap<ServerId, Arc<Server>> = found
            .iter()
            .filter_map(|found| match found {
                Found::Server(server) => Some((server.id.clone(), Arc::clone(server))),
                Found::Settled(_) => None,
            })
            .collect();
        let servers: Vec<_> = servers.into_values().collect();
        let related = self.related(&servers, early, call).await;
        let answers = found.into_iter().map(|found| match (found, &related) {
            (Found::Settled(answer), _) => answer,
            (Found::Server(_), Err(error)) => Err(error.clone()),
            (Found::Server(server), Ok(related)) => self
                .describe(&server, related)
                .map(|instance| Lookup::Found(Box::new(self.in_region(instance)))),
        });
        answers.collect()
    }

    /// Reads ports, flavors and network names of these servers.
    async fn related(
        &self,
        servers: &[Arc<Server>],
        early: Early,
        call: Call,
    ) -> Result<RelatedData, CloudError> {
        if servers.is_empty() {
            return Ok(RelatedData::default());
        }
        let (known, ports) = early;
        let mut ports = ports?;
        let ids = servers.iter().map(|server| &server.id);
        let late = ids.filter(|id| !known.contains(*id)).cloned().collect();
        let late = self.neutron.ports_of(&late, call);
        let (late, flavors) = tokio::join!(late, self.flavors.fetch(servers, call));
        flavors?;
        ports.add(late?);
        self.port_memory.note(&ports);
        let mut unnamed = BTreeSet::new();
        for server in servers {
            let (own, subs) = ports_of(&ports, server);
            let networks = networks_to_name(server, own, &subs, &self.config.networking);
            unnamed.extend(networks.map(str::to_owned));
        }
        let names = self.names.resolve(&unnamed, &self.neutron, call).await?;
        Ok(RelatedData { ports, names })
    }

    fn describe(&self, server: &Server, related: &RelatedData) -> Result<Instance, CloudError> {
        let malformed = |line| CloudError::new(ErrorKind::Malformed, line);
        let (ports, sub_ports) = ports_of(&related.ports, server);
        let unreadable = |id| related.ports.unreadable_children.get(id);
        let of_trunks = || ports.iter().flat_map(Port::sub_port_ids).find_map(unreadable);
        if let Some(line) = related.ports.unreadable.get(server.id.as_str()).or_else(of_trunks) {
            return Err(malformed(server.about(line)));
        }
        let missing = |line: String| CloudError::new(ErrorKind::Unavailable, server.about(line));
        self.port_memory.check(server, ports, &sub_ports).map_err(missing)?;
        let known = Inputs { server, ports, sub_ports: &sub_ports, names: &related.names };
        describe(&known, self.flavors.kind(server), &self.config).map_err(malformed)
    }
}

/// Servers that may not exist, and their ports.
type Early = (BTreeSet<ServerId>, Result<Ports, CloudError>);

/// The data about servers from other requests.
#[derive(Default)]
struct RelatedData {
    ports: Ports,
    /// Names of networks by ID.
    names: BTreeMap<String, String>,
}

/// Returns a server's ports and their sub-ports.
fn ports_of<'a>(ports: &'a Ports, server: &Server) -> (&'a [Port], Vec<Port>) {
    let own = ports.of_servers.get(server.id.as_str()).map(Vec::as_slice).unwrap_or_default();
    let sub_ids = own.iter().flat_map(Port::sub_port_ids);
    (own, sub_ids.filter_map(|id| ports.carried.get(id).cloned()).collect())
}

/// Rejects a list with more than [`MAX_MALFORMED`] malformed servers.
fn complete(malformed: &[String]) -> Result<(), CloudError> {
    let (count, first) = match malformed {
        [first, ..] if malformed.len() > MAX_MALFORMED => (malformed.len(), first),
        _ => return Ok(()),
    };
    let what = format!("{count} entries of the list of servers could not be parsed, like: {first}");
    Err(CloudError::new(ErrorKind::Malformed, what))
}

#[cfg(test)]
mod tests;
