//! A simulated Kubernetes API server: one core with two front ends.
//!
//! * [`ApiServer::service`] is a tower service, for a client in the same process. It waits
//!   only on tokio timers, so it is deterministic and works under paused tokio time.
//! * [`ApiServer::listen`] serves the same over HTTP/1.1, for real programs and `kubectl`.
//!
//! Its behaviour is checked against a real kube-apiserver: status bodies, patch results, tables,
//! list and watch semantics. It implements nodes, events, leases, services, namespaces, config
//! maps, secrets and service accounts as typed resources; a few more kinds only as far as `kubectl
//! describe` needs them. It has neither server-side apply, protobuf nor authentication, and its
//! only controller empties deleted namespaces.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use ccm_sim::apiserver::{ApiServer, Fault, Action, Options, Verb};
//!
//! let server = ApiServer::new(Options::default());
//! server.create(serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } })).unwrap();
//! server.faults().add(Fault::new(Action::Status { code: 429, retry_after: Some(1) }).verb(Verb::Patch).times(3));
//! let _service = server.service();
//! assert_eq!(server.list("nodes").len(), 1);
//! # });
//! ```

use std::{net::SocketAddr, sync::Arc, time::Duration};

use serde_json::{Value, json};

pub mod audit;
pub mod faults;

mod body;
mod collection;
mod decode;
mod discovery;
mod eventview;
mod identity;
mod listen;
mod negotiate;
mod object;
mod openapi;
mod patch;
mod registry;
mod request;
mod resources;
mod respond;
mod route;
mod selectors;
mod service;
mod shape;
mod status;
mod store;
mod table;
mod validate;
mod watch;
mod write;

pub use audit::{Audit, Outcome, Record};
pub use body::ResponseBody;
pub use faults::{Action, Fault, FaultId, FaultPlan};
pub use identity::Clock;
pub use listen::ListenHandle;
pub use patch::PatchKind;
pub use request::Verb;
pub use service::ApiService;
pub use status::{Cause, StatusError};
pub use watch::WatchInfo;

use decode::WriteOptions;
use identity::Identity;
use patch::Patch;
use registry::Allocator;
use resources::Resource;
use store::Store;
use write::{Preconditions, Target};

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed for UIDs, generated names and the probabilities of faults.
    pub seed: u64,
    /// The source of timestamps.
    pub clock: Clock,
    /// How many changes of each kind are kept. Watches and lists from older versions get 410.
    pub history: usize,
    /// The interval of bookmarks for watches that allow them.
    pub bookmark_interval: Duration,
    /// The minimum duration of a watch without a client timeout. The maximum is twice that.
    pub min_watch_timeout: Duration,
    /// True if a watch from a compacted version gets HTTP status 410. The real server answers 200
    /// and an `ERROR` event, which is the default here.
    pub expired_watch_is_http: bool,
    /// True if new nodes get the taint `node.kubernetes.io/not-ready`, as from the real server's
    /// admission.
    pub taint_new_nodes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            clock: Clock::Wall,
            history: 10_000,
            bookmark_interval: Duration::from_secs(60),
            min_watch_timeout: Duration::from_secs(1800),
            expired_watch_is_http: false,
            taint_new_nodes: true,
        }
    }
}

/// State shared by both front ends.
struct Core {
    options: Options,
    store: Store,
    identity: Identity,
    allocator: Allocator,
    faults: FaultPlan,
    audit: Audit,
    watches: watch::Registry,
}

/// The server. See the [module](self).
pub struct ApiServer {
    core: Arc<Core>,
}

impl ApiServer {
    /// Creates a server with the four namespaces of every cluster.
    pub fn new(options: Options) -> Arc<Self> {
        let core = Arc::new(Core {
            store: Store::new(options.history),
            identity: Identity::new(options.clock, options.seed, options.taint_new_nodes),
            allocator: Allocator::default(),
            faults: FaultPlan::new(options.seed),
            audit: Audit::default(),
            watches: watch::Registry::default(),
            options,
        });
        let server = Arc::new(Self { core });
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            if let Err(error) = server.create(namespace) {
                tracing::error!(%error, name, "could not create a namespace");
            }
        }
        server
    }

    /// Returns the front end for clients in this process; clones share the server.
    pub fn service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.core))
    }

    /// Returns the front end for other processes. Port 0 picks a free one; see
    /// [`ListenHandle::addr`].
    pub async fn listen(&self, addr: SocketAddr) -> std::io::Result<ListenHandle> {
        ListenHandle::bind(self.service(), addr).await
    }

    /// Returns a kubeconfig for a listener.
    pub fn kubeconfig(&self, addr: SocketAddr) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\n\
             clusters:\n- name: sim\n  cluster:\n    server: http://{addr}\n\
             contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n\
             users:\n- name: sim\n  user: {{}}\n"
        )
    }

    /// Returns the active faults, to be extended.
    pub fn faults(&self) -> &FaultPlan {
        &self.core.faults
    }

    /// Returns the audit log of all requests.
    pub fn audit(&self) -> &Audit {
        &self.core.audit
    }

    /// Returns the newest resource version.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Compacts all history, as etcd does: later requests from older versions get 410. Watches
    /// that are up to date continue.
    pub fn compact(&self) {
        self.core.store.compact();
    }

    /// Returns the open watches.
    pub fn watches(&self) -> Vec<WatchInfo> {
        self.core.watches.list()
    }

    /// Ends open watches of user agents that start with `user_agent`: `abrupt` breaks the
    /// connection, otherwise the stream ends cleanly. Returns the number of watches.
    pub fn cut_watches(&self, user_agent: &str, abrupt: bool) -> usize {
        self.core.watches.cut(user_agent, abrupt)
    }

    /// Creates an object from its `apiVersion`, `kind` and content. This helper and those below
    /// bypass faults and audit.
    pub fn create(&self, object: Value) -> Result<Value, StatusError> {
        let resource = resource_of(&object)?;
        let namespace = namespace_of(resource, &object);
        let stored =
            self.core.create(resource, &namespace, object, &mut WriteOptions::default())?;
        Ok(stored.typed(resource))
    }

    /// Returns one object. `key` is `NAME`, or `NAMESPACE/NAME`.
    pub fn get(&self, plural: &str, key: &str) -> Option<Value> {
        let resource = resources::by_plural(plural)?;
        Some(self.core.store.get(resource, key)?.typed(resource))
    }

    /// Returns all objects of a kind, ordered by key.
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let Some(resource) = resources::by_plural(plural) else { return Vec::new() };
        let everything = store::Range { prefix: "", after: None, limit: 0 };
        let page = self.core.store.page(resource, None, &everything, |_| true);
        page.map(|page| page.objects.iter().map(|object| object.typed(resource)).collect())
            .unwrap_or_default()
    }

    /// Replaces an object, unconditionally if it has no resourceVersion.
    pub fn replace(&self, object: Value) -> Result<Value, StatusError> {
        self.update_part(object, "")
    }

    /// Replaces the status of an object.
    pub fn update_status(&self, object: Value) -> Result<Value, StatusError> {
        self.update_part(object, "status")
    }

    fn update_part(&self, mut object: Value, subresource: &str) -> Result<Value, StatusError> {
        let resource = resource_of(&object)?;
        let mut target = target(resource, "");
        target.namespace = namespace_of(resource, &object);
        target.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        target.subresource = subresource.to_owned();
        if object["metadata"]["resourceVersion"].is_null() && !resource.unconditional_update {
            let current =
                self.core.store.get(resource, &target.key()).ok_or_else(|| target.not_found())?;
            object["metadata"]["resourceVersion"] = json!(current.revision.to_string());
        }
        let (stored, _) = self.core.update(&target, object, &mut WriteOptions::default())?;
        Ok(stored.typed(resource))
    }

    /// Patches an object, or its status if `subresource` is `status`.
    pub fn patch(
        &self,
        plural: &str,
        key: &str,
        subresource: &str,
        kind: PatchKind,
        patch: Value,
    ) -> Result<Value, StatusError> {
        let resource = resources::by_plural(plural).ok_or_else(StatusError::no_such_path)?;
        let mut target = target(resource, key);
        target.subresource = subresource.to_owned();
        let patch = Patch::new(kind, patch)?;
        Ok(self.core.patch(&target, &patch, &mut WriteOptions::default())?.typed(resource))
    }

    /// Deletes an object. An object with finalizers is only marked.
    pub fn delete(&self, plural: &str, key: &str) -> Result<(), StatusError> {
        let resource = resources::by_plural(plural).ok_or_else(StatusError::no_such_path)?;
        self.core.delete(&target(resource, key), &Preconditions::default(), false).map(drop)
    }
}

fn target(resource: &'static Resource, key: &str) -> Target {
    let (namespace, name) =
        if resource.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
    Target {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    }
}

fn resource_of(object: &Value) -> Result<&'static Resource, StatusError> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    resources::by_kind(text("apiVersion"), text("kind")).ok_or_else(|| {
        let (version, kind) = (text("apiVersion"), text("kind"));
        StatusError::bad_request(format!("no kind {kind:?} is registered for version {version:?}"))
    })
}

fn namespace_of(resource: &Resource, object: &Value) -> String {
    let fallback = if resource.namespaced { "default" } else { "" };
    object["metadata"]["namespace"].as_str().unwrap_or(fallback).to_owned()
}
