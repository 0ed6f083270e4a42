//! The connection to the provider: opened on first use, reopened when it breaks, and replaced
//! when the configuration changes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ccm_base::{is_loopback, message};
use ccm_cloud::{CloudError, ErrorKind};
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::Notify,
};
use tokio_util::either::Either;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::config::{ExternalConfig, Target, TlsFiles};

/// The complete configuration with the contents of its files: two values are equal exactly if
/// nothing changed on disk.
#[derive(Clone, PartialEq)]
struct Settings {
    path: PathBuf,
    config: ExternalConfig,
    tls: Option<Pem>,
}

#[derive(Clone, PartialEq)]
struct Pem {
    ca: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Counts the connections. A new one may lead to another process.
#[derive(Debug, Default)]
pub(super) struct Connections {
    count: AtomicU64,
    /// Wakes the keeper of the description: there is a new connection.
    pub(super) changed: Notify,
    /// Wakes the keeper: a call was not answered, perhaps because the connection is dead and
    /// not yet closed.
    pub(super) suspect: Notify,
}

impl Connections {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn made(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }
}

/// The connection and its configuration.
pub(super) struct Connection {
    path: Option<PathBuf>,
    user_agent: String,
    open: RwLock<(Arc<Settings>, Channel)>,
    pub(super) connections: Arc<Connections>,
}

impl Connection {
    /// Reads the configuration. Does not connect yet.
    pub(super) async fn configure(
        path: Option<PathBuf>,
        user_agent: String,
    ) -> Result<Self, CloudError> {
        let settings = Settings::read(path.as_deref()).await?;
        let connections = Arc::new(Connections::default());
        let channel = settings.channel(&user_agent, &connections)?;
        if let Target::Tcp { host, .. } = &settings.config.target
            && !is_loopback(host)
        {
            tracing::warn!(endpoint = %settings.config.target, "the provider is reached over the network without TLS");
        }
        Ok(Self { path, user_agent, open: RwLock::new((Arc::new(settings), channel)), connections })
    }

    /// A handle for calls.
    pub(super) fn channel(&self) -> Channel {
        self.open.read().1.clone()
    }

    /// The endpoint, for logs and messages.
    pub(super) fn endpoint(&self) -> String {
        self.open.read().0.config.target.to_string()
    }

    /// Reads the configuration again. `true` if it changed and is now in use; after an error
    /// the old one stays.
    pub(super) async fn reload(&self) -> Result<bool, CloudError> {
        let settings = Settings::read(self.path.as_deref()).await?;
        if settings == *self.open.read().0 {
            return Ok(false);
        }
        let channel = settings.channel(&self.user_agent, &self.connections)?;
        *self.open.write() = (Arc::new(settings), channel);
        Ok(true)
    }

    /// Drops the connection, which may be dead and not yet closed: the next call opens a new
    /// one. Running calls are not cut off.
    pub(super) fn renew(&self) -> Result<(), CloudError> {
        let settings = self.open.read().0.clone();
        let channel = settings.channel(&self.user_agent, &self.connections)?;
        self.open.write().1 = channel;
        Ok(())
    }
}

impl Settings {
    async fn read(path: Option<&Path>) -> Result<Self, CloudError> {
        let config = ExternalConfig::read(path).await?;
        let path = path.unwrap_or(Path::new("")).to_owned();
        let tls = match &config.tls {
            None => None,
            Some(files) => Some(Pem::read(files).await.map_err(|what| invalid(&path, &what))?),
        };
        Ok(Self { path, config, tls })
    }

    fn channel(
        &self,
        user_agent: &str,
        connections: &Arc<Connections>,
    ) -> Result<Channel, CloudError> {
        let target = self.config.target.clone();
        let endpoint = self.endpoint(user_agent).map_err(|error| {
            invalid(&self.path, &format!("endpoint {target}: {}", message::chain(&error)))
        })?;
        let connections = Arc::clone(connections);
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
            let (target, connections) = (target.clone(), Arc::clone(&connections));
            async move {
                let stream = dial(&target).await?;
                connections.made();
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        })))
    }

    fn endpoint(&self, user_agent: &str) -> Result<Endpoint, tonic::transport::Error> {
        // A unix socket has no host, but HTTP requires one.
        let address = match &self.config.target {
            Target::Unix(_) => "http://localhost".to_owned(),
            target => target.to_string(),
        };
        let endpoint = Endpoint::from_shared(address)?
            .user_agent(user_agent)?
            .connect_timeout(self.config.connect_timeout);
        let Some(pem) = &self.tls else { return Ok(endpoint) };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&pem.ca));
        if let Some((cert, key)) = &pem.identity {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = self.config.tls.as_ref().and_then(|files| files.server_name.as_ref()) {
            tls = tls.domain_name(name);
        }
        endpoint.tls_config(tls)
    }
}

impl Pem {
    /// Reads the files and checks their contents.
    async fn read(files: &TlsFiles) -> Result<Self, String> {
        let ca = read(&files.ca, "tls.ca").await?;
        require_certificate(&ca, &files.ca, "tls.ca")?;
        let identity = match &files.identity {
            None => None,
            Some((cert_file, key_file)) => {
                let (cert, key) =
                    (read(cert_file, "tls.cert").await?, read(key_file, "tls.key").await?);
                require_certificate(&cert, cert_file, "tls.cert")?;
                PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
                    format!("tls.key: {} holds no private key in PEM form", key_file.display())
                })?;
                Some((cert, key))
            }
        };
        Ok(Self { ca, identity })
    }
}

async fn read(file: &Path, key: &str) -> Result<Vec<u8>, String> {
    tokio::fs::read(file).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{key}: there is no file {}", file.display()),
        _ => format!("{key}: {} cannot be read: {error}", file.display()),
    })
}

fn require_certificate(pem: &[u8], file: &Path, key: &str) -> Result<(), String> {
    match CertificateDer::pem_slice_iter(pem).next() {
        Some(Ok(_)) => Ok(()),
        Some(Err(_)) | None => {
            Err(format!("{key}: {} holds no certificate in PEM form", file.display()))
        }
    }
}

fn invalid(path: &Path, what: &str) -> CloudError {
    CloudError::new(ErrorKind::Invalid, format!("--cloud-config {}: {what}", path.display()))
}

async fn dial(target: &Target) -> io::Result<Either<UnixStream, TcpStream>> {
    match target {
        Target::Unix(path) => UnixStream::connect(path).await.map(Either::Left),
        Target::Tcp { host, port } | Target::Tls { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Either::Right(stream))
        }
    }
}
