//! Makes one call: gets a token, finds the service, sends the request, and retries.

use std::{sync::Arc, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError, ErrorKind};

use url::Url;

use super::{
    Answer, Client, Failure, Request, Service,
    endpoints::{self, Microversion},
    retry::Retry,
    send::{Outgoing, TOKEN},
    session::{Session, Token},
};
use crate::{config::is_in_clear, text::MAX_MESSAGE};

pub const NO_PROJECT: &str = "the login is for no project, and only a project has servers: set \
                          tenant-id, or tenant-name with its domain";
/// A catalog that lacks a service is fetched again after this time.
const CATALOG: Duration = Duration::from_mins(1);

impl Client {
    /// Logs in and looks whether the catalog has these services.
    pub async fn log_in(&self, services: &[Service], call: Call) -> Result<(), CloudError> {
        let mut retry = Retry::default();
        let token = loop {
            match self.session.load().token(call).await {
                Ok(token) => break token,
                Err(failure) => retry.again(failure, true, call).await?,
            }
        };
        let session = self.session.load();
        services.iter().try_for_each(|service| self.url(*service, &session, &token).map(drop))
    }

    /// Sends the request, again if that may help; with another login and once more if the
    /// token is refused. Each time with the session that is then in use.
    pub async fn persist(&self, request: &Request<'_>, call: Call) -> Result<Answer, CloudError> {
        stays_below(request.path)?;
        let (mut retry, mut renewed) = (Retry::default(), false);
        loop {
            let session = self.session.load_full();
            let failure = match self.prepare(request, &session, call).await {
                Err(failure) => failure,
                Ok((outgoing, token)) => match session.wire.send(outgoing, call).await {
                    Ok(answer) => {
                        session.trust(request.operation);
                        return Ok(answer);
                    }
                    // Nothing was done: a service checks the token before everything else.
                    Err(failure)
                        if failure.error.kind == ErrorKind::Unauthorized
                            && session.may_renew(request.operation, renewed) =>
                    {
                        renewed = true;
                        session.give_up(token.generation);
                        continue;
                    }
                    Err(failure) => failure,
                },
            };
            retry.again(failure, request.class().repeatable, call).await?;
        }
    }

    /// Returns the request with a token and the place of the service.
    async fn prepare(
        &self,
        request: &Request<'_>,
        session: &Arc<Session>,
        call: Call,
    ) -> Result<(Outgoing, Arc<Token>), Failure> {
        let token = session.token(call).await?;
        let url = self.url(request.service, session, &token)?;
        let (base, microversion) = match request.service {
            Service::Compute => {
                let endpoint = session.compute(&token, url, call).await?;
                (endpoint.base, endpoint.microversion)
            }
            Service::LoadBalancer => (endpoints::load_balancer(url)?, None),
            Service::Network | Service::Identity => (endpoints::network(url)?, None),
        };
        let url = format!("{base}{}", request.path.trim_start_matches('/'));
        let mut outgoing = Outgoing::new(request, url);
        outgoing.headers.insert(TOKEN, token.value.clone());
        outgoing.headers.extend(microversion.into_iter().flat_map(Microversion::headers));
        Ok((outgoing, token))
    }

    /// Returns the service's URL in the catalog, if it may get the token.
    pub fn url<'a>(
        &self,
        service: Service,
        session: &Session,
        token: &'a Token,
    ) -> Result<&'a str, CloudError> {
        let found =
            self.place_of(service, token).and_then(|url| match self.needs_tls && is_http(url) {
                true => Err(session.leads_out_of_tls(service, url)),
                false => Ok(url),
            });
        found.inspect_err(|_| {
            // Perhaps the cloud's administrator has added or corrected it since.
            if token.since.elapsed() >= CATALOG {
                session.give_up(token.generation);
            }
        })
    }

    /// Returns the service's URL in the catalog. Where no region is set, Nova's first endpoint
    /// decides, and Neutron is in the same region.
    fn place_of<'a>(&self, service: Service, token: &'a Token) -> Result<&'a str, CloudError> {
        if token.project.is_none() {
            return Err(CloudError::new(ErrorKind::Invalid, NO_PROJECT));
        }
        let (catalog, interface) = (&token.catalog, self.interface);
        match &self.region {
            Some(region) => catalog.url(service, interface, Some(region)),
            None => catalog
                .url(service, interface, catalog.region(Service::Compute, interface))
                .or_else(|_| catalog.url(service, interface, None)),
        }
    }

    /// Returns the service on another machine that is asked without TLS, as far as it is known.
    /// Does not cost a request or a token.
    pub fn in_clear(&self) -> Option<String> {
        let is_clear = |text: &str| Url::parse(text).is_ok_and(|url| is_in_clear(&url));
        let session = self.session.load();
        let keystone = session.auth_url();
        if is_clear(keystone) {
            return Some(format!("Keystone at {keystone}"));
        }
        let token = session.last().filter(|_| !self.needs_tls)?;
        let told = |service: Service| {
            let url = self.place_of(service, &token).ok().filter(|url| is_clear(url))?;
            Some(format!("{} at {}", service.name(), one_line(url, MAX_MESSAGE)))
        };
        Service::ALL.into_iter().filter(|service| self.answers(*service).is_some()).find_map(told)
    }
}

fn is_http(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.scheme() == "http")
}

/// Refuses a path that leaves the base path of the service, or that names a whole collection because an
/// ID is empty: the answer would be about another object.
fn stays_below(path: &str) -> Result<(), CloudError> {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let below = path.strip_prefix('/').unwrap_or(path);
    let is_odd = |segment: &str| matches!(segment, "" | "." | "..");
    if !below.is_empty() && below.split('/').any(is_odd) {
        let why = format!("{:?} is not the path of an object", one_line(path, MAX_MESSAGE));
        return Err(CloudError::new(ErrorKind::Invalid, why));
    }
    Ok(())
}
