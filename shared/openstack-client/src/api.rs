//! The client of OpenStack's services.
//!
//! ```text
//! Api::send -> call (retries by method) -> session (token, endpoints) -> send (gate, metrics) -> transport
//!                                                                          +-> fault: the errors
//! ```
//!
//! The deadline of a call covers everything that it needs: the gate, a login, the discovery of
//! Nova's versions, retries. The gate keeps the pauses that a service asks for.

mod answer;
mod bounded;
mod call;
mod endpoints;
mod fault;
mod hidden;
mod memory;
mod page;
mod retry;
mod send;
mod session;
mod single_flight;
mod transport;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use ccm_base::message::one_line;
use ccm_cloud::{Call, CallClass, CallGate, CloudError, ErrorKind};
use http::{HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr};

pub use self::{
    answer::{Answer, Deletion},
    bounded::members_of,
    endpoints::Microversion,
    memory::{Memory, OVERHEAD},
    page::{Collection, PagesRead, id_of, members},
    retry::Failure,
    session::{REFUSED, is_refused_login},
    single_flight::{Pending, SingleFlight},
    transport::Transport,
};
#[cfg(any(test, feature = "fuzz"))]
pub use self::{endpoints::identity, send::scripted_answer};
use self::{
    send::Wire,
    session::{Login, Project, Session},
};
use crate::{
    config::{Access, Interface},
    metrics::OpenStackMetrics,
    text::MAX_VALUE,
};

/// The maximum number of concurrent requests for the parts of one call.
pub const AT_ONCE: usize = 8;

/// The services that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
}

impl Service {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Compute, Self::Network, Self::LoadBalancer];

    /// Returns its type in the catalog, and its name in metrics and messages.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One request to a service.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The service.
    pub service: Service,
    /// The name of the request in metrics.
    pub operation: &'static str,
    /// The method.
    pub method: Method,
    /// The path below the service's base, with its query, percent-encoded.
    pub path: &'a str,
    /// The body, as JSON.
    pub body: Option<Value>,
    /// The revision of the object that the request was decided on: if it has another one, the
    /// service refuses, and the error is [`ErrorKind::Busy`].
    pub revision: Option<u64>,
}

impl<'a> Request<'a> {
    /// Returns a request that reads.
    pub const fn get(service: Service, operation: &'static str, path: &'a str) -> Self {
        let (method, body, revision) = (Method::GET, None, None);
        Self { service, operation, method, path, body, revision }
    }

    /// Returns a request that changes an object.
    pub fn put(service: Service, operation: &'static str, path: &'a str, body: Value) -> Self {
        Self { method: Method::PUT, body: Some(body), ..Self::get(service, operation, path) }
    }

    /// Returns a request that makes an object. It is sent again only if it surely had no effect.
    pub fn post(service: Service, operation: &'static str, path: &'a str, body: Value) -> Self {
        Self { method: Method::POST, ..Self::put(service, operation, path, body) }
    }

    /// Returns a request that deletes an object.
    pub fn delete(service: Service, operation: &'static str, path: &'a str) -> Self {
        Self { method: Method::DELETE, ..Self::get(service, operation, path) }
    }

    /// Returns the same request, for an object of this revision only.
    #[must_use]
    pub fn at_revision(self, revision: Option<u64>) -> Self {
        Self { revision, ..self }
    }

    /// Returns the class of the request, by its method. A creation may not be repeated when its
    /// outcome is unknown, nor a change that names a revision: the repetition would be refused
    /// because of the first one.
    fn class(&self) -> CallClass {
        let (service, operation) = (self.service.name(), self.operation);
        match self.method {
            Method::GET | Method::HEAD => CallClass::read(service, operation),
            Method::PUT | Method::DELETE if self.revision.is_none() => {
                CallClass::write(service, operation)
            }
            _ => CallClass::write_once(service, operation),
        }
    }
}

/// Sends requests.
#[async_trait]
pub trait Api: Send + Sync {
    /// Sends one request within the time of `call`. A status other than 2xx is an
    /// error, except a 404 by which the service itself says that the object does not
    /// exist. The error of a write says whether it may have taken effect.
    async fn send(&self, request: Request<'_>, call: Call) -> Result<Answer, CloudError>;

    /// Returns true if the catalog has the service in the region in use. Fails if it only has an
    /// endpoint for another interface than the configured one.
    async fn offers(&self, service: Service, call: Call) -> Result<bool, CloudError>;

    /// Returns the ID of the project in use.
    async fn project_id(&self, call: Call) -> Result<String, CloudError>;

    /// Returns Nova's microversion in use, once a request to Nova was answered and if Nova has any.
    fn microversion(&self) -> Option<Microversion> {
        None
    }

    /// Returns the region in use, as far as it is known: configured, or the endpoint's.
    fn region(&self) -> Option<String> {
        None
    }

    /// Returns the region of load balancers, if no region is configured and the region of the
    /// servers offers no load balancers.
    fn other_region(&self) -> Option<String> {
        None
    }

    /// Returns project and region as messages name them. They are known after the first login.
    fn place(&self) -> Option<String> {
        None
    }
}

/// The expected answer to a probe, so that an answer of another server is not accepted.
#[derive(serde::Deserialize)]
struct Listed {
    #[serde(alias = "servers", alias = "loadbalancers", rename = "ports")]
    _entries: Vec<serde::de::IgnoredAny>,
}

/// Makes the connections that a configuration asks for.
pub type Connect = Box<dyn Fn(&Access) -> Result<Transport, CloudError> + Send + Sync>;

/// Makes clients.
pub struct Clients {
    gate: Arc<dyn CallGate>,
    metrics: OpenStackMetrics,
    user_agent: String,
    connect: Connect,
}

impl Clients {
    /// Makes no request.
    pub fn new(gate: Arc<dyn CallGate>, metrics: OpenStackMetrics, user_agent: &str) -> Self {
        Self::over(Box::new(Transport::new), gate, metrics, user_agent)
    }

    /// Creates clients as [`Clients::new`] does, but over connections of another kind.
    pub fn over(
        connect: Connect,
        gate: Arc<dyn CallGate>,
        metrics: OpenStackMetrics,
        user_agent: &str,
    ) -> Self {
        Self { gate, metrics, user_agent: user_agent.to_owned(), connect }
    }

    /// Returns a client with this configuration. Makes no request, and fails only with
    /// [`ErrorKind::Invalid`].
    pub fn client(&self, config: &Access) -> Result<Client, CloudError> {
        let user_agent = HeaderValue::try_from(&self.user_agent).map_err(|_| {
            let why = format!(
                "user-agent: {:?} is not fit for a header: use printable ASCII",
                self.user_agent
            );
            CloudError::new(ErrorKind::Invalid, why)
        })?;
        let wire = Wire {
            gate: Arc::clone(&self.gate),
            metrics: self.metrics.clone(),
            transport: (self.connect)(config)?,
            user_agent,
            longest: Some(config.request_timeout).filter(|longest| !longest.is_zero()),
        };
        let keystone = endpoints::identity(&config.auth_url)?;
        let login = Login::new(&config.auth_url, &keystone, config.credentials.clone());
        Ok(Client {
            session: ArcSwap::new(Session::new(wire, login)),
            needs_tls: config.auth_url.scheme() == "https" && !config.http_endpoints,
            interface: config.interface,
            region: config.region.clone(),
            last: Mutex::default(),
        })
    }
}

/// The client of one project in one region. Credentials and connections are replaced while it is
/// in use, nothing else.
pub struct Client {
    session: ArcSwap<Session>,
    /// True if tokens are sent by TLS alone, as the credentials are.
    needs_tls: bool,
    interface: Interface,
    region: Option<String>,
    /// True for each service that answered its last call; `None` for a service that was not asked
    /// yet.
    last: Mutex<[Option<bool>; Service::ALL.len()]>,
}

impl Client {
    /// Makes one cheap call that shows whether Keystone accepts the credentials and the service the
    /// token.
    pub async fn probe(&self, service: Service, call: Call) -> Result<(), CloudError> {
        let (operation, path) = match service {
            Service::Identity => return self.log_in(&[], call).await,
            Service::Compute => ("server_list", "servers?limit=1"),
            Service::Network => ("port_list", "ports?limit=1&fields=id"),
            Service::LoadBalancer => {
                ("loadbalancer_list", "v2.0/lbaas/loadbalancers?limit=1&fields=id")
            }
        };
        let answer = self.send(Request::get(service, operation, path), call).await?;
        answer.read::<Listed>().map(drop)
    }

    /// Marks this client as the one in use: the results of its logins are logged and counted.
    pub fn activate(&self) {
        self.session.load().activate();
    }

    /// Goes on with the credentials and connections of another client of the same project. Requests
    /// that wait for an earlier login continue, too.
    pub fn take_over(&self, other: &Self) {
        let session = other.session.load_full();
        session.activate();
        self.session.swap(session).retire();
    }

    /// Returns true if the last call to the service was answered; `None` if it was not asked yet.
    pub fn answers(&self, service: Service) -> Option<bool> {
        self.last.lock()[service as usize]
    }

    fn note(&self, service: Service, outcome: &Result<Answer, CloudError>) {
        use ErrorKind::{Malformed, Timeout, Unauthorized, Unavailable};
        let answers = match outcome {
            Ok(_) => true,
            Err(error)
                if matches!(error.kind, Unauthorized | Unavailable | Timeout | Malformed) =>
            {
                false
            }
            // An error response does not show whether the service is available.
            Err(_) => return,
        };
        self.last.lock()[service as usize] = Some(answers);
    }

    /// Returns true if this is the region in use, by its configured name or else by the catalog.
    /// Not before the first login.
    pub fn lies_in(&self, region: &str) -> bool {
        match &self.region {
            Some(own) => own == region,
            None => self.session.load().last().is_some_and(|token| {
                token.catalog.lies_in(Service::Compute, self.interface, region)
            }),
        }
    }

    /// Returns why the catalog has no such service in the region in use; `None` if it has one, and
    /// before the first login.
    pub fn lacks(&self, service: Service) -> Option<String> {
        let token = self.session.load().last()?;
        let found = token.catalog.url(service, self.interface, self.region.as_deref());
        found.is_err().then(|| token.catalog.absence(service, self.region.as_deref()))
    }

    /// Returns the project that the last token was for, once there was one.
    pub fn project(&self) -> Option<Project> {
        self.session.load().last()?.project.clone()
    }
}

#[async_trait]
impl Api for Client {
    async fn send(&self, request: Request<'_>, call: Call) -> Result<Answer, CloudError> {
        let outcome = self.persist(&request, call).await;
        self.note(request.service, &outcome);
        outcome
    }

    async fn offers(&self, service: Service, call: Call) -> Result<bool, CloudError> {
        self.log_in(&[], call).await?;
        let session = self.session.load();
        let token = session.token(call).await.map_err(|failure| failure.error)?;
        match self.url(service, &session, &token) {
            Ok(_) => Ok(true),
            // An endpoint exists for another interface, but not for the configured one.
            Err(error) if token.catalog.has(service, self.region.as_deref()) => Err(error),
            Err(_) => Ok(false),
        }
    }

    async fn project_id(&self, call: Call) -> Result<String, CloudError> {
        if self.session.load().last().is_none() {
            self.log_in(&[], call).await?;
        }
        let project = self.project().map(|project| project.id);
        project.ok_or_else(|| CloudError::new(ErrorKind::Invalid, call::NO_PROJECT))
    }

    fn microversion(&self) -> Option<Microversion> {
        self.session.load().microversion()
    }

    fn region(&self) -> Option<String> {
        let of_catalog = || {
            let token = self.session.load().last()?;
            token.catalog.region(Service::Compute, self.interface).map(str::to_owned)
        };
        self.region.clone().or_else(of_catalog)
    }

    fn other_region(&self) -> Option<String> {
        let token = self.session.load().last().filter(|_| self.region.is_none())?;
        let (catalog, interface) = (&token.catalog, self.interface);
        let of_servers = catalog.region(Service::Compute, interface);
        let is_there = catalog.url(Service::LoadBalancer, interface, of_servers).is_ok();
        let other = catalog.region(Service::LoadBalancer, interface).filter(|_| !is_there)?;
        Some(other.to_owned())
    }

    fn place(&self) -> Option<String> {
        let Project { name, id } = self.project()?;
        let name = one_line(&name, MAX_VALUE);
        let region = self.region();
        let region = region.map_or_else(String::new, |region| format!(" in region {region}"));
        Some(format!("project {name} ({id}){region}"))
    }
}
