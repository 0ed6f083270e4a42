//! The certificate of the admin pages, reloaded when its files change.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::TlsSettings;

/// Poll interval for the files.
const PERIOD: Duration = Duration::from_secs(5);

/// The certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has no valid certificate.
    #[error("{} must contain certificates (PEM)", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// The file has no valid key.
    #[error("{} must contain a private key (PEM)", path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// Key and certificate do not match, or their type is unknown.
    #[error("{} must be the private key of the first certificate in {}", key.display(), certificate.display())]
    Pair {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The TLS library's error.
        source: rustls::Error,
    },
    /// The TLS library rejects the requested versions.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// A certificate that is reloaded from its files.
#[derive(Clone)]
pub(super) struct Certificate {
    files: TlsSettings,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
    seen: [u8; 32],
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The content of both files.
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn read(files: &TlsSettings) -> Result<Self, TlsError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
        };
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::new()
            .chain_update(&self.certificate)
            .chain_update([0])
            .chain_update(&self.key)
            .finalize()
            .into()
    }

    fn pair(&self, files: &TlsSettings) -> Result<CertifiedKey, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .ok()
            .filter(|chain: &Vec<_>| !chain.is_empty())
            .ok_or_else(|| TlsError::Certificate { path: files.certificate.clone() })?;
        // The parser's error may quote the private key, so it is dropped.
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| TlsError::Key { path: files.key.clone() })?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| {
            TlsError::Pair {
                key: files.key.clone(),
                certificate: files.certificate.clone(),
                source,
            }
        })
    }
}

impl Certificate {
    /// Reads the files.
    pub(super) fn read(files: &TlsSettings) -> Result<Self, TlsError> {
        let content = Content::read(files)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(content.pair(files)?)));
        let versions: &[_] = if files.only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { files: files.clone(), current, config: Arc::new(config), seen: content.digest() })
    }

    /// Accepts TLS on a connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Polls the files until the token is cancelled.
    pub(super) async fn follow(mut self, token: CancellationToken) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_problem = String::new();
        while token.run_until_cancelled(ticks.tick()).await.is_some() {
            match self.look() {
                Ok(false) => {}
                Ok(true) => {
                    last_problem.clear();
                    tracing::info!(file = %self.files.certificate.display(), "loaded a new certificate of the HTTP pages");
                }
                Err(error) => {
                    let problem = ccm_base::message::chain(&error);
                    if problem != last_problem {
                        tracing::error!(
                            "rejected the new certificate of the HTTP pages, the old one stays in use: {problem}"
                        );
                        last_problem = problem;
                    }
                }
            }
        }
    }

    /// Loads new files, if there are any. While only one of the two is new, they do not match and
    /// the old pair stays.
    pub(super) fn look(&mut self) -> Result<bool, TlsError> {
        let content = Content::read(&self.files)?;
        if content.digest() == self.seen {
            return Ok(false);
        }
        let pair = content.pair(&self.files)?;
        self.current.0.store(Arc::new(pair));
        self.seen = content.digest();
        Ok(true)
    }
}
