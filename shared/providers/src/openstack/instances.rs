//! The instances capability: nodes are found among Nova's servers and described with
//! Neutron's ports.

mod find;
mod prove;
mod question;
mod seen;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use ccm_base::message::one_line;
use ccm_cloud::{
    Call, CloudError, Detail, ErrorKind, Fleet, Instance, Instances, Lookup, LookupResult,
    NodeIdentity,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use self::{
    find::{Finder, Found},
    question::Question,
    seen::Seen,
};
use super::{
    addresses::{Known, networks_to_name},
    client::Api,
    config::Config,
    describe::{Shape, describe, presence},
    ids::ServerId,
    neutron::{NetworkNames, Neutron, Port, Ports},
    nova::{Flavors, Listing, Nova, Row, Server},
    text::MAX_VALUE,
};

/// So many nodes are asked for one by one; for more, the whole project is listed. Nova
/// cannot be asked for several names at once: it takes `|` in the filter for a letter.
const ONE_BY_ONE: usize = 3;
/// So many servers may be asked for at once.
const AT_ONCE: usize = 8;
/// Servers on one page of a list, by Nova's default.
const PAGE: usize = 1_000;
/// In a list of several pages, so many servers cost Nova as much as one that is asked for
/// by its ID.
const LISTED_PER_ASKED: usize = 16;
/// No more lines about malformed entries are kept than this; the rest is counted.
const MAX_MALFORMED: usize = 1_000;

/// [`Instances`] by Nova and Neutron.
pub(super) struct OpenStackInstances {
    nova: Nova,
    flavors: Flavors,
    neutron: Arc<Neutron>,
    names: Arc<NetworkNames>,
    pub(super) shape: Shape,
    /// How many servers the project had when it was last listed.
    project_size: AtomicUsize,
    /// Which ones those were, so that their ports can be asked for together with the next
    /// list instead of after it.
    project: Mutex<Arc<BTreeSet<ServerId>>>,
    /// What Neutron has shown of their ports.
    seen: Arc<Seen>,
}

#[async_trait]
impl Instances for OpenStackInstances {
    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let questions: Vec<_> =
            nodes.iter().map(|node| Question::of(node, self.shape.region.as_deref())).collect();
        let open = questions.iter().filter(|question| question.asks_the_cloud()).count();
        let should_list = self.should_list(open);
        // One by one it is not worth while: of a server that is gone no ports are needed.
        let early: BTreeSet<ServerId> = match should_list && wants_ports(detail) {
            true => questions.iter().filter_map(Question::server).cloned().collect(),
            false => BTreeSet::new(),
        };
        let find = self.find(&questions, should_list, call);
        let (found, early) = tokio::join!(find, self.early(Arc::new(early), call));
        if wants_ports(detail) {
            return self.describe_found(found, early, call).await;
        }
        found.into_iter().map(|found| self.present(found)).collect()
    }

    async fn list(&self, detail: Detail, call: Call) -> Result<Fleet, CloudError> {
        if !wants_ports(detail) {
            return self.roll(call).await;
        }
        let known = Arc::clone(&self.project.lock());
        let listing = async {
            let listing = self.nova.all_servers(call).await?;
            self.remember(&listing);
            Ok::<_, CloudError>(listing)
        };
        let (listing, early) = tokio::join!(listing, self.early(known, call));
        self.fleet(listing?, early, call).await
    }
}

impl OpenStackInstances {
    pub(super) fn new(api: Arc<dyn Api>, config: &Config) -> Self {
        Self::shaped(api, config.into())
    }

    fn shaped(api: Arc<dyn Api>, shape: Shape) -> Self {
        Self {
            nova: Nova::new(Arc::clone(&api)),
            flavors: Flavors::new(Arc::clone(&api), shape.labels.flavor_id),
            neutron: Arc::new(Neutron::new(api)),
            names: Arc::default(),
            shape,
            project_size: AtomicUsize::new(0),
            project: Mutex::default(),
            seen: Arc::default(),
        }
    }

    /// The same with what another one has learnt of the same project.
    pub(super) fn knowing(self, other: &Self) -> Self {
        let flavors = self.flavors.knowing(&other.flavors);
        Self { flavors, seen: Arc::clone(&other.seen), ..self }
    }

    fn remember(&self, listing: &Listing) {
        self.project_size.store(listing.rows.len(), Ordering::Relaxed);
        let ids = listing.rows.iter().filter_map(Row::id).cloned();
        *self.project.lock() = Arc::new(ids.collect());
    }

    /// The fleet by IDs and names alone: one list of Nova's, and a short one.
    async fn roll(&self, call: Call) -> Result<Fleet, CloudError> {
        let mut fleet = Fleet::default();
        let entries = self.nova.all_names(call).await?;
        self.project_size.store(entries.len(), Ordering::Relaxed);
        for entry in entries {
            match entry.and_then(|(id, name)| self.shape.named(&id, &name)) {
                Ok(instance) => fleet.instances.push(instance),
                Err(line) => fleet.malformed.push(line),
            }
        }
        bound(&mut fleet.malformed);
        Ok(fleet)
    }

    /// Reads ports of servers before it is known that those exist.
    async fn early(&self, servers: Arc<BTreeSet<ServerId>>, call: Call) -> Early {
        let ports = self.neutron.ports_of(&servers, call).await;
        Early { servers, ports }
    }

    async fn find(&self, questions: &[Question], should_list: bool, call: Call) -> Vec<Found> {
        let listing = match should_list {
            true => Some(self.nova.all_servers(call).await),
            false => None,
        };
        let finder = Finder::new(&self.nova, call, listing);
        let found: Vec<_> = questions.iter().map(|question| finder.answer(question)).collect();
        let found: Vec<Found> = stream::iter(found).buffered(AT_ONCE).collect().await;
        if let Some(size) = finder.listed() {
            self.project_size.store(size, Ordering::Relaxed);
        }
        found
    }

    /// Whether one list is cheaper than this many questions. In a project of several
    /// pages, most of them other people's servers, a few questions are cheaper.
    fn should_list(&self, questions: usize) -> bool {
        let size = self.project_size.load(Ordering::Relaxed);
        questions > ONE_BY_ONE && (size <= PAGE || questions * LISTED_PER_ASKED >= size)
    }

    /// The answer to a caller who only wants to know whether the server is there and runs.
    fn present(&self, found: Found) -> LookupResult {
        match found {
            Found::Settled(answer) => answer,
            Found::Server(server) => presence(&server, &self.shape)
                .map(|instance| Lookup::Found(Box::new(instance)))
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
        let surroundings = self.surroundings(&servers, early, call).await;
        let answers = found.into_iter().map(|found| match (found, &surroundings) {
            (Found::Settled(answer), _) => answer,
            (Found::Server(_), Err(error)) => Err(error.clone()),
            (Found::Server(server), Ok(around)) => {
                self.describe(&server, around).map(|instance| Lookup::Found(Box::new(instance)))
            }
        });
        answers.collect()
    }

    async fn fleet(&self, listing: Listing, early: Early, call: Call) -> Result<Fleet, CloudError> {
        let mut fleet = Fleet::default();
        let mut servers = Vec::new();
        for row in listing.rows {
            match row {
                Row::Whole(server) if server.exists() => servers.push(Arc::from(server)),
                // It waits to be reclaimed: not there, and nothing is wrong.
                Row::Whole(_) => {}
                row => fleet.malformed.extend(row.trouble()),
            }
        }
        let around = self.surroundings(&servers, early, call).await?;
        for server in &servers {
            match self.describe(server, &around) {
                Ok(instance) => fleet.instances.push(instance),
                Err(error) => fleet.malformed.push(error.message),
            }
        }
        fleet.malformed.extend(around.ports.malformed);
        bound(&mut fleet.malformed);
        Ok(fleet)
    }

    /// Reads what describing these servers takes beside themselves.
    async fn surroundings(
        &self,
        servers: &[Arc<Server>],
        early: Early,
        call: Call,
    ) -> Result<Surroundings, CloudError> {
        if servers.is_empty() {
            return Ok(Surroundings::default());
        }
        let mut ports = early.ports?;
        let ids = servers.iter().map(|server| &server.id);
        let late = ids.filter(|id| !early.servers.contains(*id)).cloned().collect();
        let late = self.neutron.ports_of(&late, call);
        let (late, flavors) = tokio::join!(late, self.flavors.learn(servers, call));
        flavors?;
        ports.add(late?);
        self.seen.note(&ports);
        let mut unnamed = BTreeSet::new();
        for server in servers {
            let (own, subs) = ports_of(&ports, server);
            let networks = networks_to_name(server, own, &subs, &self.shape.networking);
            unnamed.extend(networks.map(str::to_owned));
        }
        let names = self.names.of(&unnamed, &self.neutron, call).await?;
        Ok(Surroundings { ports, names })
    }

    fn describe(&self, server: &Server, around: &Surroundings) -> Result<Instance, CloudError> {
        let about = |line: &str| {
            let name = one_line(&server.name, MAX_VALUE);
            format!("server with ID {:?} and name {name:?}: {line}", server.id.as_str())
        };
        let malformed = |line| CloudError::new(ErrorKind::Malformed, line);
        let (ports, sub_ports) = ports_of(&around.ports, server);
        if let Some(line) = around.ports.spoilt.get(server.id.as_str()) {
            return Err(malformed(about(line)));
        }
        let mut subs = ports.iter().flat_map(Port::sub_port_ids);
        if let Some(line) = subs.find_map(|id| around.ports.spoilt_subs.get(id)) {
            return Err(malformed(about(line)));
        }
        let missing = |line: String| CloudError::new(ErrorKind::Unavailable, about(&line));
        self.seen.check(server, ports, &sub_ports).map_err(missing)?;
        let known = Known { server, ports, sub_ports: &sub_ports, names: &around.names };
        describe(&known, self.flavors.kind(server), &self.shape).map_err(malformed)
    }
}

/// Whether more is wanted than which servers there are.
fn wants_ports(detail: Detail) -> bool {
    detail == Detail::Everything
}

/// The ports of servers that were asked for before it was known that those exist.
struct Early {
    servers: Arc<BTreeSet<ServerId>>,
    ports: Result<Ports, CloudError>,
}

/// What describing servers takes beside themselves.
#[derive(Default)]
struct Surroundings {
    ports: Ports,
    /// Names of networks by ID.
    names: BTreeMap<String, String>,
}

/// A server's ports and their sub-ports.
fn ports_of<'a>(ports: &'a Ports, server: &Server) -> (&'a [Port], Vec<Port>) {
    let own = ports.of_servers.get(server.id.as_str()).map(Vec::as_slice).unwrap_or_default();
    let sub_ids = own.iter().flat_map(Port::sub_port_ids);
    (own, sub_ids.filter_map(|id| ports.carried.get(id).cloned()).collect())
}

/// Keeps a bounded number of lines.
fn bound(lines: &mut Vec<String>) {
    let more = lines.len().saturating_sub(MAX_MALFORMED);
    if more > 0 {
        lines.truncate(MAX_MALFORMED);
        lines.push(format!("and {more} more"));
    }
}

#[cfg(test)]
mod tests;
