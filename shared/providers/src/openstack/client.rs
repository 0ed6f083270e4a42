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

use arc_swap::ArcSwap;
use async_trait::async_trait;
use ccm_cloud::{Call, CallGate, CloudError};

pub(crate) use self::{
    answer::Answer,
    pauses::Pauses,
    retry::Failure,
    wire::{Hidden, Outgoing, Reply, Shared, TOKEN, Wire},
};
use self::{link::Link, retry::Retry};
use super::{
    config::Config, deadline::Deadline, discovery::Microversion, metrics::OpenStackMetrics,
    session::Project, transport::Transport,
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
}

/// What the probe must find, so that nobody else's answer passes for Nova's.
#[derive(serde::Deserialize)]
struct Servers {
    #[serde(rename = "servers")]
    _servers: Vec<serde::de::IgnoredAny>,
}

/// Makes the connections that a configuration asks for.
pub(super) type Connect = Box<dyn Fn(&Config) -> Result<Transport, CloudError> + Send + Sync>;

/// The client. It outlives its configuration, which may be replaced.
pub(crate) struct Client {
    shared: Arc<Shared>,
    user_agent: String,
    connect: Connect,
    link: ArcSwap<Link>,
}

impl Client {
    /// A client with this configuration. Fails only with
    /// [`ccm_cloud::ErrorKind::Invalid`], and talks to nobody.
    pub(crate) fn new(
        config: &Config,
        gate: Arc<dyn CallGate>,
        metrics: OpenStackMetrics,
        user_agent: &str,
    ) -> Result<Self, CloudError> {
        Self::over(Box::new(Transport::new), config, gate, metrics, user_agent)
    }

    /// As [`Client::new`], but over connections of another kind.
    pub(super) fn over(
        connect: Connect,
        config: &Config,
        gate: Arc<dyn CallGate>,
        metrics: OpenStackMetrics,
        user_agent: &str,
    ) -> Result<Self, CloudError> {
        let shared = Arc::new(Shared { gate, metrics, pauses: Pauses::default() });
        let link = Link::new(Arc::clone(&shared), connect(config)?, config, user_agent)?;
        link.session.put_to_use();
        let link = ArcSwap::from_pointee(link);
        Ok(Self { shared, user_agent: user_agent.to_owned(), connect, link })
    }

    /// Logs in with another configuration and looks whether its services are there.
    /// From then on it is in use; after an error the one before stays. Calls that wait
    /// for the one before, or fail with it, go on with the new one.
    pub(crate) async fn replace(&self, config: &Config, call: Call) -> Result<(), CloudError> {
        let transport = (self.connect)(config)?;
        let link = Link::new(Arc::clone(&self.shared), transport, config, &self.user_agent)?;
        let (deadline, mut retry) = (Deadline::start(call), Retry::default());
        while let Err(failure) = link.ready(deadline).await {
            retry.again(failure, deadline).await?;
        }
        let link = Arc::new(link);
        self.link.swap(Arc::clone(&link)).retire();
        link.session.put_to_use();
        Ok(())
    }

    /// One cheap call that shows whether Keystone accepts the credentials and Nova
    /// the token.
    pub(crate) async fn probe(&self, call: Call) -> Result<(), CloudError> {
        let get =
            Get { service: Service::Compute, operation: "server_list", path: "servers?limit=1" };
        self.get(get, call).await?.read::<Servers>().map(|_| ())
    }

    /// The project that the last token was for, once there was one.
    pub(crate) fn project(&self) -> Option<Project> {
        self.link.load().session.last()?.project.clone()
    }

    /// The region that is configured.
    pub(crate) fn region(&self) -> Option<String> {
        self.link.load().region.clone()
    }

    /// Nova's microversion in use, once it is known and if there is any.
    pub(crate) fn microversion(&self) -> Option<Microversion> {
        self.link.load().discovery.microversion()
    }
}

#[async_trait]
impl Api for Client {
    async fn get(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError> {
        let (deadline, mut retry) = (Deadline::start(call), Retry::default());
        let mut renewed = false;
        loop {
            let link = self.link.load_full();
            match link.get(get, deadline, &mut renewed).await {
                Ok(answer) => return Ok(answer),
                // It says nothing about the configuration that is in use now.
                Err(_) if link.is_retired() && !deadline.left().is_zero() => renewed = false,
                Err(failure) => retry.again(failure, deadline).await?,
            }
        }
    }
}
