//! One call: a token, the place of the service, the request, and what is done again.

use std::{sync::Arc, time::Duration};

use ccm_base::{Backoff, message::one_line};
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::Instant;

use super::{Answer, Client, Failure, Get, Outgoing, Service, TOKEN, retry::Retry};
use crate::openstack::{
    discovery::{self, Microversion},
    session::Token,
    text::MAX_MESSAGE,
};

/// After a new token that a service refused, too, before another login for its sake.
const DISTRUST: Backoff =
    Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(10) };
/// A catalog that lacks a service is fetched again after this time.
const CATALOG: Duration = Duration::from_mins(1);

impl Client {
    /// Logs in and looks whether the catalog has these services.
    pub(crate) async fn log_in(&self, services: &[Service], call: Call) -> Result<(), CloudError> {
        let mut retry = Retry::default();
        let token = loop {
            match self.session.token(call).await {
                Ok(token) => break token,
                Err(failure) => retry.again(failure, call).await?,
            }
        };
        services.iter().try_for_each(|service| self.url(*service, &token).map(drop))
    }

    /// Sends the request, again if that may help; with another login and once more if the
    /// token is refused.
    pub(super) async fn persist(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError> {
        stays_below(get.path)?;
        let (mut retry, mut renewed) = (Retry::default(), false);
        loop {
            let failure = match self.session.token(call).await {
                Err(failure) => failure,
                Ok(token) => match self.once(get, &token, call).await {
                    Ok(answer) => {
                        self.distrusted.lock().remove(get.operation);
                        return Ok(answer);
                    }
                    Err(failure)
                        if failure.error.kind == ErrorKind::Unauthorized
                            && self.may_renew(get.operation, renewed) =>
                    {
                        renewed = true;
                        self.session.give_up(token.generation);
                        continue;
                    }
                    Err(failure) => failure,
                },
            };
            retry.again(failure, call).await?;
        }
    }

    /// Whether another login may help an operation whose token is refused: not if that token
    /// was `renewed` for it, and not soon after another one was.
    fn may_renew(&self, operation: &'static str, renewed: bool) -> bool {
        let mut distrusted = self.distrusted.lock();
        let before = distrusted.get(operation).copied();
        if before.is_some_and(|(times, since)| since.elapsed() < DISTRUST.after(times)) {
            return false;
        }
        if renewed {
            let times = before.map_or(1, |(times, _)| times.saturating_add(1));
            distrusted.insert(operation, (times, Instant::now()));
        }
        !renewed
    }

    async fn once(&self, get: Get<'_>, token: &Arc<Token>, call: Call) -> Result<Answer, Failure> {
        let Get { service, operation, path } = get;
        let url = self.url(service, token)?;
        let endpoint = match service {
            Service::Compute => self.discovery.compute(token, url, call).await?,
            Service::Network | Service::Identity => discovery::network(url)?,
        };
        let url = format!("{}{}", endpoint.base, path.trim_start_matches('/'));
        let mut outgoing = Outgoing::get(service, operation, url);
        outgoing.headers.insert(TOKEN, token.value.clone());
        outgoing.headers.extend(endpoint.microversion.into_iter().flat_map(Microversion::headers));
        self.wire.send(outgoing, call).await.inspect_err(|failure| {
            let is_odd =
                matches!(failure.error.kind, ErrorKind::Unavailable | ErrorKind::Malformed);
            if service == Service::Compute && is_odd {
                self.discovery.doubt();
            }
        })
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
        let url = match &self.region {
            Some(region) => catalog.url(service, interface, Some(region)),
            None => catalog
                .url(service, interface, catalog.region(Service::Compute, interface))
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
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        let why = format!("{:?} is no path of an object", one_line(path, MAX_MESSAGE));
        return Err(CloudError::new(ErrorKind::Invalid, why));
    }
    Ok(())
}
