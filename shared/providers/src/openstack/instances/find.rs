//! Finds the servers of nodes: by single requests, or in one list of the project.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{Call, CloudError, ErrorKind, LookupResult};
use tokio::sync::OnceCell;

use super::{
    super::{
        compute::{Listing, Nova, Row, Server},
        ids::ServerId,
    },
    prove,
    question::NodeLookup,
};

/// The result of finding a server.
pub(super) enum Found {
    /// The server, not yet described.
    Server(Arc<Server>),
    /// Any other answer.
    Settled(LookupResult),
}

impl From<CloudError> for Found {
    fn from(error: CloudError) -> Self {
        Self::Settled(Err(error))
    }
}

/// Finds the servers of one lookup. Lists the project at most once.
pub(super) struct Finder<'a> {
    nova: &'a Nova,
    call: Call,
    index: OnceCell<Index>,
    /// The error of the list, if it failed.
    failed: Option<CloudError>,
}

/// All servers of the project, by ID and by name.
#[derive(Default)]
pub(super) struct Index {
    by_id: BTreeMap<ServerId, Entry>,
    /// Servers that exist, by their exact name.
    by_name: BTreeMap<String, Vec<ServerId>>,
    /// Entries without a known name: each of them may be the missing server.
    pub(super) nameless: usize,
    /// The number of entries.
    pub(super) size: usize,
    /// Nova's ID of the request.
    pub(super) request_id: Option<String>,
    /// Why servers may be missing.
    pub(super) gap: Option<String>,
}

enum Entry {
    There(Arc<Server>),
    /// Soft-deleted.
    SoftDeleted,
    /// It cannot be described, for this reason.
    Unreadable(CloudError),
}

impl<'a> Finder<'a> {
    /// Looks into the list first, if there is one; what is not in it is asked for.
    pub(super) fn new(
        nova: &'a Nova,
        call: Call,
        listing: Option<Result<Listing, CloudError>>,
    ) -> Self {
        let (index, failed) = match listing.transpose() {
            Ok(listing) => (OnceCell::new_with(listing.map(Index::of)), None),
            Err(error) => (OnceCell::new(), Some(error)),
        };
        Self { nova, call, index, failed }
    }

    /// The number of listed servers, if there was a list.
    pub(super) fn listed(&self) -> Option<usize> {
        self.index.get().map(|index| index.size)
    }

    /// Finds one server.
    pub(super) async fn answer(&self, question: &NodeLookup) -> Found {
        // A list that took too long says nothing about single servers.
        let failed = self.failed.as_ref();
        let of_one = failed.filter(|error| error.kind != ErrorKind::Timeout);
        let found = match question {
            NodeLookup::Settled(answer) => Ok(Found::Settled(answer.clone())),
            NodeLookup::ById { id, spelt } => match of_one {
                Some(error) => Err(error.clone()),
                None => self.by_id(id, spelt).await,
            },
            NodeLookup::Search { uuid, name } => match failed {
                Some(error) => Err(error.clone()),
                None => self.search(uuid.as_ref(), name).await,
            },
        };
        found.unwrap_or_else(Found::from)
    }

    async fn by_id(&self, id: &ServerId, spelt: &str) -> Result<Found, CloudError> {
        if let Some(server) = self.index.get().and_then(|index| index.server(id)) {
            return server.map(Found::Server);
        }
        let asked = self.nova.server(id, self.call).await?;
        match asked.row {
            Some(Row::Whole(server)) if server.exists() => Ok(Found::Server(Arc::from(server))),
            Some(Row::Whole(_)) | None => {
                Ok(prove::gone_by_id(spelt, &asked.evidence, asked.request_id))
            }
            Some(row) => Err(unreadable(&row)),
        }
    }

    /// A node's system UUID goes before its name, unless they lead to two servers.
    async fn search(&self, uuid: Option<&ServerId>, name: &str) -> Result<Found, CloudError> {
        if let Some(index) = self.index.get() {
            return self.search_in(index, uuid, name).await;
        }
        let by_uuid = self.by_uuid(uuid).await?;
        if let Some(server) = by_uuid.as_ref().filter(|server| server.name == name) {
            return Ok(Found::Server(Arc::clone(server)));
        }
        let named = Index::of(self.nova.servers_by_name(name, self.call).await?);
        if let Some(server) = by_uuid {
            return named.beside(server, name);
        }
        if let Some(found) = named.named(name) {
            return found;
        }
        // Other than the list, a search by name omits servers of cells that are down. If the
        // list omits them as well, do not request it.
        if let Some(gap) = self.nova.gap() {
            return Err(prove::unproven(name, &gap));
        }
        let list = || async { self.nova.all_servers(self.call).await.map(Index::of) };
        let index = self.index.get_or_try_init(list).await?;
        match uuid.and_then(|uuid| index.server(uuid)) {
            Some(server) => index.beside(server?, name),
            None => index.named(name).unwrap_or_else(|| prove::gone_by_name(name, index)),
        }
    }

    async fn search_in(
        &self,
        index: &Index,
        uuid: Option<&ServerId>,
        name: &str,
    ) -> Result<Found, CloudError> {
        let by_uuid = match uuid.and_then(|uuid| index.server(uuid)) {
            Some(server) => Some(server?),
            None if index.by_name.contains_key(name) => None,
            // The list may be incomplete: request the ID as well.
            None => self.by_uuid(uuid).await?,
        };
        match by_uuid {
            Some(server) => index.beside(server, name),
            None => index.named(name).unwrap_or_else(|| prove::gone_by_name(name, index)),
        }
    }

    /// The server whose ID is the node's system UUID, if there is one.
    async fn by_uuid(&self, uuid: Option<&ServerId>) -> Result<Option<Arc<Server>>, CloudError> {
        let Some(uuid) = uuid else { return Ok(None) };
        match self.nova.server(uuid, self.call).await?.row {
            Some(Row::Whole(server)) => Ok(server.exists().then(|| Arc::from(server))),
            Some(row) => Err(unreadable(&row)),
            None => Ok(None),
        }
    }
}

impl Index {
    fn of(listing: Listing) -> Self {
        let Listing { rows, request_id, gap } = listing;
        let mut index = Self { size: rows.len(), request_id, gap, ..Self::default() };
        for row in rows {
            index.add(row);
        }
        index
    }

    fn add(&mut self, row: Row) {
        let name = row.name().map(str::to_owned);
        let (id, entry) = match row {
            Row::Whole(server) if server.exists() => {
                (Some(server.id.clone()), Entry::There(Arc::from(server)))
            }
            // A soft-deleted server does not occupy its name.
            Row::Whole(server) => {
                self.by_id.insert(server.id.clone(), Entry::SoftDeleted);
                return;
            }
            row => (row.id().cloned(), Entry::Unreadable(unreadable(&row))),
        };
        match (name, &id) {
            (Some(name), Some(id)) => self.by_name.entry(name).or_default().push(id.clone()),
            _ => self.nameless += 1,
        }
        if let Some(id) = id {
            self.by_id.insert(id, entry);
        }
    }

    /// The server of this ID; `None` if it needs a request.
    fn server(&self, id: &ServerId) -> Option<Result<Arc<Server>, CloudError>> {
        match self.by_id.get(id)? {
            Entry::There(server) => Some(Ok(Arc::clone(server))),
            Entry::Unreadable(error) => Some(Err(error.clone())),
            Entry::SoftDeleted => None,
        }
    }

    /// The server of a node's system UUID, unless another one has the node's name.
    fn beside(&self, server: Arc<Server>, name: &str) -> Result<Found, CloudError> {
        let named = self.by_name.get(name).into_iter().flatten();
        let others: Vec<_> = named.filter(|id| **id != server.id).collect();
        match others.first() {
            Some(other) if server.name != name => {
                Err(prove::contradiction(&server.id, name, other))
            }
            _ => Ok(Found::Server(server)),
        }
    }

    /// The server of this name; `None` if there is none.
    fn named(&self, name: &str) -> Option<Result<Found, CloudError>> {
        let ids = self.by_name.get(name)?;
        match ids.as_slice() {
            [] => None,
            [id] => self.server(id).map(|server| server.map(Found::Server)),
            ids => Some(Err(prove::conflict(name, ids))),
        }
    }
}

/// The error for a server that exists but cannot be described.
fn unreadable(row: &Row) -> CloudError {
    let kind = match row {
        Row::Partial { .. } => ErrorKind::Unavailable,
        Row::Whole(_) | Row::Malformed { .. } => ErrorKind::Malformed,
    };
    CloudError::new(kind, row.trouble().unwrap_or_default())
}
