//! Providers by name.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

use crate::{CallGate, Cloud, CloudError, MetricsSink, NoMetrics, OpenGate};

/// The inputs for building a provider.
#[derive(Clone)]
pub struct ProviderContext {
    /// The file of `--cloud-config`, if one is given. The provider reads it itself, and again when it
    /// changes.
    pub config: Option<PathBuf>,
    /// The gate that each of its requests must pass.
    pub gate: Arc<dyn CallGate>,
    /// The registry for the provider's own metrics. A failed build is retried, so the provider
    /// registers them last, when nothing can fail any more.
    pub metrics: Arc<dyn MetricsSink>,
    /// The user agent for the cloud: `node-ccm/0.1.0`, with the user's own prefix.
    pub user_agent: String,
}

impl ProviderContext {
    /// Returns a context outside of a running program: requests do not pass a gate, and metrics are
    /// not registered.
    pub fn ungated(config: Option<PathBuf>, user_agent: &str) -> Self {
        let (gate, metrics) = (Arc::new(OpenGate), Arc::new(NoMetrics));
        Self { config, gate, metrics, user_agent: user_agent.to_owned() }
    }
}

/// Builds a provider. [`Cloud`] documents the rules for building.
#[async_trait]
pub trait ProviderFactory: Send + Sync {
    /// Returns the name for `--cloud-provider`.
    fn name(&self) -> &'static str;

    /// Builds the provider. Fails with [`crate::ErrorKind::Invalid`] when the configuration is
    /// wrong; the error names the setting and the valid values.
    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError>;

    /// Registers the metrics of the built provider, with one series for every value of each
    /// label. Called only to generate the metrics reference. The default is for providers
    /// without metrics.
    fn specimens(&self, _: &dyn MetricsSink) {}
}

/// The reason why the registry could not return a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No provider has this name.
    #[error("unknown cloud provider {name:?}; known are: {}", known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The registered names.
        known: Vec<String>,
    },
}

/// The providers that are compiled into a program.
#[derive(Clone, Default)]
pub struct ProviderRegistry {
    factories: BTreeMap<&'static str, Arc<dyn ProviderFactory>>,
}

impl ProviderRegistry {
    /// Adds a provider. A later one replaces an earlier one of the same name.
    #[must_use]
    pub fn with(mut self, factory: impl ProviderFactory + 'static) -> Self {
        self.factories.insert(factory.name(), Arc::new(factory));
        self
    }

    /// Returns the registered names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.factories.keys().map(|name| (*name).to_owned()).collect()
    }

    /// Returns the provider of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn ProviderFactory>, RegistryError> {
        self.factories
            .get(name)
            .cloned()
            .ok_or_else(|| RegistryError::Unknown { name: name.to_owned(), known: self.names() })
    }
}
