//! The client stack: the path of a request to the API server and of its response.
//!
//! [`Clients::connect`] builds four clients with separate connections, so that they do not wait for
//! each other:
//!
//! | client | for | limited | retried |
//! |---|---|---|---|
//! | `main` | reads and writes of the controllers | yes | yes |
//! | `watch` | informers: lists and watches | lists only | lists only |
//! | `events` | events | yes | yes |
//! | [`Clients::lease_client`] | leader election | no | no |
//!
//! A request passes these layers, outermost first:
//!
//! | layer | what it does |
//! |---|---|
//! | base URI | the server's address, and a path prefix if there is one |
//! | `deadline` | bounds the whole call: waits, retries, head and body of the answer. Writes of objects wait for the limiter earlier: [`Admission`] |
//! | `watch_status` | turns a response other than 2xx into an error with the server's message; passes the refusals of policies to `denials` |
//! | `encoding` | gzip, but never on watches |
//! | `retry` | a few more attempts for requests that are safe to repeat |
//! | `attempt` | each attempt waits for the limiter and is measured: `rest_client_*`; its answer shows the server's clock |
//! | authentication | the token, read again for each attempt |
//! | headers | user agent, impersonation |
//! | `transport` | sends; forgets a connection whose credentials were refused |
//!
//! The lease client has no limiter and no retry. A response to any request except a watch stays a
//! response, with any status, because leader election inspects it.
//!
//! `kube::Client` sends all requests of a client through one queue: a layer that waits
//! before accepting a request blocks all later ones. Every layer here is made by
//! `middleware::around`, which waits only in the future of the response.
//!
//! Limits. A *certificate* from an exec plugin is obtained once: kube refreshes exec tokens, not
//! exec certificates. Client certificate files that a kubeconfig names are reloaded (see
//! `identity`), as are token files and the CA of a pod. The kubeconfig itself, and a CA file that
//! it names, is read once: [`Clients::outdated`] returns when it has changed.

mod attempt;
mod class;
mod deadline;
mod denials;
mod encoding;
mod followed;
mod identity;
mod limiter;
mod middleware;
mod prepare;
mod problem;
mod retry;
mod retry_after;
mod server_clock;
mod source;
mod stack;
mod transport;
mod watch_status;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_base::Files;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{BoxError, Layer, Service, ServiceBuilder, util::BoxCloneSyncService};

pub use attempt::Admission;
pub(crate) use attempt::Admitted;
pub use class::RequestClass;
pub use denials::{Denial, Denials};
pub use limiter::{RequestLimiter, Unlimited};
pub use problem::ClientError;
pub use server_clock::ServerClock;

use self::{
    followed::Followed,
    middleware::InnerService,
    prepare::ClientPlan,
    problem::ConfigProblem,
    source::Surroundings,
    stack::{Layers, Role},
};
use crate::metrics::RestMetrics;

/// The body of a response on its way through the layers.
pub type ResponseBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// The stack for lease requests: no retry, no limiter, own connections. The elector must see a
/// failed attempt at once, because it knows how much time is left. A response of any status is an
/// `Ok`, except for a watch.
pub type LeaseService = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// The namespace of requests that do not name one. Such requests do not exist: each kind of object
/// here is cluster-scoped or comes with its namespace.
const NAMESPACE: &str = "default";

/// The configuration of the clients.
#[derive(Clone)]
pub struct ClientConfig {
    /// `--kubeconfig`. Without it: the pod.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the API server's URL, overrides the configured one.
    pub master: Option<String>,
    /// True if credentials may be sent to a server without TLS.
    pub credentials_over_http: bool,
    /// Start of the user agent, such as `node-ccm/0.1.0 (linux/amd64)`; each client
    /// adds `/main`, `/watch`, `/events` or `/leader-election`.
    pub user_agent: String,
    /// The deadline of a call, including all attempts and the whole response. For a watch it
    /// bounds the time until the watch starts.
    pub request_timeout: Duration,
    /// The rate limiter.
    pub limiter: Arc<dyn RequestLimiter>,
    /// The metrics of all requests.
    pub metrics: Arc<RestMetrics>,
}

/// The clients of a process. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Clients {
    /// For the controllers' reads and writes.
    pub main: kube::Client,
    /// For informers: lists and watches.
    pub watch: kube::Client,
    /// For Events.
    pub events: kube::Client,
    /// Admits writes of `main` before they are sent.
    pub admission: Admission,
    /// The API server's clock, as the answers to all clients show it.
    pub clock: ServerClock,
    /// The refusals of admission policies, seen by all clients except the Lease's client.
    pub denials: Denials,
    /// The API server, as `host:port`.
    pub server: String,
    /// The setting or place that names the server.
    pub origin: String,
    lease: LeaseService,
    followed: Followed,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Clients {
    /// Builds the clients. Reads files and runs the kubeconfig's exec plugin, but never contacts
    /// the server: an unreachable server fails a readiness check, but the process continues. Needs
    /// a tokio runtime.
    ///
    /// Every [`ClientError`] is a configuration error.
    pub async fn connect(config: ClientConfig) -> Result<Self, ClientError> {
        let (surroundings, mut files) = (Surroundings::of_process(), Files::default());
        let clients = Self::connect_in(config.clone(), &surroundings, &mut files).await?;
        Ok(Self { followed: Followed::new(&config, &surroundings, files), ..clients })
    }

    /// Returns once the kubeconfig, or a file that it names and that is read only once, has changed
    /// and is valid: only a new process uses it.
    pub async fn outdated(&self) {
        self.followed.changed().await;
    }

    /// Remembers in `files` the files that are read once.
    async fn connect_in(
        config: ClientConfig,
        surroundings: &Surroundings,
        files: &mut Files,
    ) -> Result<Self, ClientError> {
        let found = source::find(&config, surroundings, files)?;
        let plan = ClientPlan::make(found, surroundings.no_proxy.clone()).await?;
        let transport =
            |role: Role| transport::transport(plan.connector(), role.idle_connections());
        let layers = Layers::new(&config, &plan.config, plan.auth.as_ref());
        let is_master = config.master.as_ref().is_some_and(|master| !master.is_empty());
        let origin = if is_master { "--master" } else { &plan.origin };
        Self::assemble(&layers, origin, transport)
            .map_err(|problem| problem.into_error(&plan.origin))
    }

    /// Creates clients that send through `transport` instead of connections, with all layers. For
    /// simulated API servers in the same process, where time can be paused.
    pub fn in_process<S, B>(transport: S, config: &ClientConfig) -> Result<Self, ClientError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let transport = ServiceBuilder::new()
            .map_response(|response: Response<B>| {
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            })
            .map_err(Into::into)
            .service(transport);
        // No address is resolved here.
        let kube = kube::Config::new(http::Uri::from_static("http://127.0.0.1:80"));
        let (layers, origin) = (Layers::new(config, &kube, None), "in-process clients");
        Self::assemble(&layers, origin, |_role| InnerService::new(transport.clone()))
            .map_err(|problem| problem.into_error(origin))
    }

    fn assemble(
        layers: &Layers<'_>,
        origin: &str,
        transport: impl Fn(Role) -> InnerService,
    ) -> Result<Self, ConfigProblem> {
        let stack = |role| layers.around(role, transport(role));
        let client = |role| Ok::<_, ConfigProblem>(kube::Client::new(stack(role)?, NAMESPACE));
        Ok(Self {
            main: client(Role::Main)?,
            admission: Admission(layers.attempts(false)),
            watch: client(Role::Watch)?,
            events: client(Role::Events)?,
            lease: stack(Role::Lease)?,
            clock: layers.clock.clone(),
            denials: layers.denials.clone(),
            server: layers.server.clone(),
            origin: origin.to_owned(),
            followed: Followed::default(),
        })
    }

    /// Returns a client for the Lease with `layer` around it, which sees each lease request and
    /// each response. All clients made here share connections.
    pub fn lease_client<L, B>(&self, layer: L) -> kube::Client
    where
        L: Layer<LeaseService>,
        L::Service: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        kube::Client::new(layer.layer(self.lease.clone()), NAMESPACE)
    }
}

#[cfg(test)]
mod tests;
