//! The cloud as the controllers see it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use ccm_cloud::{Call, Claim, Cloud, CloudError, ErrorKind, Instances};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    NAME,
    client::Client,
    config::Config,
    ids::{self, Parsed},
    instances::OpenStackInstances,
};

/// One project in one region.
pub(super) struct OpenStackCloud {
    client: Arc<Client>,
    current: ArcSwap<Current>,
    /// Whether the cloud has answered once: before that, nobody knows what it offers.
    has_answered: AtomicBool,
    last_error: Mutex<Option<CloudError>>,
    /// What runs beside it, and ends with it.
    tasks: Mutex<JoinSet<()>>,
}

/// What the settings in use come to.
struct Current {
    region: Option<String>,
    instances: Arc<OpenStackInstances>,
}

impl Current {
    fn new(client: &Arc<Client>, config: &Config) -> Self {
        let api = Arc::clone(client);
        Self {
            region: config.region.clone(),
            instances: Arc::new(OpenStackInstances::new(api, config)),
        }
    }
}

impl OpenStackCloud {
    pub(super) fn new(client: Arc<Client>, config: &Config) -> Self {
        let current = ArcSwap::from_pointee(Current::new(&client, config));
        Self {
            client,
            current,
            has_answered: AtomicBool::new(false),
            last_error: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Keeps a task for as long as the cloud is in use.
    pub(super) fn keep(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    /// Puts other settings in use, if the cloud takes them; after an error those before
    /// stay.
    pub(super) async fn replace(&self, config: &Config, call: Call) -> Result<(), CloudError> {
        self.client.replace(config, call).await?;
        self.current.store(Arc::new(Current::new(&self.client, config)));
        self.has_answered.store(true, Ordering::Release);
        *self.last_error.lock() = None;
        Ok(())
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

    /// A node of another region is another controller's. What has our scheme and cannot
    /// be read is ours: somebody must be told.
    fn claim(&self, provider_id: Option<&str>) -> Claim {
        let Some(text) = provider_id.filter(|text| !text.is_empty()) else {
            return Claim::Unclaimed;
        };
        match ids::parse(text, self.current.load().region.as_deref()) {
            Parsed::Ours(_) => Claim::Ours,
            Parsed::AnotherRegion(_) => Claim::Foreign,
            Parsed::Malformed(_) if ids::has_scheme(text) => Claim::Ours,
            Parsed::Malformed(_) => Claim::Foreign,
        }
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        if self.has_answered.load(Ordering::Acquire) {
            let instances = Arc::clone(&self.current.load().instances);
            return Ok(Some(instances));
        }
        Err(self.last_error.lock().clone().unwrap_or_else(|| {
            CloudError::new(ErrorKind::Unavailable, "OpenStack has not been asked yet")
        }))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        let outcome = self.client.probe(call).await;
        match &outcome {
            Ok(()) => {
                if !self.has_answered.swap(true, Ordering::AcqRel) {
                    let project = self.client.project();
                    tracing::info!(
                        project = project.as_ref().map(|project| &*project.name),
                        project_id = project.as_ref().map(|project| &*project.id),
                        region = self.client.region(),
                        compute_microversion =
                            self.client.microversion().map(|version| version.to_string()),
                        "OpenStack answers"
                    );
                }
                *self.last_error.lock() = None;
            }
            Err(error) => *self.last_error.lock() = Some(error.clone()),
        }
        outcome
    }
}
