//! Flavors: the types of servers.
//!
//! From microversion 2.47 on, a server contains its flavor's name, but not its ID. The provider
//! requests and caches the missing one: below 2.47 the name; from 2.47 on the ID, if the nodes need
//! it as a label, or if the name is not a valid label value, because then the ID is the instance
//! type. Flavors do not change, but new ones appear.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{Call, CloudError, ErrorKind};
use ccm_openstack_client::{
    api::{AT_ONCE, Api, Collection, Memory, Request, Service},
    compute::Server,
    text::query,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::labels::{is_label_value, label_value};

/// The time between two attempts for flavors that were refused or that were missing in a list.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// A server's flavor, as label values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// The instance type: the flavor's name if it is a valid label value, else its ID, else the
    /// converted name. `None` if it is not known yet.
    pub name: Option<String>,
    /// The flavor's ID, if it is wanted.
    pub id: Option<String>,
}

/// A cache of flavors.
pub struct Flavors {
    api: Arc<dyn Api>,
    /// True if IDs are wanted besides the names.
    ids_wanted: bool,
    /// The names by ID.
    names: Mutex<BTreeMap<String, FlavorName>>,
    ids: Mutex<Option<FlavorIds>>,
}

/// The name of a flavor.
enum FlavorName {
    Known(String),
    /// The request was refused at this time: this project may not see the flavor, or may no longer
    /// see it.
    Refused(Instant),
}

/// The IDs by name. A flavor that Nova does not list any more keeps its ID: servers may still use it.
struct FlavorIds {
    by_name: BTreeMap<String, String>,
    /// The time at which the last list was read or refused.
    read_at: Instant,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    name: String,
}

impl Flavors {
    pub fn new(api: Arc<dyn Api>, ids_wanted: bool) -> Self {
        Self { api, ids_wanted, names: Mutex::default(), ids: Mutex::default() }
    }

    /// Requests the data for [`Flavors::kind`] of these servers.
    ///
    /// A flavor that cannot be read does not cause an error: its server has no known type for now,
    /// and the next call retries. If nodes are labelled with IDs, the first list of IDs must
    /// succeed, because a flapping label would be worse.
    pub async fn fetch(&self, servers: &[Arc<Server>], call: Call) -> Result<(), CloudError> {
        let unknown: BTreeSet<String> = {
            let names = self.names.lock();
            let ids = servers.iter().filter_map(|server| needed(server));
            let is_open = |id: &&str| match names.get(*id) {
                None => true,
                Some(FlavorName::Known(_)) => false,
                Some(FlavorName::Refused(at)) => at.elapsed() >= ASK_AGAIN,
            };
            ids.filter(is_open).map(str::to_owned).collect()
        };
        let asked = unknown.iter().map(|id| async move { (id, self.name_of(id, call).await) });
        let asked: Vec<_> =
            stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        for (id, name) in asked {
            match name {
                Ok(name) => {
                    let name =
                        name.map_or_else(|| FlavorName::Refused(Instant::now()), FlavorName::Known);
                    self.names.lock().insert(id.clone(), name);
                }
                Err(error) => {
                    tracing::warn!(flavor = %id, %error, "cannot read the flavor; the next call retries");
                }
            }
        }
        self.fetch_ids(servers, call).await
    }

    /// Returns the flavor's name; `None` if the cloud refuses to show this flavor.
    async fn name_of(&self, id: &str, call: Call) -> Result<Option<String>, CloudError> {
        let path = format!("/flavors/{}", query(id));
        let get = Request::get(Service::Compute, "flavor_get", &path);
        let flavor: Option<Listed> = match self.api.send(get, call).await {
            Err(error) if is_refusal(&error) => None,
            answer => answer?.object_or_none("flavor")?,
        };
        Ok(flavor.map(|flavor| flavor.name))
    }

    /// Reads the IDs of flavors. Embedded flavors have no ID, so it is looked up by the name, which
    /// is unique in Nova.
    async fn fetch_ids(&self, servers: &[Arc<Server>], call: Call) -> Result<(), CloudError> {
        let mut names = servers.iter().filter_map(|server| embedded(server));
        if !names.any(|name| self.needs_id_of(name)) {
            return Ok(());
        }
        match self.listed(call).await {
            Ok(listed) => self.keep(listed),
            Err(error) if is_refusal(&error) => {
                tracing::warn!(%error, "the cloud refuses to list flavors; known IDs are kept");
                self.keep(BTreeMap::new());
            }
            // A flapping label would be worse than a later answer.
            Err(error) if self.ids_wanted && self.ids.lock().is_none() => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot list flavors; the next call retries"),
        }
        Ok(())
    }

    /// Returns the IDs of all flavors by name.
    async fn listed(&self, call: Call) -> Result<BTreeMap<String, String>, CloudError> {
        let collection = Collection {
            service: Service::Compute,
            operation: "flavor_list",
            path: "/flavors",
            key: "flavors",
        };
        let mut by_name = BTreeMap::new();
        let take = |entry: &str| {
            by_name.extend(serde_json::from_str(entry).map(|it: Listed| (it.name, it.id)));
        };
        collection.entries(&*self.api, &Memory::default(), call, take).await?;
        Ok(by_name)
    }

    /// Adds a list to the cache.
    fn keep(&self, listed: BTreeMap<String, String>) {
        let read_at = Instant::now();
        let mut ids = self.ids.lock();
        let ids = ids.get_or_insert_with(|| FlavorIds { by_name: BTreeMap::new(), read_at });
        ids.by_name.extend(listed);
        ids.read_at = read_at;
    }

    /// Returns true if the ID of the flavor with this name is needed and must be requested.
    fn needs_id_of(&self, name: &str) -> bool {
        (self.ids_wanted || !is_label_value(name)) && self.lacks_id_of(name)
    }

    fn lacks_id_of(&self, name: &str) -> bool {
        self.ids
            .lock()
            .as_ref()
            .is_none_or(|ids| !ids.by_name.contains_key(name) && ids.read_at.elapsed() >= ASK_AGAIN)
    }

    /// Returns the label values of this server's flavor, from the cache.
    pub fn kind(&self, server: &Server) -> Kind {
        let id = self.id_of(server);
        let name = match (embedded(server), needed(server)) {
            (Some(name), _) if is_label_value(name) => Some(name.to_owned()),
            (Some(name), _) => self.id_or_fitted(id.as_deref(), name),
            (None, Some(id)) => self.name_or_id(id),
            (None, None) => None,
        };
        Kind { name, id: id.filter(|_| self.ids_wanted).and_then(|id| label_value(&id)) }
    }

    fn name_or_id(&self, id: &str) -> Option<String> {
        match self.names.lock().get(id)? {
            FlavorName::Known(name) if is_label_value(name) => Some(name.clone()),
            FlavorName::Known(_) | FlavorName::Refused(_) => label_value(id),
        }
    }

    /// Returns the instance type for a name that is not a valid label value. The converted name is
    /// used only if the cloud does not show the ID. Before the first list the node does not get a
    /// type, otherwise the list would change the label.
    fn id_or_fitted(&self, id: Option<&str>, name: &str) -> Option<String> {
        if let Some(id) = id.and_then(label_value) {
            return Some(id);
        }
        self.ids.lock().as_ref().and_then(|_| label_value(name))
    }

    fn id_of(&self, server: &Server) -> Option<String> {
        match (needed(server), embedded(server)) {
            (Some(id), _) => Some(id.to_owned()),
            (None, Some(name)) => self.ids.lock().as_ref()?.by_name.get(name).cloned(),
            (None, None) => None,
        }
    }
}

/// Returns the name of the embedded flavor.
fn embedded(server: &Server) -> Option<&str> {
    server.fields.flavor.as_ref()?.original_name.as_deref()
}

/// Returns the ID of a flavor that is not embedded.
fn needed(server: &Server) -> Option<&str> {
    let flavor = server.fields.flavor.as_ref()?;
    flavor.id.as_deref().filter(|id| flavor.original_name.is_none() && !id.is_empty())
}

/// Returns true if a retry would get the same response.
fn is_refusal(error: &CloudError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound | ErrorKind::Forbidden | ErrorKind::Invalid | ErrorKind::Unsupported
    )
}
