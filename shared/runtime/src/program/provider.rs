//! From the provider's name to a cloud whose capability is known.

use std::{sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_base::RetryClass;
use ccm_cloud::{
    Call, Capability, Cloud, CloudError, NoMetrics, OpenGate, ProviderConfig, ProviderContext,
    ProviderFactory,
};
use tokio::time::{sleep, timeout};

use super::{Failure, Need, Program};
use crate::{health::Condition, settings::CommonSettings};

/// From one failure to the next try.
const WAIT: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// The longest wait that a cloud may ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(1);
/// From one look at what the provider knows to the next.
const GLANCE: Duration = Duration::from_secs(1);
/// How long the question whether the cloud answers may take.
const PROBE: Call = Call::routine(Duration::from_secs(10));

/// What a provider is built from, but for the gate and the metrics of a running process.
pub(super) fn provider_context<P: Program>(common: &CommonSettings) -> ProviderContext {
    let agents = common.cloud.user_agents.iter().cloned().chain([P::IDENTITY.user_agent()]);
    ProviderContext {
        config: ProviderConfig {
            path: common.cloud.config.clone(),
            cluster_name: common.cloud.cluster_name.clone(),
        },
        gate: Arc::new(OpenGate),
        metrics: Arc::new(NoMetrics),
        user_agent: agents.collect::<Vec<_>>().join(" "),
    }
}

/// The wait after the last of so many failures; a cloud that names one gets at least that.
fn wait(error: &CloudError, failures: u32) -> Duration {
    let wait = WAIT.after(failures);
    match error.class() {
        RetryClass::RetryAfter(asked) => wait.max(asked.min(LONGEST_ASKED)),
        RetryClass::Retry | RetryClass::Permanent => wait,
    }
}

/// Builds the provider. A mistake in its configuration is a failure; a cloud that does
/// not answer is waited for, and shown as not ready meanwhile.
pub(super) async fn build(
    factory: &dyn ProviderFactory,
    context: &ProviderContext,
    startup: &Condition,
) -> Result<Arc<dyn Cloud>, Failure> {
    let mut failures = 0;
    loop {
        let error = match factory.build(context.clone()).await {
            Ok(cloud) => return Ok(cloud),
            Err(error) => error,
        };
        if error.class() == RetryClass::Permanent {
            return Err(Failure::Usage(configuration_problem(factory.name(), context, &error)));
        }
        startup.fail(format!("the cloud provider {} cannot be built yet: {error}", factory.name()));
        tracing::warn!(provider = factory.name(), %error, "cannot build the cloud provider yet");
        failures += 1;
        sleep(wait(&error, failures)).await;
    }
}

/// The provider's complaint, with the setting it is about.
pub(super) fn configuration_problem(
    name: &str,
    context: &ProviderContext,
    error: &CloudError,
) -> String {
    let message = &error.message;
    match &context.config.path {
        // The provider names the setting itself.
        _ if message.contains("--cloud-") => message.clone(),
        Some(path) => format!("--cloud-config={}: {message}", path.display()),
        None => format!("--cloud-provider={name} without --cloud-config: {message}"),
    }
}

/// What the provider knows by itself, which costs no call.
fn offered(cloud: &dyn Cloud, needs: Capability) -> Result<bool, CloudError> {
    match needs {
        Capability::Instances => cloud.instances().map(|offered| offered.is_some()),
    }
}

/// Waits until the provider knows by itself.
async fn known(cloud: &dyn Cloud, needs: Capability) {
    loop {
        sleep(GLANCE).await;
        if offered(cloud, needs).is_ok() {
            return;
        }
    }
}

/// What the program cannot do without and the provider does not offer; waits until that is
/// known. What it can do without is not waited for.
pub(super) async fn missing(
    cloud: &dyn Cloud,
    needs: &[Need],
    startup: &Condition,
) -> Option<Capability> {
    for need in needs {
        match *need {
            Need::Required(capability) if !offers(cloud, capability, startup).await => {
                return Some(capability);
            }
            Need::Optional(capability) if matches!(offered(cloud, capability), Ok(false)) => {
                let provider = cloud.name();
                tracing::info!(provider, %capability, "not offered; going on without");
            }
            Need::Required(_) | Need::Optional(_) => {}
        }
    }
    None
}

/// Waits until it is known whether the provider offers what the program needs.
async fn offers(cloud: &dyn Cloud, needs: Capability, startup: &Condition) -> bool {
    let mut failures = 0;
    let mut logged = String::new();
    let mut asked = false;
    loop {
        let error = match offered(cloud, needs) {
            Ok(offered) => return offered,
            Err(error) => error,
        };
        startup.fail(format!(
            "not known yet whether the cloud provider {} offers {needs}: {error}",
            cloud.name()
        ));
        // Once per kind of trouble: this may last as long as the cloud is down.
        let line = error.kind.to_string();
        if !asked {
            // Every start goes through this, for as long as it takes to ask.
            tracing::info!(provider = cloud.name(), capability = %needs, "asking the cloud what it offers");
        } else if line != logged {
            tracing::warn!(provider = cloud.name(), capability = %needs, %error, "the cloud does not say yet what it offers");
            logged = line;
        }
        // Perhaps it becomes known meanwhile: by settings that were mended, for instance.
        failures += 1;
        timeout(wait(&error, failures), known(cloud, needs)).await.ok();
        // Providers discover on use; a failure shows at the next turn of this loop.
        asked = true;
        if let Err(error) = cloud.health(PROBE).await {
            tracing::debug!(provider = cloud.name(), %error, "the cloud does not answer");
        }
    }
}
