//! The client of OpenStack's services.
//!
//! A call has one deadline, which holds for everything that it needs: a pause that
//! the service asked for, the gate, a login, the look at Nova's versions, repetitions.

mod answer;

mod link;
mod pauses;
mod retry;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_base::message::one_line;
use ccm_cloud::{Call, CallGate, CloudError, ErrorKind};
use parking_lot::Mutex;
use url::Url;

pub(crate) use self::{
    answer::Answer,
    pauses::Pauses,
    retry::Failure,
    wire::{Hidden, Outgoing, Reply, Shared, TOKEN, Wire},
};
use self::{link::Link, retry::Retry};
use super::{
    config::Config, deadline::Deadline, discovery::Microversion, metrics::OpenStackMetrics,
    session::Project, text::MAX_VALUE, transport::Transport,
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
    /// Who is asked.
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

    /// For whom it asks: project and region as messages name them, once there was a login.
    fn place(&self) -> Option<String> {
        None
    }
}

/// What a probe must find, so that nobody else's answer passes for the service's.
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
    /// Talks to nobody.
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

    /// A client with this configuration. Fails only with
    /// [`ccm_cloud::ErrorKind::Invalid`], and talks to nobody. The pauses that the services
    /// asked for hold on, if the client `before` asks the same ones.
    pub(crate) fn client(
        &self,
        config: &Config,
        before: Option<&Client>,
    ) -> Result<Client, CloudError> {
        let place = Place { auth_url: config.auth_url.clone(), region: config.region.clone() };
        let shared = match before.filter(|before| before.place == place) {
            Some(before) => Arc::clone(&before.shared),
            None => Arc::new(Shared {
                gate: Arc::clone(&self.gate),
                metrics: self.metrics.clone(),
                pauses: Pauses::default(),
            }),
        };
        let transport = (self.connect)(config)?;
        let link = Link::new(Arc::clone(&shared), transport, config, &self.user_agent)?;
        Ok(Client { link, shared, place, last: Mutex::default() })
    }
}

/// The client with one configuration.
pub(crate) struct Client {
    link: Link,
    shared: Arc<Shared>,
    place: Place,
    /// Whether the last call to each service was answered; `None` for one that was not
    /// asked yet.
    last: Mutex<[Option<bool>; Service::ALL.len()]>,
}

/// Whose services are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    auth_url: Url,
    region: Option<String>,
}

impl Client {
    /// Logs in and looks whether the catalog has these services.
    pub(crate) async fn log_in(&self, services: &[Service], call: Call) -> Result<(), CloudError> {
        let (deadline, mut retry) = (Deadline::start(call), Retry::default());
        while let Err(failure) = self.link.ready(services, deadline).await {
            retry.again(failure, deadline).await?;
        }
        Ok(())
    }

    /// Sends the request, again if that may help.
    async fn persist(&self, get: Get<'_>, deadline: Deadline) -> Result<Answer, CloudError> {
        let (mut retry, mut renewed) = (Retry::default(), false);
        loop {
            match self.link.get(get, deadline, &mut renewed).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if self.is_retired() => return Err(failure.error),
                Err(failure) => retry.again(failure, deadline).await?,
            }
        }
    }

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

    /// This one is in use from now on: what becomes of its logins is told and counted.
    pub(crate) fn put_to_use(&self) {
        self.link.session.put_to_use();
    }

    /// Another one is in use from now on: who waits here fails at once, to go on there.
    pub(crate) fn retire(&self) {
        self.link.retire();
    }

    /// Whether another one is in use.
    pub(crate) fn is_retired(&self) -> bool {
        self.link.is_retired()
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
            // It answers, though not as one would like.
            Err(_) => return,
        };
        self.last.lock()[service as usize] = Some(answers);
    }

    /// Whether it asks the same project of the same cloud. Known after the logins.
    pub(crate) fn is_of_the_project_of(&self, other: &Self) -> bool {
        let id = |client: &Self| client.project().map(|project| project.id);
        self.place == other.place && id(self).is_some() && id(self) == id(other)
    }

    /// Whether this is the region in use. Where none is configured, that is known after
    /// the first login.
    pub(crate) fn lies_in(&self, region: &str) -> bool {
        self.link.lies_in(region)
    }

    /// The region in use, once it is known.
    pub(crate) fn region(&self) -> Option<String> {
        self.link.region_in_use()
    }

    /// The project that the last token was for, once there was one.
    pub(crate) fn project(&self) -> Option<Project> {
        self.link.session.last()?.project.clone()
    }

    /// Nova's microversion in use, once it is known and if there is any.
    pub(crate) fn microversion(&self) -> Option<Microversion> {
        self.link.discovery.microversion()
    }
}

#[async_trait]
impl Api for Client {
    async fn get(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError> {
        let outcome = self.persist(get, Deadline::start(call)).await;
        self.note(get.service, &outcome);
        outcome
    }

    fn microversion(&self) -> Option<Microversion> {
        Self::microversion(self)
    }

    fn place(&self) -> Option<String> {
        let Project { name, id } = self.project()?;
        let name = one_line(&name, MAX_VALUE);
        let region = self.region();
        let region = region.map_or_else(String::new, |region| format!(" in region {region}"));
        Some(format!("project {name} ({id}){region}"))
    }
}
