//! `--check-config`: checks everything that can be checked without a server.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_base::message::chain;
use ccm_cloud::ProviderRegistry;
use ccm_kube::{
    client::{ClientError, Clients, Unlimited},
    metrics::RestMetrics,
};
use tokio::time::timeout;

use super::{
    Failure, Loaded, Program,
    life::idle,
    parts::client_config,
    provider::{self, provider_context},
    setup::{install_tls, print, refuse, runtime},
};
use crate::{
    http::Server,
    logging::{self, LogFormat, LogSettings},
    settings::CommonSettings,
};

/// Time limit for each part that reads configuration: the provider, and an exec plugin of a
/// kubeconfig.
const CHECK: Duration = Duration::from_secs(10);

/// The findings.
#[derive(Default)]
struct Findings {
    /// The failures that a start would report, in its order.
    failures: Vec<Failure>,
    warnings: Vec<String>,
}

/// Checks the settings and all files that they name, and prints the result. The exit code is the
/// same as for a start with these settings.
pub(super) fn check<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
) -> Result<u8, String> {
    install_tls();
    // The provider reports problems of its file in the log.
    let warnings =
        LogSettings { verbosity: 0, filter: Some("warn".to_owned()), format: LogFormat::Text };
    let (subscriber, _) = logging::logger(&warnings, std::io::stderr);
    let _logging = tracing::subscriber::set_default(subscriber);
    let runtime =
        runtime::<P>().map_err(|error| format!("cannot start the async runtime: {error}"))?;
    let found = runtime.block_on(look::<P>(loaded, providers));
    runtime.shutdown_background();
    for warning in found.warnings {
        eprintln!("{}: warning: {warning}", P::IDENTITY.binary);
    }
    for failure in &found.failures {
        refuse::<P>(&chain(failure));
    }
    Ok(match found.failures.first() {
        Some(first) => first.exit_code(),
        None => print("the configuration is valid\n"),
    })
}

async fn look<P: Program>(loaded: Loaded<P>, providers: &ProviderRegistry) -> Findings {
    let mut found = Findings { warnings: loaded.warnings.clone(), failures: Vec::new() };
    let idle = idle::<P>(&loaded.common, &loaded.own);
    found.warnings.extend(idle.map(|idle| format!("a start would be {idle}")));
    look_at_kubeconfig::<P>(&loaded.common, &mut found).await;
    let pages = loaded.common.pages.as_ref().map(Server::check);
    if let Some(Err(error)) = pages {
        found.failures.push(Failure::Broken(chain(&error)));
    }
    look_at_provider::<P>(&loaded, providers, &mut found).await;
    found
}

async fn look_at_kubeconfig<P: Program>(common: &CommonSettings, found: &mut Findings) {
    let metrics = Arc::new(RestMetrics::default());
    let config = client_config::<P>(common, Arc::new(Unlimited), metrics);
    match timeout(CHECK, Clients::connect(config)).await {
        // In-cluster settings may be checked outside a pod, for instance in a pipeline.
        Ok(Err(error @ ClientError::NotConfigured)) => {
            found.warnings.push(format!("a start would fail: {}", chain(&error)));
        }
        Ok(Err(error)) => found.failures.push(Failure::Usage(chain(&error))),
        // A plugin that does not respond now does not make the configuration invalid.
        Ok(Ok(_)) | Err(_) => {}
    }
}

async fn look_at_provider<P: Program>(
    loaded: &Loaded<P>,
    providers: &ProviderRegistry,
    found: &mut Findings,
) {
    let common = &loaded.common;
    let factory = match providers.get(&common.cloud.provider) {
        Ok(factory) => factory,
        Err(error) => return found.failures.push(Failure::Usage(error.to_string())),
    };
    let context = provider_context::<P>(common);
    match timeout(CHECK, factory.build(context.clone())).await {
        Ok(Err(error)) if error.class() == RetryClass::Permanent => {
            let problem = provider::configuration_problem(factory.name(), &context, &error);
            found.failures.push(Failure::Usage(problem));
        }
        Ok(Ok(cloud)) => {
            let idle = provider::would_idle(&*cloud, &P::needs(&loaded.own));
            found.warnings.extend(idle.map(|idle| format!("a start would be {idle}")));
        }
        // A cloud that does not respond now does not make the configuration invalid.
        Ok(Err(_)) => {}
        Err(_) => found.warnings.push(format!(
            "the configuration check of the provider {} timed out after {} s",
            factory.name(),
            CHECK.as_secs()
        )),
    }
}
