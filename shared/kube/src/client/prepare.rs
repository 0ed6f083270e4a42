//! Prepares everything that connections need from a configuration.

use std::{sync::Arc, time::Duration};

use ccm_net::{Connector, Outgoing, Proxies, Versions};
use kube::client::{ConfigExt as _, middleware::AuthLayer};
use rustls::{client::Resumption, pki_types::ServerName};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    identity::ReloadingIdentity,
    problem::{ClientError, ConfigProblem},
    source::FoundConfig,
};

/// The timeout for reading files and running an exec plugin.
const PREPARE: Duration = Duration::from_mins(1);

/// The parts that the clients of one API server share.
pub(super) struct ClientPlan {
    pub(super) config: kube::Config,
    pub(super) auth: Option<AuthLayer>,
    pub(super) origin: String,
    outgoing: Outgoing,
}

impl ClientPlan {
    /// Reads certificates and obtains credentials. An exec plugin blocks, so this runs on a
    /// blocking thread.
    pub(super) async fn make(
        found: FoundConfig,
        no_proxy: Option<String>,
    ) -> Result<Self, ClientError> {
        let origin = found.origin.clone();
        let plan = on_thread(move || read(found, no_proxy.as_deref())).await;
        plan.map_err(|problem| problem.into_error(&origin))
    }

    /// Returns a separate connector, so that clients do not share connections.
    pub(super) fn connector(&self) -> Connector {
        self.outgoing.clone().connector()
    }
}

/// Reads on a blocking thread. The error of a panic does not hold its text.
pub(super) async fn on_thread(
    read: impl FnOnce() -> Result<ClientPlan, ConfigProblem> + Send + 'static,
) -> Result<ClientPlan, ConfigProblem> {
    match timeout(PREPARE, spawn_blocking(read)).await {
        Ok(Ok(plan)) => plan,
        // The text of a panic may quote the files.
        Ok(Err(_)) => Err(ConfigProblem::new(
            "its reader panicked, see stderr",
            "give another kubeconfig, and report this",
        )),
        Err(_elapsed) => {
            let limit = PREPARE.as_secs();
            let what = format!("the exec plugin gave no credentials within {limit} s");
            Err(ConfigProblem::new(what, "name one in users[].user.exec that needs no terminal"))
        }
    }
}

fn read(
    FoundConfig { config, origin, own_proxy }: FoundConfig,
    no_proxy: Option<&str>,
) -> Result<ClientPlan, ConfigProblem> {
    // rustls refuses to choose a cryptography provider if several are linked. An installed one
    // stays.
    rustls::crypto::ring::default_provider().install_default().ok();
    let proxies = proxies(&config, own_proxy, no_proxy)?;
    let auth = config.auth_layer()?;
    let mut tls = tls(&config)?;
    if let Some(identity) = ReloadingIdentity::read(&config.auth_info) {
        tls.client_auth_cert_resolver = Arc::new(identity);
        // A resumed session would keep the certificate that it began with.
        tls.resumption = Resumption::disabled();
    }
    let server_name = config.tls_server_name.clone().map(ServerName::try_from).transpose();
    let server_name = server_name.map_err(|_| {
        ConfigProblem::new(
            "tls-server-name is not a host name",
            "give a name that the server's certificate holds",
        )
    })?;
    let outgoing =
        Outgoing { proxies, tls, server_name, versions: Versions::Http1, limit: Outgoing::LIMIT };
    Ok(ClientPlan { config, auth, origin, outgoing })
}

/// Chooses the proxies. A proxy from the kubeconfig (`own`) always applies. One from the
/// environment (`HTTPS_PROXY`) applies to remote servers with TLS, except those in `NO_PROXY`.
fn proxies(
    config: &kube::Config,
    own: bool,
    except: Option<&str>,
) -> Result<Proxies, ConfigProblem> {
    let proxies = match &config.proxy_url {
        None => Proxies::none(),
        Some(proxy) if own => Proxies::always(proxy),
        Some(proxy) => Proxies::for_tls(proxy, except.unwrap_or_default()),
    };
    proxies.find(&config.cluster_url).map_err(|unfit| {
        ConfigProblem::new(
            format!("the proxy's scheme {} is not supported", unfit.scheme),
            "set proxy-url or HTTPS_PROXY to http://host:port, or name the server in NO_PROXY",
        )
    })?;
    Ok(proxies)
}

/// Prepares TLS. A server without TLS needs no root certificates, which a small image may lack.
fn tls(config: &kube::Config) -> Result<rustls::ClientConfig, ConfigProblem> {
    if config.cluster_url.scheme_str() == Some("http") {
        let no_roots = rustls::RootCertStore::empty();
        return Ok(rustls::ClientConfig::builder()
            .with_root_certificates(no_roots)
            .with_no_client_auth());
    }
    Ok(config.rustls_client_config()?)
}
