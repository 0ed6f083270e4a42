//! Implements the contract's `Cloud`.

use std::{borrow::Cow, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use ccm_cloud::{
    Call, Claim, Cloud, CloudError, Detail, ErrorKind, Fleet, Instances, LookupResult, NodeIdentity,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    NAME,
    client::{Api as _, Client, Clients, Service},
    config::Config,
    ids::{self, Parsed},
    instances::OpenStackInstances,
};

/// One project in one region.
pub(super) struct OpenStackCloud {
    clients: Clients,
    in_use: Arc<InUse>,
    /// Why it is not known yet what the cloud offers; `None` once Nova has answered.
    unknown: Mutex<Option<CloudError>>,
    /// Background tasks; they end with the cloud.
    tasks: Mutex<JoinSet<()>>,
}

/// The current state, which may be replaced.
struct InUse(ArcSwap<Current>);

/// The state that belongs to one version of the settings.
struct Current {
    client: Arc<Client>,
    instances: OpenStackInstances,
}

impl Current {
    fn new(client: Client, config: &Config) -> Self {
        let client = Arc::new(client);
        Self { instances: OpenStackInstances::new(Arc::clone(&client) as _, config), client }
    }

    /// The state for new settings. For the same project it keeps the caches of flavors and
    /// ports, so that an incomplete response does not remove data from nodes.
    fn replaced_with(&self, client: Client, config: &Config) -> Self {
        let same = client.is_of_the_project_of(&self.client);
        let next = Self::new(client, config);
        match same {
            true => Self { instances: next.instances.with_caches_of(&self.instances), ..next },
            false => next,
        }
    }

    /// Parses a provider ID. If no region is configured, the region of the endpoint in use
    /// counts.
    fn parse(&self, provider_id: &str) -> Parsed {
        match ids::parse(provider_id, self.instances.shape.region.as_deref()) {
            Parsed::AnotherRegion(region) if self.client.lies_in(&region) => {
                ids::parse(provider_id, Some(&region))
            }
            parsed => parsed,
        }
    }
}

impl OpenStackCloud {
    /// Sends no request. Fails only with [`ErrorKind::Invalid`].
    pub(super) fn new(clients: Clients, config: &Config) -> Result<Self, CloudError> {
        let current = Current::new(clients.client(config)?, config);
        current.client.activate();
        Ok(Self {
            clients,
            in_use: Arc::new(InUse(ArcSwap::from_pointee(current))),
            unknown: Mutex::new(Some(CloudError::new(
                ErrorKind::Unavailable,
                "no request to OpenStack has been made yet",
            ))),
            tasks: Mutex::default(),
        })
    }

    /// Runs a background task until the cloud is dropped.
    pub(super) fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    /// Replaces the settings, if Keystone accepts the new ones and if every service that
    /// answers with the old settings also answers with the new ones: Nova, and Neutron if it
    /// is used. After an error the old settings stay in use.
    pub(super) async fn replace(&self, config: &Config, call: Call) -> Result<(), CloudError> {
        let before = self.in_use.0.load_full();
        let client = self.clients.client(config)?;
        let asks_neutron = before.client.answers(Service::Network).is_some();
        let services = [Service::Compute, Service::Network];
        client.log_in(if asks_neutron { &services } else { &services[..1] }, call).await?;
        let nova = client.probe(call).await;
        if before.client.answers(Service::Compute) == Some(true) {
            nova.clone()?;
        }
        if before.client.answers(Service::Network) == Some(true) {
            client.probe_network(call).await?;
        }
        let current = Arc::new(before.replaced_with(client, config));
        self.in_use.0.swap(Arc::clone(&current)).client.retire();
        current.client.activate();
        self.learn(nova.err());
        Ok(())
    }

    /// Records the result of a probe of Nova. Returns whether it is the first success.
    fn learn(&self, error: Option<CloudError>) -> bool {
        let mut unknown = self.unknown.lock();
        let is_first = unknown.is_some() && error.is_none();
        *unknown = unknown.take().and(error);
        is_first
    }

    /// The client in use.
    #[cfg(test)]
    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.in_use.0.load().client)
    }

    /// Logs project, region and versions in use.
    pub(super) fn introduce(&self, what: &str) {
        let current = self.in_use.0.load();
        let project = current.client.project();
        tracing::info!(
            project = project.as_ref().map(|project| &*project.name),
            project_id = project.as_ref().map(|project| &*project.id),
            region = current.client.region(),
            compute_microversion = current.client.microversion().map(|version| version.to_string()),
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

    /// A node of another region belongs to another controller. A malformed ID with the scheme
    /// of this provider is claimed, so that the error is reported.
    fn claim(&self, provider_id: Option<&str>) -> Claim {
        let Some(text) = provider_id.filter(|text| !text.is_empty()) else {
            return Claim::Unclaimed;
        };
        match self.in_use.0.load().parse(text) {
            Parsed::Ours(_) => Claim::Ours,
            Parsed::AnotherRegion(_) => Claim::Foreign,
            Parsed::Malformed(_) if ids::has_scheme(text) => Claim::Ours,
            Parsed::Malformed(_) => Claim::Foreign,
        }
    }

    fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
        let current = self.in_use.0.load();
        match current.parse(provider_id) {
            Parsed::Ours(id) => current.instances.shape.spelt(&id).into(),
            Parsed::AnotherRegion(_) | Parsed::Malformed(_) => provider_id.into(),
        }
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        match &*self.unknown.lock() {
            None => Ok(Some(Arc::clone(&self.in_use) as Arc<dyn Instances>)),
            Some(error) => Err(error.clone()),
        }
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        let work = |current: Arc<Current>| async move { current.client.probe(call).await };
        let outcome = self.in_use.by_one(work).await;
        if self.learn(outcome.clone().err()) {
            self.introduce("OpenStack answers");
        }
        outcome
    }
}

impl InUse {
    /// Does `work` by the settings in use. Work under way when they are replaced is begun
    /// again by the new ones: one answer never mixes two clouds.
    async fn by_one<T, F: Future<Output = T>>(&self, work: impl Fn(Arc<Current>) -> F) -> T {
        loop {
            let current = self.0.load_full();
            tokio::select! {
                biased;
                () = current.client.retired() => {}
                outcome = work(Arc::clone(&current)) => return outcome,
            }
        }
    }
}

#[async_trait]
impl Instances for InUse {
    /// The provider IDs have the current spelling, which may omit the region. So if the
    /// settings are replaced by those of another region, the lookup fails.
    async fn lookup(
        &self,
        nodes: &[NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Vec<LookupResult> {
        let asked = self.0.load_full();
        let asked = &asked;
        let work = |current: Arc<Current>| async move {
            if current.client.region() == asked.client.region() {
                return current.instances.lookup(nodes, detail, call).await;
            }
            let why = "the cloud's configuration was replaced by one for another region";
            vec![Err(CloudError::new(ErrorKind::Unavailable, why)); nodes.len()]
        };
        self.by_one(work).await
    }

    async fn list(&self, detail: Detail, call: Call) -> Result<Fleet, CloudError> {
        let work =
            |current: Arc<Current>| async move { current.instances.list(detail, call).await };
        self.by_one(work).await
    }
}
