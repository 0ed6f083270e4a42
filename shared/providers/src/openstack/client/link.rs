//! The client with one configuration: a session, and where the services are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::{Backoff, message::one_line};
use ccm_cloud::{CloudError, ErrorKind};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Answer, Deadline, Failure, Get, Outgoing, Service, Shared, TOKEN, Wire};
use crate::openstack::{
    config::{Config, Interface},
    discovery::{self, Discovery, Endpoint, Microversion},
    session::{Login, Session, Token},
    text::MAX_MESSAGE,
    transport::Transport,
};

/// After a new token that a service refused, too, before another login for its sake.
const STUBBORN: Backoff =
    Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(10) };
/// A catalog that lacks a service is fetched again after this time.
const CATALOG: Duration = Duration::from_mins(1);

pub(super) struct Link {
    wire: Arc<Wire>,
    pub(super) session: Arc<Session>,
    pub(super) discovery: Arc<Discovery>,
    identity: Endpoint,
    interface: Interface,
    pub(super) region: Option<String>,
    /// The operations whose last word is that even a new token is refused: one of a
    /// service's may lack a right that the others have.
    stubborn: Mutex<BTreeMap<&'static str, Stubborn>>,
    retired: CancellationToken,
}

/// What is known of an operation for which one new token after another is refused.
#[derive(Clone, Copy, Debug)]
struct Stubborn {
    /// The login that brought the last of them.
    generation: u64,
    /// How many, whoever asked with them.
    refused: u32,
    since: Instant,
}

impl Link {
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: Transport,
        config: &Config,
        user_agent: &str,
    ) -> Result<Self, CloudError> {
        let identity = discovery::identity(&config.auth_url)?;
        let user_agent = HeaderValue::try_from(user_agent).map_err(|_| {
            CloudError::new(
                ErrorKind::Invalid,
                format!("user-agent: {user_agent:?} is not fit for a header: use printable ASCII"),
            )
        })?;
        let longest = Some(config.request_timeout).filter(|longest| !longest.is_zero());
        let wire = Arc::new(Wire { shared, transport, user_agent, longest });
        let login = Login::new(&config.auth_url, &identity.base, config.credentials.clone());
        Ok(Self {
            session: Session::new(Arc::clone(&wire), login),
            wire,
            discovery: Arc::default(),
            identity,
            interface: config.interface,
            region: config.region.clone(),
            stubborn: Mutex::default(),
            retired: CancellationToken::new(),
        })
    }

    /// Another one is in use from now on. Who waits here for a token or for Nova's
    /// versions fails at once, to go on there.
    pub(super) fn retire(&self) {
        self.retired.cancel();
        self.session.end();
        self.discovery.end();
    }

    /// Whether another one is in use.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// What comes of `wait`, unless the configuration is replaced first.
    async fn in_use<T>(
        &self,
        wait: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.retired.cancelled() => {
                let why = "the cloud's configuration was replaced";
                Err(Failure::passing(CloudError::new(ErrorKind::Unavailable, why)))
            }
            outcome = wait => outcome,
        }
    }

    /// Whether this is the region in use, by its configured name or, where none is, by
    /// the catalog. Not before the first login.
    pub(super) fn lies_in(&self, region: &str) -> bool {
        match &self.region {
            Some(own) => own == region,
            None => self.session.last().is_some_and(|token| {
                token.catalog.lies_in(Service::Compute, self.interface, region)
            }),
        }
    }

    /// The region in use, as far as it is known.
    pub(super) fn region_in_use(&self) -> Option<String> {
        let of_catalog = || {
            let token = self.session.last()?;
            token.catalog.region(Service::Compute, self.interface).map(str::to_owned)
        };
        self.region.clone().or_else(of_catalog)
    }

    /// Has a token and finds these services in its catalog. Asks nobody but Keystone.
    pub(super) async fn ready(
        &self,
        services: &[Service],
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let token = self.session.token(deadline).await?;
        for service in services {
            self.url(*service, &token)?;
        }
        Ok(())
    }

    /// Sends the request, with another login and once more if the token is refused,
    /// unless `renewed` says that the call had that already.
    pub(super) async fn get(
        &self,
        get: Get<'_>,
        deadline: Deadline,
        renewed: &mut bool,
    ) -> Result<Answer, Failure> {
        loop {
            let token = self.in_use(self.session.token(deadline)).await?;
            let failure = match self.once(get, &token, deadline).await {
                Ok(answer) => {
                    self.stubborn.lock().remove(get.operation);
                    return Ok(answer);
                }
                Err(failure) if failure.error.kind != ErrorKind::Unauthorized => {
                    return Err(failure);
                }
                Err(failure) => failure,
            };
            if *renewed {
                self.refused(get.operation, token.generation);
                return Err(failure);
            }
            let stubborn = self.stubborn.lock().get(get.operation).copied();
            if stubborn.is_some_and(|it| it.since.elapsed() < STUBBORN.after(it.refused)) {
                return Err(failure);
            }
            *renewed = true;
            self.session.give_up(token.generation);
        }
    }

    /// The token of this login, which was had for this operation's sake, is refused.
    fn refused(&self, operation: &'static str, generation: u64) {
        let mut stubborn = self.stubborn.lock();
        let before = stubborn.get(operation);
        if before.is_none_or(|before| before.generation < generation) {
            let refused = before.map_or(0, |before| before.refused).saturating_add(1);
            let since = Instant::now();
            stubborn.insert(operation, Stubborn { generation, refused, since });
        }
    }

    async fn once(
        &self,
        get: Get<'_>,
        token: &Arc<Token>,
        deadline: Deadline,
    ) -> Result<Answer, Failure> {
        let Get { service, operation, path } = get;
        stays_below(path)?;
        let endpoint = self.in_use(self.endpoint(service, token, deadline)).await?;
        self.wire.open(service, operation, deadline).await?;
        let url = format!("{}{}", endpoint.base, path.trim_start_matches('/'));
        let mut outgoing = Outgoing::get(service, operation, url);
        outgoing.headers.insert(TOKEN, token.value.clone());
        outgoing.headers.extend(endpoint.microversion.into_iter().flat_map(Microversion::headers));
        match self.wire.send(outgoing, deadline).await {
            Ok(reply) => Ok(Answer {
                status: reply.status.as_u16(),
                body: reply.body,
                request_id: reply.request_id,
            }),
            Err(failure) => {
                if service == Service::Compute
                    && matches!(failure.error.kind, ErrorKind::Unavailable | ErrorKind::Malformed)
                {
                    self.discovery.doubt();
                }
                Err(failure)
            }
        }
    }

    async fn endpoint(
        &self,
        service: Service,
        token: &Arc<Token>,
        deadline: Deadline,
    ) -> Result<Endpoint, Failure> {
        if service == Service::Identity {
            return Ok(self.identity.clone());
        }
        let url = self.url(service, token)?;
        match service {
            Service::Compute => self.discovery.compute(&self.wire, token, url, deadline).await,
            Service::Network | Service::Identity => Ok(discovery::network(url)?),
        }
    }

    /// The service's URL in the catalog. Where no region is set, Nova's first endpoint
    /// decides, and Neutron is that of the same region.
    fn url<'a>(&self, service: Service, token: &'a Token) -> Result<&'a str, CloudError> {
        if token.project.is_none() {
            let why = "the login is for no project, and only a project has servers: \
                       set tenant-id, or tenant-name with its domain";
            return Err(CloudError::new(ErrorKind::Invalid, why));
        }
        let (catalog, interface) = (&token.catalog, self.interface);
        let novas = || catalog.region(Service::Compute, interface);
        let url = match &self.region {
            Some(region) => catalog.url(service, interface, Some(region)),
            None => catalog
                .url(service, interface, novas())
                .or_else(|_| catalog.url(service, interface, None)),
        };
        url.inspect_err(|_| {
            // Perhaps the cloud's administrator has added it since.
            if token.since.elapsed() >= CATALOG {
                self.session.give_up(token.generation);
            }
        })
    }
}

/// Refuses a path that leads elsewhere than below the service's base: what is found
/// there says nothing about the object that was meant.
fn stays_below(path: &str) -> Result<(), CloudError> {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    match path.split('/').any(|segment| matches!(segment, "." | "..")) {
        true => Err(CloudError::new(
            ErrorKind::Invalid,
            format!("{:?} is no path of an object", one_line(path, MAX_MESSAGE)),
        )),
        false => Ok(()),
    }
}
