//! Implements the contract's `Cloud`.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use async_trait::async_trait;
use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    Call, Capability, Claim, Cloud, CloudError, ErrorKind, Instances, LoadBalancers, Routes,
    Shortfall,
};
use ccm_openstack_client::{
    api::{Api as _, Client, Clients, Service},
    network::Neutron,
    text::MAX_VALUE,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use url::Url;

use crate::{
    NAME,
    balancers::OctaviaBalancers,
    config::Config,
    ids::{self, Parsed},
    instances::{OpenStackInstances, spelt},
    names_of_settings,
    routes::NeutronRoutes,
};

/// One project in one region.
pub struct OpenStackCloud {
    clients: Clients,
    client: Arc<Client>,
    /// The settings in use, except credentials and certificates, which are replaced.
    config: Arc<Config>,
    instances: Arc<OpenStackInstances>,
    /// The routes of the configured router; `None` without one.
    routes: Option<Arc<NeutronRoutes>>,
    /// The load balancers; `None` if they are switched off.
    balancers: Option<Arc<OctaviaBalancers>>,
    /// The capabilities that this process uses: only their services are asked.
    wanted: Mutex<HashSet<Capability>>,
    /// Names in the settings that the cloud does not have.
    unresolved: Mutex<Vec<Shortfall>>,
    /// Wakes the task that looks for these names when the cloud has answered.
    answers: Notify,
    /// The reason why the cloud's features are not known yet; `None` once Nova has answered.
    unknown: Mutex<Option<CloudError>>,
    /// The settings that have changed and need a restart.
    outdated: watch::Sender<Option<String>>,
    /// Wakes the tasks that wait for changed settings to be in use.
    changed: Notify,
    /// Background tasks; they end with the cloud.
    tasks: Mutex<JoinSet<()>>,
}

/// Returns Keystone's host and path, by which a restored copy of the cloud can differ: without
/// scheme, credentials and version.
fn place(auth_url: &Url) -> String {
    let port = auth_url.port().map_or_else(String::new, |port| format!(":{port}"));
    let path = auth_url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v3").unwrap_or(path);
    format!("{}{port}{path}", auth_url.host_str().unwrap_or_default())
}

/// The outcome of changed settings that work.
#[derive(Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The settings are in use.
    InUse,
    /// The settings wait for a restart, because these have changed.
    AtRestart(String),
}

impl OpenStackCloud {
    /// Sends no request. Fails only with [`ErrorKind::Invalid`].
    pub fn new(clients: Clients, config: &Config) -> Result<Self, CloudError> {
        let client = Arc::new(clients.client(&config.access)?);
        client.activate();
        let config = Arc::new(config.clone());
        let instances = OpenStackInstances::new(Arc::clone(&client) as _, Arc::clone(&config));
        let routes = config
            .route
            .router_id
            .as_ref()
            .map(|router| Arc::new(NeutronRoutes::new(Arc::clone(&client) as _, router)));
        let balancers = config
            .load_balancer
            .enabled
            .then(|| OctaviaBalancers::new(&(Arc::clone(&client) as _), Arc::clone(&config)));
        Ok(Self {
            routes,
            balancers: balancers.map(Arc::new),
            wanted: Mutex::default(),
            unresolved: Mutex::default(),
            answers: Notify::new(),
            clients,
            client,
            config,
            instances: Arc::new(instances),
            unknown: Mutex::new(Some(CloudError::new(
                ErrorKind::Unavailable,
                "no request to OpenStack has been made yet",
            ))),
            outdated: watch::Sender::new(None),
            changed: Notify::new(),
            tasks: Mutex::default(),
        })
    }

    /// Runs a background task until the cloud is dropped.
    pub fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    /// Tries changed settings: Keystone must accept them, and every service that answers with the
    /// settings in use must also answer with the new ones. Then new credentials and certificates
    /// are in use, and other changes wait for a restart. After an error all that was in use stays.
    pub async fn adopt(&self, config: &Config, call: Call) -> Result<Adopted, CloudError> {
        let tried = self.tried(config, call).await;
        let adopted = tried.as_ref().ok().map(|(trial, _)| self.differing(config, trial));
        self.outdated.send_replace(adopted.clone().flatten());
        let (trial, nova) = tried?;
        if let Some(what) = adopted.flatten() {
            return Ok(Adopted::AtRestart(what));
        }
        self.client.take_over(&trial);
        if let Some(nova) = nova {
            self.learn(nova.err());
        }
        self.changed.notify_waiters();
        Ok(Adopted::InUse)
    }

    /// Returns true if this process asks Nova. A process for routes or load balancers may have no
    /// right to.
    fn asks_nova(&self) -> bool {
        let others = self.wanted_routes().is_some() || self.wanted_balancers().is_some();
        self.wants(Capability::Instances) || !others
    }

    /// Returns true if this process has asked for the capability.
    fn wants(&self, capability: Capability) -> bool {
        self.wanted.lock().contains(&capability)
    }

    /// Returns a client with these settings that works, and what Nova answered it if it was asked.
    async fn tried(
        &self,
        config: &Config,
        call: Call,
    ) -> Result<(Client, Option<Result<(), CloudError>>), CloudError> {
        let trial = self.clients.client(&config.access)?;
        let asks_nova = self.asks_nova();
        let asked = |service: &Service| match service {
            Service::Compute => asks_nova,
            other => self.client.answers(*other).is_some(),
        };
        let services = [Service::Compute, Service::Network, Service::LoadBalancer];
        let asked: Vec<Service> = services.into_iter().filter(asked).collect();
        trial.log_in(&asked, call).await?;
        let nova = if asks_nova { Some(trial.probe(Service::Compute, call).await) } else { None };
        if self.client.answers(Service::Compute) == Some(true) {
            nova.clone().transpose()?;
        }
        for service in [Service::Network, Service::LoadBalancer] {
            if self.client.answers(service) == Some(true) {
                trial.probe(service, call).await?;
            }
        }
        Ok((trial, nova))
    }

    /// Returns the differences from the settings in use, besides credentials and certificates.
    fn differing(&self, config: &Config, trial: &Client) -> Option<String> {
        let mut differing = self.config.differing(config);
        let (own, new) = (self.client.project(), trial.project());
        if let (Some(own), Some(new)) = (own, new)
            && own.id != new.id
        {
            differing.push("project");
        }
        (!differing.is_empty()).then(|| differing.join(", "))
    }

    /// Records the result of a probe of Nova. Returns whether it is the first success.
    fn learn(&self, error: Option<CloudError>) -> bool {
        let mut unknown = self.unknown.lock();
        let is_first = unknown.is_some() && error.is_none();
        *unknown = unknown.take().and(error);
        is_first
    }

    /// Parses a provider ID. If no region is configured, the region of the endpoint in use
    /// counts.
    fn parse(&self, provider_id: &str) -> Parsed {
        match ids::parse(provider_id, self.config.access.region.as_deref()) {
            Parsed::AnotherRegion(region) if self.client.lies_in(&region) => {
                ids::parse(provider_id, Some(&region))
            }
            parsed => parsed,
        }
    }

    /// Returns the routes, if this process asked for them.
    fn wanted_routes(&self) -> Option<&NeutronRoutes> {
        self.routes.as_deref().filter(|_| self.wants(Capability::Routes))
    }

    /// Returns the load balancers, if this process asked for them.
    fn wanted_balancers(&self) -> Option<&OctaviaBalancers> {
        self.balancers.as_deref().filter(|_| self.wants(Capability::LoadBalancers))
    }

    async fn network_health(&self, call: Call) -> Result<(), CloudError> {
        match self.wanted_routes() {
            Some(routes) if routes.offered().is_err() => routes.learn(call).await,
            Some(_) => self.client.probe(Service::Network, call).await,
            None => Ok(()),
        }
    }

    async fn balancer_health(&self, call: Call) -> Result<(), CloudError> {
        match self.wanted_balancers().map(|balancers| (balancers.offered(), balancers)) {
            Some((Err(_), balancers)) => balancers.learn(call).await,
            Some((Ok(true), _)) => self.client.probe(Service::LoadBalancer, call).await,
            Some((Ok(false), _)) | None => Ok(()),
        }
    }

    /// Waits until all services have answered that this process uses.
    pub async fn until_answered(&self) {
        self.answers.notified().await;
    }

    /// Looks which names of the settings the cloud does not have, of the capabilities that this process
    /// uses, and says what has changed since the last look. Returns true if it has all.
    pub async fn resolve(&self, call: Call) -> Result<bool, CloudError> {
        let uses = |capability: Capability| match capability {
            Capability::Instances => self.asks_nova(),
            Capability::LoadBalancers => self.wanted_balancers().is_some(),
            Capability::Routes => self.wanted_routes().is_some(),
        };
        let neutron = Neutron::new(Arc::clone(&self.client) as _);
        let found = names_of_settings::unresolved(&self.config, &neutron, uses, call).await?;
        let before = std::mem::replace(&mut *self.unresolved.lock(), found.clone());
        for lost in found.iter().filter(|it| !before.contains(it)) {
            tracing::warn!("{}", lost.text);
        }
        for resolved in before.iter().filter(|it| !found.contains(it)) {
            tracing::info!("not so any more: {}", resolved.text);
        }
        Ok(found.is_empty())
    }

    /// The client in use.
    #[cfg(test)]
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Logs project, region and versions in use.
    pub fn introduce(&self, what: &str) {
        let project = self.client.project();
        tracing::info!(
            project = project.as_ref().map(|project| &*project.name),
            project_id = project.as_ref().map(|project| &*project.id),
            region = self.client.region(),
            compute_microversion = self.client.microversion().map(|version| version.to_string()),
            "{what}"
        );
    }
}

#[async_trait]
impl Cloud for OpenStackCloud {
    fn name(&self) -> &str {
        NAME
    }

    fn schemes(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    /// Decides whether a node belongs to this provider. A node of another region belongs to another
    /// controller. A malformed ID with the scheme of this provider is claimed, so that the error is
    /// reported.
    fn claim(&self, provider_id: Option<&str>) -> Claim {
        let Some(text) = provider_id.filter(|text| !text.is_empty()) else {
            return Claim::Unclaimed;
        };
        match self.parse(text) {
            Parsed::Ours(_) => Claim::Ours,
            Parsed::AnotherRegion(_) => Claim::Foreign,
            Parsed::Malformed(_) if ids::has_scheme(text) => Claim::Ours,
            Parsed::Malformed(_) => Claim::Foreign,
        }
    }

    fn why_foreign(&self, provider_id: &str) -> String {
        match self.parse(provider_id) {
            Parsed::AnotherRegion(region) => {
                let is_set = self.config.access.region.is_some();
                let source = if is_set { "" } else { " in the catalog" };
                let own = self.client.region().map_or_else(
                    || "its region is not known yet".to_owned(),
                    |own| {
                        format!("this provider serves {own} (cloud.conf [Global] region{source})")
                    },
                );
                format!("names the region {}, and {own}", one_line(&region, MAX_VALUE))
            }
            Parsed::Ours(_) | Parsed::Malformed(_) => {
                format!("has no scheme of this provider ({NAME})")
            }
        }
    }

    fn why_not_offered(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::Instances => None,
            Capability::LoadBalancers if self.balancers.is_none() => {
                Some("[LoadBalancer] enabled is false".to_owned())
            }
            Capability::LoadBalancers => self.client.lacks(Service::LoadBalancer),
            Capability::Routes if self.routes.is_none() => {
                Some("[Route] router-id is not set".to_owned())
            }
            Capability::Routes => Some(
                "Neutron has neither the extension extraroute nor extraroute-atomic".to_owned(),
            ),
        }
    }

    fn in_clear(&self) -> Option<String> {
        self.client.in_clear()
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        let unmanaged = self
            .config
            .unmanaged
            .iter()
            .map(|text| Shortfall { capability: Capability::LoadBalancers, text: text.clone() });
        unmanaged.chain(self.unresolved.lock().iter().cloned()).collect()
    }

    fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
        match self.parse(provider_id) {
            Parsed::Ours(id) => spelt(&self.config, &id).into(),
            Parsed::AnotherRegion(_) | Parsed::Malformed(_) => provider_id.into(),
        }
    }

    /// Returns project, region and Keystone. The project is the token's, so it is known once
    /// Keystone has answered, which is before anything is offered.
    fn identity(&self) -> Option<String> {
        let project = self.client.project()?.id;
        let region = self.client.region();
        let region = region.map_or_else(String::new, |region| format!("region {region}, "));
        let other = self.client.other_region();
        let other = other.map_or_else(String::new, |it| format!("load balancers of region {it}, "));
        Some(one_line(
            &format!("project {project}, {region}{other}{}", place(&self.config.access.auth_url)),
            LONGEST_LINE,
        ))
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        self.wanted.lock().insert(Capability::Instances);
        match &*self.unknown.lock() {
            None => Ok(Some(Arc::clone(&self.instances) as Arc<dyn Instances>)),
            Some(error) => Err(error.clone()),
        }
    }

    /// Returns the routes. They are not offered without `[Route] router-id`, and by a Neutron
    /// without extra routes.
    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        self.wanted.lock().insert(Capability::Routes);
        let Some(routes) = &self.routes else { return Ok(None) };
        Ok(routes.offered()?.then(|| Arc::clone(routes) as Arc<dyn Routes>))
    }

    /// Returns the load balancers. They are not offered with `[LoadBalancer] enabled=false`, and by
    /// a cloud without Octavia.
    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        self.wanted.lock().insert(Capability::LoadBalancers);
        let Some(balancers) = &self.balancers else { return Ok(None) };
        Ok(balancers.offered()?.then(|| Arc::clone(balancers) as Arc<dyn LoadBalancers>))
    }

    /// Asks the services behind what this process uses. One that does not answer hides nothing of
    /// another one.
    async fn health(&self, call: Call) -> Result<(), CloudError> {
        let compute = async {
            if !self.asks_nova() {
                return Ok(());
            }
            let outcome = self.client.probe(Service::Compute, call).await;
            if self.learn(outcome.clone().err()) {
                self.introduce("OpenStack answers");
            }
            outcome
        };
        let (network, balancing) = (self.network_health(call), self.balancer_health(call));
        let (compute, network, balancing) = tokio::join!(compute, network, balancing);
        let outcome = compute.and(network).and(balancing);
        if outcome.is_ok() {
            self.answers.notify_one();
        }
        outcome
    }

    async fn outdated(&self) -> String {
        let mut outdated = self.outdated.subscribe();
        match outdated.wait_for(Option::is_some).await.ok().and_then(|what| what.clone()) {
            Some(what) => what,
            None => std::future::pending().await,
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_neither_credentials_nor_a_version() {
        for (auth_url, expect) in [
            ("http://keystone", "keystone"),
            ("https://keystone/v3", "keystone"),
            ("https://keystone:443/v3/", "keystone"),
            ("http://u:secret@[fd00::1]:5000/identity/v3/?a=b", "[fd00::1]:5000/identity"),
        ] {
            assert_eq!(place(&auth_url.parse().unwrap()), expect, "{auth_url}");
        }
    }
}
