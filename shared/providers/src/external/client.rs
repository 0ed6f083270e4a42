//! [`ExternalCloud`]: a provider that is a process of its own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{
    Call, Capability, Cloud, CloudError, ErrorKind, Instances, ProviderContext, ProviderFactory,
};
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinSet;

use super::{
    MAX_BATCH, NAME,
    connection::Connection,
    convert::priority_to_wire,
    description::Description,
    instances::ExternalInstances,
    keeper, proto,
    rpc::{Deadline, Wire, provider_client, question, read},
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
/// It connects on first use and again whenever the connection breaks. What the
/// provider says about itself is asked in the background until it answers, after each
/// new connection and once a minute, so that [`Cloud::schemes`] and
/// [`Cloud::instances`] answer at once. The configuration file and the PEM files that
/// it names are read again when they change.
pub struct ExternalCloud {
    shared: Arc<Shared>,
    /// Ends with this value.
    _keeper: Mutex<JoinSet<()>>,
}

/// What the cloud, its capabilities and its keeper share.
pub(super) struct Shared {
    pub(super) wire: Wire,
    known: RwLock<Known>,
}

/// What was learned about the provider.
#[derive(Default)]
struct Known {
    description: Option<Arc<Description>>,
    last_error: Option<CloudError>,
}

impl ExternalCloud {
    /// Reads the configuration and starts the keeper. The provider need not be there.
    pub async fn build(context: ProviderContext) -> Result<Self, CloudError> {
        let connection = Connection::configure(context.config.path, context.user_agent).await?;
        let wire = Wire { connection, gate: context.gate };
        let shared = Arc::new(Shared { wire, known: RwLock::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper::run(Arc::clone(&shared)));
        Ok(Self { shared, _keeper: Mutex::new(tasks) })
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

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        let Some(description) = self.shared.description() else {
            return Err(self.shared.unknown());
        };
        if !description.offers(Capability::Instances) {
            return Ok(None);
        }
        Ok(Some(Arc::new(ExternalInstances { shared: Arc::clone(&self.shared) })))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        let deadline = Deadline::start(call);
        if self.shared.description().is_none() {
            self.shared.describe(deadline).await?;
        }
        let message = proto::HealthRequest { priority: Some(priority_to_wire(call.priority)) };
        let answer = self.shared.wire.call(read("health"), deadline, |channel, terms| async move {
            provider_client(channel).health(question(message, terms)).await
        });
        answer.await.map(|proto::HealthResponse {}| ())
    }
}

impl Shared {
    pub(super) fn description(&self) -> Option<Arc<Description>> {
        self.known.read().description.clone()
    }

    /// How many nodes the provider takes in one lookup.
    pub(super) fn max_batch(&self) -> usize {
        self.description().map_or(MAX_BATCH, |description| description.max_batch)
    }

    /// Why nothing is known about the provider yet.
    fn unknown(&self) -> CloudError {
        let why = match &self.known.read().last_error {
            Some(error) => format!("has not described itself yet: {error}"),
            None => "has not been asked yet".to_owned(),
        };
        CloudError::new(
            ErrorKind::Unavailable,
            format!("the provider at {} {why}", self.wire.connection.endpoint()),
        )
    }

    /// Asks the provider about itself and remembers the answer. What is known already
    /// stays known while the provider does not answer.
    pub(super) async fn describe(&self, deadline: Deadline) -> Result<(), CloudError> {
        let answer = self.wire.call(read("describe"), deadline, |channel, terms| async move {
            provider_client(channel).describe(question(proto::DescribeRequest {}, terms)).await
        });
        let outcome = answer.await.and_then(Description::try_from);
        self.learn(outcome)
    }

    fn learn(&self, outcome: Result<Description, CloudError>) -> Result<(), CloudError> {
        let endpoint = self.wire.connection.endpoint();
        let mut known = self.known.write();
        let new = match outcome {
            Ok(new) => Arc::new(new),
            Err(error) => {
                if known.last_error.as_ref().map(|last| last.kind) != Some(error.kind) {
                    tracing::warn!(endpoint, error = %error, "the provider does not describe itself; asking again");
                }
                known.last_error = Some(error.clone());
                return Err(error);
            }
        };
        let recovered = known.last_error.take().is_some();
        match known.description.replace(Arc::clone(&new)) {
            Some(old) if old != new => {
                tracing::warn!(endpoint, old = %old, new = %new, "the provider describes itself differently");
            }
            Some(_) if !recovered => {}
            _ => {
                tracing::info!(endpoint, provider = %new, max_batch = new.max_batch, "provider answers");
            }
        }
        Ok(())
    }
}

/// How long the keeper waits for an answer to `Describe`.
pub(super) const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
