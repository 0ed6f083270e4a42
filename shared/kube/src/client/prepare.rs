//! Prepares everything that connections need from a configuration.

use std::{sync::Arc, time::Duration};

use hyper_util::client::proxy::matcher::Intercept;
use kube::client::{ConfigExt as _, middleware::AuthLayer};
use rustls::{client::Resumption, crypto::CryptoProvider, pki_types::ServerName};
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    connector::{Connector, dial},
    identity::ReloadingIdentity,
    problem::{ClientError, Problem},
    proxy,
    source::Found,
};

/// The timeout for reading files and running an exec plugin.
const PREPARE: Duration = Duration::from_mins(1);

/// What the clients of one API server share.
pub(super) struct Plan {
    pub(super) config: kube::Config,
    pub(super) auth: Option<AuthLayer>,
    pub(super) origin: String,
    tls: rustls::ClientConfig,
    server_name: Option<ServerName<'static>>,
    proxy: Option<Intercept>,
}

impl Plan {
    /// Reads certificates and obtains credentials. An exec plugin blocks, so this runs on a
    /// blocking thread.
    pub(super) async fn make(found: Found, no_proxy: Option<String>) -> Result<Self, ClientError> {
        let origin = found.origin.clone();
        let plan = timeout(PREPARE, spawn_blocking(move || read(found, no_proxy.as_deref()))).await;
        let plan = plan.ok().and_then(Result::ok).unwrap_or_else(|| {
            let what =
                format!("the exec plugin gave no credentials within {} s", PREPARE.as_secs());
            Err(Problem::new(what, "name one in users[].user.exec that needs no terminal"))
        });
        plan.map_err(|problem| problem.of(&origin))
    }

    /// A separate connector, so that clients do not share connections.
    pub(super) fn connector(&self) -> Connector {
        Connector::new(dial(self.proxy.as_ref()), self.tls.clone(), self.server_name.clone())
    }
}

fn read(
    Found { config, origin, own_proxy }: Found,
    no_proxy: Option<&str>,
) -> Result<Plan, Problem> {
    let provider = provider();
    let proxy = proxy::choose(&config.cluster_url, config.proxy_url.as_ref(), own_proxy, no_proxy)?;
    let auth = config.auth_layer()?;
    let mut tls = tls(&config)?;
    if let Some(identity) = ReloadingIdentity::of(&config.auth_info, provider) {
        tls.client_auth_cert_resolver = Arc::new(identity);
        // A resumed session would keep the certificate that it began with.
        tls.resumption = Resumption::disabled();
    }
    let server_name = config.tls_server_name.clone().map(ServerName::try_from).transpose();
    let server_name = server_name.map_err(|_| {
        Problem::new(
            "tls-server-name is not a host name",
            "give a name that the server's certificate holds",
        )
    })?;
    Ok(Plan { config, auth, origin, tls, server_name, proxy })
}

/// A server without TLS needs no root certificates, which a small image may lack.
fn tls(config: &kube::Config) -> Result<rustls::ClientConfig, Problem> {
    if config.cluster_url.scheme_str() == Some("http") {
        let no_roots = rustls::RootCertStore::empty();
        return Ok(rustls::ClientConfig::builder()
            .with_root_certificates(no_roots)
            .with_no_client_auth());
    }
    Ok(config.rustls_client_config()?)
}

/// The process's cryptography provider; rustls refuses to choose if several are linked.
fn provider() -> Arc<CryptoProvider> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Arc::clone(provider);
    }
    // If another thread has installed one meanwhile, that one is used.
    let mine = Arc::new(rustls::crypto::ring::default_provider());
    match rustls::crypto::ring::default_provider().install_default() {
        Ok(()) => mine,
        Err(theirs) => theirs,
    }
}
