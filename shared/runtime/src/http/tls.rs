//! The certificate of the admin pages, reloaded when its files change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ccm_base::Files;
use ccm_net::{PemError, PemFile, identity};
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::TlsSettings;

/// The certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// The TLS library rejects the requested versions.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// A certificate that is reloaded from its files.
pub(super) struct Certificate {
    settings: TlsSettings,
    files: Files,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn read(settings: &TlsSettings, files: &mut Files) -> Result<CertifiedKey, PemError> {
    let certificate = PemFile { setting: "--tls-cert-file", path: &settings.certificate };
    identity(certificate, PemFile { setting: "--tls-private-key-file", path: &settings.key }, files)
}

impl Certificate {
    /// Reads the files.
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        let mut files = Files::default();
        let current = Arc::new(Current(ArcSwap::from_pointee(read(settings, &mut files)?)));
        let versions: &[_] = if settings.only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { settings: settings.clone(), files, current, config: Arc::new(config) })
    }

    /// Accepts TLS on a connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Follows the files until the token is cancelled. While only one of the two files is new, they
    /// do not match, and the old pair stays.
    pub(super) async fn follow(mut self, token: CancellationToken) {
        while token.run_until_cancelled(self.files.changed()).await.is_some() {
            match read(&self.settings, &mut self.files) {
                Ok(pair) => {
                    self.current.0.store(Arc::new(pair));
                    tracing::info!(file = %self.settings.certificate.display(), "loaded a new certificate of the HTTP pages");
                }
                Err(problem) => tracing::error!(
                    "rejected the new certificate of the HTTP pages, the old one stays in use: {problem}"
                ),
            }
        }
    }
}
