//! The interface of a cloud provider.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use strum::{AsRefStr, Display};

use crate::{Call, Claim, CloudError, Instances, LoadBalancers, ProviderId, Routes};

/// The capabilities that a provider may offer. Their texts are the names in logs, on `/readyz` and
/// on the external protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, AsRefStr, Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Capability {
    /// [`Cloud::instances`].
    Instances,
    /// [`Cloud::load_balancers`].
    LoadBalancers,
    /// [`Cloud::routes`].
    Routes,
}

/// A setting that is known not to work before it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The capability that it concerns.
    pub capability: Capability,
    /// The setting, its place and the consequence: one line for people, without secrets.
    pub text: String,
}

/// One cloud, accessed with one set of credentials.
///
/// Building one must not require the cloud to answer: a cloud that is down at start is "not
/// ready", never a crash. Discovery happens on first use.
#[async_trait]
pub trait Cloud: Send + Sync {
    /// Returns the provider's name as configured with `--cloud-provider`.
    fn name(&self) -> &str;

    /// Returns the provider ID schemes of this provider. Empty while the provider has not
    /// discovered them: then every provider ID counts as foreign.
    fn schemes(&self) -> Vec<String>;

    /// Returns which provider owns this node, by its provider ID alone. Cheap, makes no request.
    fn claim(&self, provider_id: Option<&str>) -> Claim {
        let Some(text) = provider_id.filter(|text| !text.is_empty()) else {
            return Claim::Unclaimed;
        };
        match ProviderId::parse(text) {
            Ok(id) if self.schemes().iter().any(|scheme| scheme == id.scheme()) => Claim::Ours,
            _ => Claim::Foreign,
        }
    }

    /// Returns why a provider ID with [`Claim::Foreign`] does not belong to this provider. It
    /// continues a sentence that begins with the ID. Cheap, makes no request.
    fn why_foreign(&self, provider_id: &str) -> String {
        match ProviderId::parse(provider_id) {
            Ok(_) => format!("has no scheme of this provider ({})", self.schemes().join(", ")),
            Err(_) => format!("does not have {}", ProviderId::FORM),
        }
    }

    /// Normalises a provider ID to the form in this cloud's answers: a node may have been
    /// registered with an older form, or in another case. A text that is not an ID of this provider
    /// is returned unchanged. Cheap, makes no request.
    fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(provider_id)
    }

    /// Returns the identity of this cloud and of the tenant in it: a short text in one line,
    /// without secrets, which people read as well. It stays the same as long as everything that was
    /// made here can still be seen here, so it names the place and the tenant, never credentials,
    /// versions or addresses that change. Another text means another cloud: controllers then change
    /// nothing until a person approves it.
    ///
    /// Returns `None` while it is not known, and for a provider that cannot tell. It is known
    /// before one of the capabilities is offered. Cheap, makes no request.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Returns the machines behind the nodes, if the provider offers them.
    ///
    /// `Ok(None)` means "not offered"; an error means that this is not known yet.
    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError>;

    /// Returns layer-4 load balancers, if the provider offers them. Answers like
    /// [`Cloud::instances`].
    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        Ok(None)
    }

    /// Returns routes to the nodes' pod CIDRs, if the provider offers them. Answers like
    /// [`Cloud::instances`].
    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        Ok(None)
    }

    /// Returns why a capability is not offered, as far as the provider knows. Cheap, makes no
    /// request.
    fn why_not_offered(&self, _capability: Capability) -> Option<String> {
        None
    }

    /// Returns the provider's settings that do not work: an option that is not managed yet, a name
    /// that the cloud does not have. It may change while the process runs. Cheap, makes no request.
    fn shortfalls(&self) -> Vec<Shortfall> {
        Vec::new()
    }

    /// Returns the service on another machine that is asked in clear, such as `Keystone at
    /// http://keystone:5000`, or `None` if it is not known. The answer may change while the process
    /// runs. Cheap, makes no request.
    fn in_clear(&self) -> Option<String> {
        None
    }

    /// Makes one cheap call that shows whether the cloud answers and accepts our credentials.
    async fn health(&self, call: Call) -> Result<(), CloudError>;

    /// Waits until the provider's configuration has changed in a way that takes effect only in a
    /// new process, and returns what has changed. The provider has tried the new configuration: it
    /// works. Until the process ends, the old one stays in use.
    async fn outdated(&self) -> String {
        std::future::pending().await
    }

    /// Waits until the provider's configuration, or what it offers, has changed while the process
    /// runs: a request that it refused before may succeed now. It may return without a change.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }
}
