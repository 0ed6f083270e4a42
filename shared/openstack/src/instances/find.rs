//! Finds the servers of nodes: by single requests, or in one list of the project.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ccm_cloud::{Call, CloudError, ErrorKind};
use ccm_openstack_client::{
    api::AT_ONCE,
    compute::{Asked, Listing, Nova, Row, Server},
    ids::ServerId,
};
use tokio::sync::OnceCell;

use super::{
    index::{Found, Index, unreadable},
    prove,
    question::NodeLookup,
};

/// Finds the servers of one lookup. Lists the project at most once.
pub struct Finder<'a> {
    nova: &'a Nova,
    call: Call,
    /// The list of the project, once it was read or has failed.
    list: OnceCell<Result<Index, CloudError>>,
    /// The numbers of requests for single servers that were answered and that failed.
    singles: (AtomicUsize, AtomicUsize),
}

impl<'a> Finder<'a> {
    /// Looks into the list first, if there is one; what is not in it is asked for.
    pub fn new(nova: &'a Nova, call: Call, listing: Option<Result<Listing, CloudError>>) -> Self {
        let list = OnceCell::new_with(listing.map(|listing| listing.map(Index::new)));
        Self { nova, call, list, singles: Default::default() }
    }

    /// Finds one server.
    pub async fn answer(&self, question: &NodeLookup) -> Found {
        let found = match question {
            NodeLookup::Settled(answer) => Ok(Found::Settled(answer.clone())),
            _ if let Some(error) = self.error_of_all() => Err(error),
            NodeLookup::ById { id, spelt } => self.by_id(id, spelt).await,
            NodeLookup::Search { uuid, name } => self.search(uuid.as_ref(), name).await,
        };
        found.unwrap_or_else(Found::from)
    }

    /// Returns the error of the list, if single requests would fail as well. One entry that Nova
    /// cannot show, and a list that takes too long, do not concern the servers of other nodes.
    fn error_of_all(&self) -> Option<CloudError> {
        let error = self.list.get()?.as_ref().err()?;
        let may_be_of_one = matches!(
            error.kind,
            ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Malformed
        );
        let (answered, failed) = &self.singles;
        let all_failed =
            answered.load(Ordering::Relaxed) == 0 && failed.load(Ordering::Relaxed) >= AT_ONCE;
        (!may_be_of_one || all_failed).then(|| error.clone())
    }

    fn index(&self) -> Option<&Index> {
        self.list.get()?.as_ref().ok()
    }

    async fn by_id(&self, id: &ServerId, spelt: &str) -> Result<Found, CloudError> {
        if let Some(server) = self.index().and_then(|index| index.server(id)) {
            return server.map(Found::Server);
        }
        let asked = self.single(id).await?;
        match asked.row {
            Some(Row::Whole(server)) if server.exists() => Ok(Found::Server(Arc::from(server))),
            Some(Row::Whole(_)) | None => {
                Ok(prove::gone_by_id(spelt, &asked.evidence, asked.request_id))
            }
            Some(row) => Err(unreadable(&row)),
        }
    }

    async fn single(&self, id: &ServerId) -> Result<Asked, CloudError> {
        let asked = self.nova.server(id, self.call).await;
        let (answered, failed) = &self.singles;
        let count = if asked.is_ok() { answered } else { failed };
        count.fetch_add(1, Ordering::Relaxed);
        asked
    }

    /// Finds a server without a provider ID. A node's system UUID takes precedence over its name,
    /// unless they lead to two servers.
    async fn search(&self, uuid: Option<&ServerId>, name: &str) -> Result<Found, CloudError> {
        if let Some(index) = self.index() {
            return self.search_in(index, uuid, name).await;
        }
        let by_uuid = self.by_uuid(uuid).await?;
        if let Some(server) = by_uuid.as_ref().filter(|server| server.name == name) {
            return Ok(Found::Server(Arc::clone(server)));
        }
        let named = Index::new(self.nova.servers_by_name(name, self.call).await?);
        if let Some(server) = by_uuid {
            return named.beside(server, name);
        }
        if let Some(found) = named.named(name) {
            return found;
        }
        // Unlike the list, a search by name omits servers of cells that are down. If the list omits
        // them as well, it is not requested.
        if let Some(gap) = self.nova.gap() {
            return Err(prove::unproven(name, &gap));
        }
        let list = self.list.get_or_init(|| self.first_page()).await;
        let index = list.as_ref().map_err(|error| match self.nova.gap() {
            Some(gap) => prove::unproven(name, &gap),
            None => error.clone(),
        })?;
        match uuid.and_then(|uuid| index.server(uuid)) {
            Some(server) => index.beside(server?, name),
            None => index.named(name).unwrap_or_else(|| prove::gone_by_name(name, uuid, index)),
        }
    }

    /// Returns the list of the project, if it has one page: one of several proves nothing.
    async fn first_page(&self) -> Result<Index, CloudError> {
        let listing = self.nova.all_servers(self.call, 0).await?;
        let is_long = || CloudError::new(ErrorKind::Unavailable, "the project has several pages");
        listing.whole.then(|| Index::new(listing)).ok_or_else(is_long)
    }

    async fn search_in(
        &self,
        index: &Index,
        uuid: Option<&ServerId>,
        name: &str,
    ) -> Result<Found, CloudError> {
        let by_uuid = match uuid.and_then(|uuid| index.server(uuid)) {
            Some(server) => Some(server?),
            None if index.is_named(name) => None,
            // The list may be incomplete, so the ID is requested as well.
            None => self.by_uuid(uuid).await?,
        };
        match by_uuid {
            Some(server) => index.beside(server, name),
            None => index.named(name).unwrap_or_else(|| prove::gone_by_name(name, uuid, index)),
        }
    }

    /// Returns the server whose ID is the node's system UUID, if there is one.
    async fn by_uuid(&self, uuid: Option<&ServerId>) -> Result<Option<Arc<Server>>, CloudError> {
        let Some(uuid) = uuid else { return Ok(None) };
        match self.single(uuid).await?.row {
            Some(Row::Whole(server)) => Ok(server.exists().then(|| Arc::from(server))),
            Some(row) => Err(unreadable(&row)),
            None => Ok(None),
        }
    }
}
