//! [`ExternalCloud`]: a provider in a separate process.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{
    Call, Capability, Cloud, CloudError, Instances, LoadBalancers, ProviderContext,
    ProviderFactory, Routes,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    NAME,
    connection::Connection,
    convert::priority_to_wire,
    keeper, proto,
    rpc::{Wire, provider_client, question, read},
    shared::Shared,
    weight::Budget,
};

/// Builds [`ExternalCloud`] from the file of `--cloud-config`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExternalFactory;

#[async_trait]
impl ProviderFactory for ExternalFactory {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        Ok(Arc::new(ExternalCloud::build(context).await?))
    }
}

/// The client of the external protocol.
///
/// It connects on first use and again whenever the connection breaks. A background task
/// requests the provider's description until it is answered, after each new connection and
/// once a minute, so that [`Cloud::schemes`] and [`Cloud::instances`] return at once. The
/// configuration file and its PEM files are read again when they change.
pub struct ExternalCloud {
    shared: Arc<Shared>,
    /// Stopped when this value is dropped.
    _keeper: Mutex<JoinSet<()>>,
}

impl ExternalCloud {
    /// Reads the configuration and starts the keeper. The provider need not be running.
    pub async fn build(context: ProviderContext) -> Result<Self, CloudError> {
        let (connection, files) = Connection::configure(context.config, context.user_agent).await?;
        let wire = Wire { connection, gate: context.gate };
        let shared = Arc::new(Shared::new(wire));
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper::run(Arc::clone(&shared), files));
        Ok(Self { shared, _keeper: Mutex::new(tasks) })
    }

    fn offered(&self, capability: Capability) -> Result<bool, CloudError> {
        let description = self.shared.description().ok_or_else(|| self.shared.unknown())?;
        description.offered(capability)
    }
}

#[async_trait]
impl Cloud for ExternalCloud {
    fn name(&self) -> &str {
        NAME
    }

    fn schemes(&self) -> Vec<String> {
        self.shared.description().map(|description| description.schemes.clone()).unwrap_or_default()
    }

    /// Returns the identity of the cloud. It is unknown after each new connection, which may lead
    /// to another process, until that process has described itself.
    fn identity(&self) -> Option<String> {
        self.shared.identity()
    }

    fn in_clear(&self) -> Option<String> {
        self.shared.wire.connection.in_clear()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        let offered = self.offered(Capability::Instances)?;
        Ok(offered.then(|| Arc::clone(&self.shared) as _))
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        let offered = self.offered(Capability::LoadBalancers)?;
        Ok(offered.then(|| Arc::clone(&self.shared) as _))
    }

    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        let offered = self.offered(Capability::Routes)?;
        Ok(offered.then(|| Arc::clone(&self.shared) as _))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        if self.shared.description().is_none() {
            self.shared.describe(call).await?;
        }
        let message = proto::HealthRequest { priority: Some(priority_to_wire(call.priority)) };
        let send = |channel, terms| async move {
            provider_client(channel).health(question(message, terms)).await
        };
        self.shared.wire.call(read("health"), call, &Budget::default(), send).await.map(drop)
    }

    async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}
