//! Providers by name.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

use crate::{CallGate, Cloud, CloudError, MetricsSink};

/// Where a provider's own configuration comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderConfig {
    /// The file of `--cloud-config`, if one is given. The provider reads it itself,
    /// and again when it changes.
    pub path: Option<PathBuf>,
    /// `--cluster-name`, the owner of everything that is created in the cloud.
    pub cluster_name: String,
}

/// What a provider is given when it is built.
#[derive(Clone)]
pub struct ProviderContext {
    /// Its configuration.
    pub config: ProviderConfig,
    /// The gate that each of its requests must pass.
    pub gate: Arc<dyn CallGate>,
    /// Where it adds metrics of its own. A build that fails is tried again, so it adds
    /// them when nothing can fail any more.
    pub metrics: Arc<dyn MetricsSink>,
    /// What it tells the cloud about itself: `node-ccm/0.1.0`, with what the user wants in
    /// front of it.
    pub user_agent: String,
}

/// Builds a provider. See [`Cloud`] for what building may and may not do.
#[async_trait]
pub trait ProviderFactory: Send + Sync {
    /// The name for `--cloud-provider`.
    fn name(&self) -> &'static str;

    /// Builds the provider. Fails with [`crate::ErrorKind::Invalid`] when the
    /// configuration is wrong, naming the setting and what would be right.
    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError>;

    /// Adds the metrics of its own that a built provider has, and makes one series of each,
    /// with every value that a label can take. Called for the reference of the metrics
    /// only. A provider that has none leaves it as it is.
    fn specimens(&self, _: &dyn MetricsSink) {}
}

/// Why a provider could not be had from the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No provider has this name.
    #[error("unknown cloud provider {name:?}; known are: {}", known.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

/// The providers that a program was built with.
#[derive(Clone, Default)]
pub struct ProviderRegistry {
    factories: BTreeMap<&'static str, Arc<dyn ProviderFactory>>,
}

impl ProviderRegistry {
    /// A registry without providers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider. A second one of the same name replaces the first.
    #[must_use]
    pub fn with(mut self, factory: impl ProviderFactory + 'static) -> Self {
        self.factories.insert(factory.name(), Arc::new(factory));
        self
    }

    /// The names there are, sorted.
    pub fn names(&self) -> Vec<String> {
        self.factories.keys().map(|name| (*name).to_owned()).collect()
    }

    /// The provider of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn ProviderFactory>, RegistryError> {
        self.factories
            .get(name)
            .cloned()
            .ok_or_else(|| RegistryError::Unknown { name: name.to_owned(), known: self.names() })
    }
}
