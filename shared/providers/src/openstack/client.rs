//! The client of OpenStack's services.
//!
//! The deadline of a call covers everything that it needs: the gate, a login, the discovery of
//! Nova's versions, retries.

mod answer;
mod get;
mod retry;
mod wire;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_base::message::one_line;
use ccm_cloud::{Call, CallGate, CloudError, ErrorKind};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

pub(crate) use self::{
    answer::Answer,
    retry::Failure,
    wire::{Hidden, Outgoing, TOKEN, Wire},
};
use super::{
    config::{Config, Interface},
    discovery::{self, Discovery, Microversion},
    metrics::OpenStackMetrics,
    session::{Login, Project, Session},
    text::MAX_VALUE,
    transport::Transport,
};

/// The services that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
}

impl Service {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 3] = [Self::Identity, Self::Compute, Self::Network];

    /// Its type in the catalog, and its name in metrics and messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Network => "network",
        }
    }

    /// The service of this type in the catalog.
    pub(crate) fn of_type(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == text)
    }
}

/// One request that reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get<'a> {
    /// The service.
    pub service: Service,
    /// The name of the request in metrics.
    pub operation: &'static str,
    /// Below the service's base, with its query, percent-encoded.
    pub path: &'a str,
}

/// Sends requests.
#[async_trait]
pub(crate) trait Api: Send + Sync {
    /// Sends one request within the time of `call`. A status other than 2xx is an
    /// error, but for a 404 by which the service itself says that the object does not
    /// exist.
    async fn get(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError>;

    /// Nova's microversion in use, once a request to Nova was answered and if it has any.
    fn microversion(&self) -> Option<Microversion> {
        None
    }

    /// Project and region as messages name them, known after the first login.
    fn place(&self) -> Option<String> {
        None
    }
}

/// The expected answer to a probe, so that an answer of another server is not accepted.
#[derive(serde::Deserialize)]
struct Listed {
    #[serde(alias = "servers", rename = "ports")]
    _entries: Vec<serde::de::IgnoredAny>,
}

/// Makes the connections that a configuration asks for.
pub(super) type Connect = Box<dyn Fn(&Config) -> Result<Transport, CloudError> + Send + Sync>;

/// Makes clients.
pub(crate) struct Clients {
    gate: Arc<dyn CallGate>,
    metrics: OpenStackMetrics,
    user_agent: String,
    connect: Connect,
}

impl Clients {
    /// Makes no request.
    pub(crate) fn new(
        gate: Arc<dyn CallGate>,
        metrics: OpenStackMetrics,
        user_agent: &str,
    ) -> Self {
        Self::over(Box::new(Transport::new), gate, metrics, user_agent)
    }

    /// As [`Clients::new`], but over connections of another kind.
    pub(super) fn over(
        connect: Connect,
        gate: Arc<dyn CallGate>,
        metrics: OpenStackMetrics,
        user_agent: &str,
    ) -> Self {
        Self { gate, metrics, user_agent: user_agent.to_owned(), connect }
    }

    /// A client with this configuration. Makes no request, and fails only with
    /// [`ErrorKind::Invalid`].
    pub(crate) fn client(&self, config: &Config) -> Result<Client, CloudError> {
        let user_agent = HeaderValue::try_from(&self.user_agent).map_err(|_| {
            let why = format!(
                "user-agent: {:?} is not fit for a header: use printable ASCII",
                self.user_agent
            );
            CloudError::new(ErrorKind::Invalid, why)
        })?;
        let wire = Arc::new(Wire {
            gate: Arc::clone(&self.gate),
            metrics: self.metrics.clone(),
            transport: (self.connect)(config)?,
            user_agent,
            longest: Some(config.request_timeout).filter(|longest| !longest.is_zero()),
        });
        let keystone = discovery::identity(&config.auth_url)?;
        let login = Login::new(&config.auth_url, &keystone, config.credentials.clone());
        Ok(Client {
            session: Session::new(Arc::clone(&wire), login),
            discovery: Discovery::new(Arc::clone(&wire)),
            wire,
            auth_url: config.auth_url.clone(),
            interface: config.interface,
            region: config.region.clone(),
            distrusted: Mutex::default(),
            last: Mutex::default(),
            retired: CancellationToken::new(),
        })
    }
}

/// The client with one configuration.
pub(crate) struct Client {
    wire: Arc<Wire>,
    session: Arc<Session>,
    discovery: Arc<Discovery>,
    auth_url: Url,
    interface: Interface,
    region: Option<String>,
    /// The operations that rejected even a new token, with the number of rejections and the time
    /// of the last one. By operation, since only one of a service may lack a right.
    distrusted: Mutex<BTreeMap<&'static str, (u32, Instant)>>,
    /// Whether the last call to each service was answered; `None` for one that was not
    /// asked yet.
    last: Mutex<[Option<bool>; Service::ALL.len()]>,
    retired: CancellationToken,
}

impl Client {
    /// One cheap call that shows whether Keystone accepts the credentials and Nova
    /// the token.
    pub(crate) async fn probe(&self, call: Call) -> Result<(), CloudError> {
        let get =
            Get { service: Service::Compute, operation: "server_list", path: "servers?limit=1" };
        self.get(get, call).await?.read::<Listed>().map(|_| ())
    }

    /// As [`Client::probe`], for Neutron.
    pub(crate) async fn probe_network(&self, call: Call) -> Result<(), CloudError> {
        let path = "ports?limit=1&fields=id";
        let get = Get { service: Service::Network, operation: "port_list", path };
        self.get(get, call).await?.read::<Listed>().map(|_| ())
    }

    /// Marks this client as the one in use: the results of its logins are logged and counted.
    pub(crate) fn activate(&self) {
        self.session.activate();
    }

    /// Another client is in use from now on: cancels logins and discovery.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
        self.session.retire();
        self.discovery.retire();
    }

    /// Returns when another client is in use.
    pub(crate) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Whether the last call to the service was answered; `None` if it was not asked yet.
    pub(crate) fn answers(&self, service: Service) -> Option<bool> {
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
            // An error response: says nothing about availability.
            Err(_) => return,
        };
        self.last.lock()[service as usize] = Some(answers);
    }

    /// Whether it asks the same project of the same cloud. Known after the logins.
    pub(crate) fn is_of_the_project_of(&self, other: &Self) -> bool {
        let id = |client: &Self| client.project().map(|project| project.id);
        let same_place = (&self.auth_url, &self.region) == (&other.auth_url, &other.region);
        same_place && id(self).is_some() && id(self) == id(other)
    }

    /// Whether this is the region in use, by its configured name or, where none is, by
    /// the catalog. Not before the first login.
    pub(crate) fn lies_in(&self, region: &str) -> bool {
        match &self.region {
            Some(own) => own == region,
            None => self.session.last().is_some_and(|token| {
                token.catalog.lies_in(Service::Compute, self.interface, region)
            }),
        }
    }

    /// The region in use, as far as it is known.
    pub(crate) fn region(&self) -> Option<String> {
        let of_catalog = || {
            let token = self.session.last()?;
            token.catalog.region(Service::Compute, self.interface).map(str::to_owned)
        };
        self.region.clone().or_else(of_catalog)
    }

    /// The project that the last token was for, once there was one.
    pub(crate) fn project(&self) -> Option<Project> {
        self.session.last()?.project.clone()
    }
}

#[async_trait]
impl Api for Client {
    async fn get(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError> {
        let outcome = self.persist(get, call).await;
        self.note(get.service, &outcome);
        outcome
    }

    fn microversion(&self) -> Option<Microversion> {
        self.discovery.microversion()
    }

    fn place(&self) -> Option<String> {
        let Project { name, id } = self.project()?;
        let name = one_line(&name, MAX_VALUE);
        let region = self.region();
        let region = region.map_or_else(String::new, |region| format!(" in region {region}"));
        Some(format!("project {name} ({id}){region}"))
    }
}
