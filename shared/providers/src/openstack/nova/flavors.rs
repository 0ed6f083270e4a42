//! Flavors: the types of servers.
//!
//! From microversion 2.47 on a server brings its flavor's name along; below that, and
//! when nodes are labelled with the flavor's ID, the rest is asked for and kept. Flavors
//! do not change, but new ones appear.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{CloudError, ErrorKind};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    super::{
        client::{Api, Get, Service},
        deadline::Deadline,
        page::{Collection, malformed},
        text::{is_label_value, label_value, query},
    },
    Server,
};

/// So many flavors are asked for at once.
const AT_ONCE: usize = 8;
/// A list of flavors that misses one is not read again before this time has passed.
const LIST_AGAIN: Duration = Duration::from_mins(10);

/// What a server's flavor is, as labels say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The instance type: the flavor's name, or its ID if it has no usable name.
    pub(crate) name: Option<String>,
    /// The flavor's ID, if it was asked for.
    pub(crate) id: Option<String>,
}

/// The flavors that have been met.
pub(crate) struct Flavors {
    api: Arc<dyn Api>,
    /// Whether IDs are wanted beside the names.
    ids_wanted: bool,
    /// Names by ID; `None` for a flavor that this project may not see any more.
    names: Mutex<BTreeMap<String, Option<String>>>,
    ids: Mutex<Option<Ids>>,
}

/// IDs by name, as listed.
struct Ids {
    by_name: BTreeMap<String, String>,
    read_at: Instant,
}

#[derive(Deserialize)]
struct OneFlavor {
    flavor: Listed,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    name: String,
}

impl Flavors {
    pub(crate) fn new(api: Arc<dyn Api>, ids_wanted: bool) -> Self {
        Self { api, ids_wanted, names: Mutex::default(), ids: Mutex::default() }
    }

    /// Learns what is needed to answer [`Flavors::kind`] for these servers.
    ///
    /// A flavor that cannot be read is no reason to fail: then its server has no known
    /// type for now, and the next call asks again. The first list of IDs is one, if IDs
    /// are wanted: a label that comes and goes would be worse.
    pub(crate) async fn learn(
        &self,
        servers: &[Arc<Server>],
        deadline: Deadline,
    ) -> Result<(), CloudError> {
        let unknown: BTreeSet<String> = {
            let names = self.names.lock();
            let ids = servers.iter().filter_map(|server| needed(server));
            ids.filter(|id| !names.contains_key(*id)).map(str::to_owned).collect()
        };
        let asked = unknown.iter().map(|id| async move { (id, self.name_of(id, deadline).await) });
        let asked: Vec<_> =
            stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        for (id, name) in asked {
            match name {
                Ok(name) => {
                    self.names.lock().insert(id.clone(), name);
                }
                Err(error) => {
                    tracing::warn!(flavor = %id, %error, "flavor unknown for now");
                }
            }
        }
        self.learn_ids(servers, deadline).await
    }

    /// The flavor's name; `None` if the cloud refuses to show this flavor.
    async fn name_of(&self, id: &str, deadline: Deadline) -> Result<Option<String>, CloudError> {
        let operation = "flavor_get";
        let path = format!("/flavors/{}", query(id));
        let get = Get { service: Service::Compute, operation, path: &path };
        let answer = match self.api.get(get, deadline.rest()).await {
            Ok(answer) if answer.status == 404 => return Ok(None),
            Ok(answer) => answer,
            Err(error) if is_refusal(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_slice::<OneFlavor>(&answer.body)
            .map(|body| Some(body.flavor.name))
            .map_err(|error| malformed(operation, &answer, &error.to_string()))
    }

    /// Embedded flavors come without their ID, so it is looked up by the name, which
    /// Nova keeps unique.
    async fn learn_ids(
        &self,
        servers: &[Arc<Server>],
        deadline: Deadline,
    ) -> Result<(), CloudError> {
        let names = servers.iter().filter_map(|server| embedded(server));
        if !self.ids_wanted || !names.into_iter().any(|name| self.lacks_id_of(name)) {
            return Ok(());
        }
        let collection = Collection {
            service: Service::Compute,
            operation: "flavor_list",
            path: "/flavors",
            key: "flavors",
        };
        let mut by_name = BTreeMap::new();
        let read = collection.read(&*self.api, deadline, |entry| {
            let flavor: Listed = serde_json::from_str(entry).ok()?;
            by_name.insert(flavor.name, flavor.id.clone());
            Some(flavor.id)
        });
        match read.await {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {
                tracing::warn!(%error, "flavors cannot be listed: no label with their ID");
            }
            // A label that comes and goes with the weather is worse than an answer later.
            Err(error) if self.ids.lock().is_none() => return Err(error),
            Err(_) => return Ok(()),
        }
        *self.ids.lock() = Some(Ids { by_name, read_at: Instant::now() });
        Ok(())
    }

    fn lacks_id_of(&self, name: &str) -> bool {
        self.ids.lock().as_ref().is_none_or(|ids| {
            !ids.by_name.contains_key(name) && ids.read_at.elapsed() >= LIST_AGAIN
        })
    }

    /// What is known of this server's flavor.
    pub(crate) fn kind(&self, server: &Server) -> Kind {
        let id = self.id_of(server);
        let name = match (embedded(server), needed(server)) {
            (Some(name), _) if is_label_value(name) => Some(name.to_owned()),
            (Some(name), _) => label_value(name),
            (None, Some(id)) => self.name_or_id(id),
            (None, None) => None,
        };
        Kind { name, id: id.filter(|_| self.ids_wanted).and_then(|id| label_value(&id)) }
    }

    fn name_or_id(&self, id: &str) -> Option<String> {
        let name = self.names.lock().get(id).cloned()?;
        name.filter(|name| is_label_value(name)).or_else(|| label_value(id))
    }

    fn id_of(&self, server: &Server) -> Option<String> {
        match (needed(server), embedded(server)) {
            (Some(id), _) => Some(id.to_owned()),
            (None, Some(name)) => self.ids.lock().as_ref()?.by_name.get(name).cloned(),
            (None, None) => None,
        }
    }
}

/// The name of the embedded flavor.
fn embedded(server: &Server) -> Option<&str> {
    server.fields.flavor.as_ref()?.original_name.as_deref()
}

/// The ID of a flavor that is not embedded.
fn needed(server: &Server) -> Option<&str> {
    let flavor = server.fields.flavor.as_ref()?;
    flavor.id.as_deref().filter(|id| flavor.original_name.is_none() && !id.is_empty())
}

/// Whether asking again would get the same answer.
fn is_refusal(error: &CloudError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound | ErrorKind::Forbidden | ErrorKind::Invalid | ErrorKind::Unsupported
    )
}
