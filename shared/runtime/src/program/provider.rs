//! Builds the cloud provider and waits until its capabilities are known.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_base::{Backoff, RetryClass};
use ccm_cloud::{
    Call, Capability, Cloud, CloudError, Instances, ProviderContext, ProviderFactory, Shortfall,
};
use tokio::time::{sleep, timeout};

use super::{Failure, Need, Program};
use crate::{
    health::{Condition, Verdict},
    settings::CommonSettings,
};

/// Pause between a failure and the next attempt.
const WAIT: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// Upper limit for a pause requested by the cloud.
const LONGEST_ASKED: Duration = Duration::from_mins(1);
/// Poll interval for capabilities that the provider learns on its own.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval for checking again whether a provider has gained a missing capability.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// Time limit for the probe of the cloud.
const PROBE: Duration = Duration::from_secs(10);
/// Returns the provider's build context, without the gate and the metrics of a running process.
pub(super) fn provider_context<P: Program>(common: &CommonSettings) -> ProviderContext {
    let agents = common.cloud.user_agents.iter().cloned().chain([P::IDENTITY.user_agent()]);
    let user_agent = agents.collect::<Vec<_>>().join(" ");
    ProviderContext::ungated(common.cloud.config.clone(), &user_agent)
}

/// The cloud of a program that does not need one. It offers nothing, and a provider is not built.
pub(super) struct Uncalled;

#[async_trait]
impl Cloud for Uncalled {
    fn name(&self) -> &'static str {
        "none"
    }

    fn schemes(&self) -> Vec<String> {
        Vec::new()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(None)
    }

    async fn health(&self, _call: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

/// Returns the pause after this many consecutive failures: at least the pause that the cloud
/// requested.
fn wait(error: &CloudError, failures: u32) -> Duration {
    let wait = WAIT.after(failures);
    match error.class() {
        RetryClass::RetryAfter(asked) => wait.max(asked.min(LONGEST_ASKED)),
        RetryClass::Retry | RetryClass::Permanent => wait,
    }
}

/// Builds the provider. A configuration error is a failure; while the cloud does not respond,
/// the process waits and is not ready.
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
        startup.fail(format!("cannot build the cloud provider {} yet: {error}", factory.name()));
        tracing::warn!(provider = factory.name(), %error, "cannot build the cloud provider yet");
        failures += 1;
        sleep(wait(&error, failures)).await;
    }
}

/// Returns the provider's error, with the setting that causes it.
pub(super) fn configuration_problem(
    name: &str,
    context: &ProviderContext,
    error: &CloudError,
) -> String {
    let message = &error.message;
    match &context.config {
        // The provider already names the setting.
        _ if message.contains("--cloud-") => message.clone(),
        Some(path) => format!("--cloud-config={}: {message}", path.display()),
        None => format!("--cloud-provider={name} without --cloud-config: {message}"),
    }
}

/// Returns the capabilities that the provider knows without a call.
fn offered(cloud: &dyn Cloud, needs: Capability) -> Result<bool, CloudError> {
    match needs {
        Capability::Instances => cloud.instances().map(|offered| offered.is_some()),
        Capability::LoadBalancers => cloud.load_balancers().map(|offered| offered.is_some()),
        Capability::Routes => cloud.routes().map(|offered| offered.is_some()),
    }
}

/// Returns the message about a program without a capability that it requires.
fn idle(cloud: &dyn Cloud, missing: Capability) -> String {
    let why = cloud.why_not_offered(missing).map_or_else(String::new, |why| format!(": {why}"));
    format!("idle: the cloud provider {} does not offer {missing}{why}", cloud.name())
}

/// Returns the message about a program that would be idle with this provider, as far as that is
/// known without a request.
pub(super) fn would_idle(cloud: &dyn Cloud, needs: &[Need]) -> Option<String> {
    let missing = needs.iter().find_map(|need| match *need {
        Need::Required(capability) if matches!(offered(cloud, capability), Ok(false)) => {
            Some(capability)
        }
        Need::Required(_) | Need::Optional(_) | Need::Known(_) => None,
    });
    missing.map(|missing| idle(cloud, missing))
}

/// Passes if the cloud has everything that the provider's settings ask for, as far as this program
/// needs it.
pub(super) fn shortfalls(cloud: &dyn Cloud, needs: &[Need]) -> Verdict {
    let needs =
        |shortfall: &Shortfall| needs.iter().any(|need| need.capability() == shortfall.capability);
    let lines = cloud.shortfalls().into_iter().filter(needs).map(|shortfall| shortfall.text);
    match lines.collect::<Vec<_>>() {
        none if none.is_empty() => Verdict::Passed("no setting is known to fail".to_owned()),
        lines => Verdict::Failed(lines.join("; ")),
    }
}

/// Waits until the provider has the capabilities that the program requires, and logs the
/// optional ones that it lacks.
pub(super) async fn wait_capable(cloud: &dyn Cloud, needs: &[Need], startup: &Condition) {
    let mut logged = None;
    while let Some(missing) = missing(cloud, needs, startup).await {
        let idle = idle(cloud, missing);
        if logged.as_ref() != Some(&idle) {
            tracing::info!("{idle}");
            logged = Some(idle.clone());
        }
        // This is set each time, because a failed probe replaces the message.
        startup.pass(idle);
        sleep(LOOK_AGAIN).await;
    }
}

/// Returns the required capability that the provider lacks. Waits until that is known. Does not
/// wait for optional capabilities.
async fn missing(cloud: &dyn Cloud, needs: &[Need], startup: &Condition) -> Option<Capability> {
    for need in needs {
        match *need {
            Need::Required(capability) if !offers(cloud, capability, startup).await => {
                return Some(capability);
            }
            Need::Optional(capability) if matches!(offered(cloud, capability), Ok(false)) => {
                let (provider, why) = (cloud.name(), cloud.why_not_offered(capability));
                tracing::info!(provider, %capability, why, "the cloud does not offer an optional capability; continuing without it");
            }
            Need::Known(capability) if !offers(cloud, capability, startup).await => {
                let (provider, why) = (cloud.name(), cloud.why_not_offered(capability));
                tracing::info!(provider, %capability, why, "the cloud does not offer a capability; continuing without it");
            }
            Need::Required(_) | Need::Optional(_) | Need::Known(_) => {}
        }
    }
    None
}

/// Waits until it is known whether the provider has this capability.
async fn offers(cloud: &dyn Cloud, capability: Capability, startup: &Condition) -> bool {
    let provider = cloud.name();
    let mut failures = 0;
    let mut logged = None;
    loop {
        let error = match offered(cloud, capability) {
            Ok(offered) => return offered,
            Err(error) => error,
        };
        startup.fail(format!(
            "not known yet whether the cloud provider {provider} offers {capability}: {error}"
        ));
        // The first failure is normal: a provider discovers on use. Later ones are logged once per
        // kind: an outage of the cloud may be long.
        if failures == 0 {
            tracing::info!(provider, %capability, "discovering the capabilities of the cloud");
        } else if logged != Some(error.kind) {
            tracing::warn!(provider, %capability, %error, "the capabilities of the cloud are not known yet");
            logged = Some(error.kind);
        }
        failures += 1;
        // The capabilities may become known in the meantime, for instance after a configuration
        // fix.
        let known = async {
            while offered(cloud, capability).is_err() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(wait(&error, failures), known).await.ok();
        if let Err(error) = cloud.health(Call::routine(PROBE)).await {
            tracing::debug!(provider, %error, "the cloud does not answer");
        }
    }
}

#[cfg(test)]
mod tests;
