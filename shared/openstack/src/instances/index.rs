//! The servers of the project, by ID and by name, and the entries that are not clear.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, LookupResult};
use ccm_openstack_client::{
    compute::{Listing, Row, Server},
    ids::ServerId,
    text::MAX_VALUE,
};

/// The maximum number of IDs in a message.
const MAX_IDS: usize = 10;

/// The result of finding a server.
pub enum Found {
    /// The server, not yet described.
    Server(Arc<Server>),
    /// The answer is any other one.
    Settled(LookupResult),
}

impl From<CloudError> for Found {
    fn from(error: CloudError) -> Self {
        Self::Settled(Err(error))
    }
}

/// All servers of the project, by ID and by name.
#[derive(Default)]
pub struct Index {
    by_id: BTreeMap<ServerId, IndexEntry>,
    /// The servers that exist, by their names in lower case.
    by_name: BTreeMap<String, Vec<Named>>,
    /// The number of entries without a known name: each of them may be the missing server.
    pub nameless: usize,
    /// The number of entries.
    pub size: usize,
    /// Nova's ID of the request.
    pub request_id: Option<String>,
    /// Why servers may be missing.
    pub gap: Option<String>,
}

struct Named {
    name: String,
    id: ServerId,
}

enum IndexEntry {
    There(Arc<Server>),
    /// The server is soft-deleted.
    SoftDeleted,
    /// The server cannot be described, for this reason.
    Unreadable(CloudError),
}

impl Index {
    pub fn new(listing: Listing) -> Self {
        let Listing { rows, request_id, gap, .. } = listing;
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
                (Some(server.id.clone()), IndexEntry::There(Arc::from(server)))
            }
            // The name of a soft-deleted server is free.
            Row::Whole(server) => {
                self.by_id.insert(server.id.clone(), IndexEntry::SoftDeleted);
                return;
            }
            row => (row.id().cloned(), IndexEntry::Unreadable(unreadable(&row))),
        };
        match (name, &id) {
            (Some(name), Some(id)) => {
                let named = self.by_name.entry(name.to_lowercase()).or_default();
                named.push(Named { name, id: id.clone() });
            }
            _ => self.nameless += 1,
        }
        if let Some(id) = id {
            self.by_id.insert(id, entry);
        }
    }

    /// Returns the server of this ID; `None` if it needs a request.
    pub fn server(&self, id: &ServerId) -> Option<Result<Arc<Server>, CloudError>> {
        match self.by_id.get(id)? {
            IndexEntry::There(server) => Some(Ok(Arc::clone(server))),
            IndexEntry::Unreadable(error) => Some(Err(error.clone())),
            IndexEntry::SoftDeleted => None,
        }
    }

    /// Returns the server of a node's system UUID, unless another one has the node's name.
    pub fn beside(&self, server: Arc<Server>, name: &str) -> Result<Found, CloudError> {
        let other = self.ids_of(name).into_iter().find(|id| *id != server.id);
        match other.filter(|_| server.name != name) {
            Some(other) => Err(contradiction(&server.id, name, &other)),
            None => Ok(Found::Server(server)),
        }
    }

    /// Returns the server with this name; `None` if it does not exist.
    pub fn named(&self, name: &str) -> Option<Result<Found, CloudError>> {
        match &*self.ids_of(name) {
            [] => None,
            [id] => self.server(id).map(|server| server.map(Found::Server)),
            ids => Some(Err(conflict(name, ids))),
        }
    }

    /// Returns the names of all servers that exist.
    pub fn names(&self) -> Vec<&str> {
        self.by_name.values().flatten().map(|named| named.name.as_str()).collect()
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.by_name.contains_key(&name.to_lowercase())
    }

    /// Returns the servers of exactly this name. If no server has it, those whose names differ in
    /// case: node names are lower case, names of servers need not be.
    fn ids_of(&self, name: &str) -> Vec<ServerId> {
        let alike: Vec<_> = self.by_name.get(&name.to_lowercase()).into_iter().flatten().collect();
        let is_exact = |named: &Named| named.name == name;
        let wants_exact = alike.iter().any(|named| is_exact(named));
        let wanted = alike.into_iter().filter(|named| !wants_exact || is_exact(named));
        wanted.map(|named| named.id.clone()).collect()
    }
}

/// Returns the error for a server that exists but cannot be described.
pub fn unreadable(row: &Row) -> CloudError {
    let kind = match row {
        Row::Partial { .. } => ErrorKind::Unavailable,
        Row::Whole(_) | Row::Malformed { .. } => ErrorKind::Malformed,
    };
    CloudError::new(kind, row.trouble().unwrap_or_default())
}

/// Returns the error for a name that several servers have.
fn conflict(name: &str, ids: &[ServerId]) -> CloudError {
    let name = one_line(name, MAX_VALUE);
    let shown: Vec<_> = ids.iter().take(MAX_IDS).map(ServerId::as_str).collect();
    let message = format!(
        "{} servers have the name {name:?} ({}); set spec.providerID of the node, or rename \
         the others",
        ids.len(),
        shown.join(", ")
    );
    CloudError::new(ErrorKind::Conflict, message)
}

/// Returns the error for a node whose system UUID and name lead to two servers.
fn contradiction(by_uuid: &ServerId, name: &str, by_name: &ServerId) -> CloudError {
    let (name, by_uuid, by_name) = (one_line(name, MAX_VALUE), by_uuid.as_str(), by_name.as_str());
    let message = format!(
        "the node's system UUID is server {by_uuid}, but its name {name:?} belongs to server \
         {by_name}; set spec.providerID of the node, or rename one of the servers"
    );
    CloudError::new(ErrorKind::Conflict, message)
}
