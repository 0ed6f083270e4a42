//! The connection to the provider: opened on first use, reopened when it breaks, and replaced
//! when the configuration changes.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use ccm_base::{Files, is_loopback, message};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_net::{Outgoing, PemError, PemFile, Proxies, Versions, client_tls, identity};
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
    sign::CertifiedKey,
};
use tokio::{
    net::UnixStream,
    sync::{Notify, watch},
    task::spawn_blocking,
};
use tonic::transport::Endpoint;
use tower::{ServiceExt as _, service_fn};

use super::{
    config::{ExternalConfig, Target, TlsFiles},
    metered::Channel,
};

/// The number of bytes of an answer that are received before they are read. An answer that waits
/// for memory is not read.
const STREAM_WINDOW: u32 = 128 << 10;
/// The number of bytes of all answers of a connection that are received before they are read. It is
/// far more than the waiting answers hold, so that they do not block the answer that they wait for.
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;

/// The events of the connections, for the keeper of the description.
#[derive(Debug, Default)]
pub struct Connections {
    /// The number of connections so far. A new one may lead to another process.
    pub made: watch::Sender<u64>,
    /// Notifies that a call was not answered, perhaps because the connection is dead and not yet
    /// closed.
    pub suspect: Notify,
}

/// The connection and its configuration.
pub struct Connection {
    path: Option<PathBuf>,
    user_agent: String,
    open: RwLock<(Arc<Settings>, Channel)>,
    pub connections: Arc<Connections>,
}

impl Connection {
    /// Reads the configuration. Does not connect yet. The files are those to follow.
    pub async fn configure(
        path: Option<PathBuf>,
        user_agent: String,
    ) -> Result<(Self, Files), CloudError> {
        let (files, settings) = Settings::load(path.clone()).await;
        let settings = settings?;
        let connections = Arc::new(Connections::default());
        let channel = settings.channel(&user_agent, &connections)?;
        settings.warn();
        let open = RwLock::new((Arc::new(settings), channel));
        Ok((Self { path, user_agent, open, connections }, files))
    }

    /// Returns a handle for calls.
    pub fn channel(&self) -> Channel {
        self.open.read().1.clone()
    }

    /// Returns the endpoint, for logs and messages.
    pub fn endpoint(&self) -> String {
        self.open.read().0.config.target.to_string()
    }

    /// Returns the provider, if it is on another machine and reached without TLS.
    pub fn in_clear(&self) -> Option<String> {
        self.open.read().0.in_clear()
    }

    /// Reads the configuration again and uses it; after an error the old one stays.
    pub async fn reload(&self, files: &mut Files) -> Result<(), CloudError> {
        let (seen, settings) = Settings::load(self.path.clone()).await;
        *files = seen;
        let settings = settings?;
        let channel = settings.channel(&self.user_agent, &self.connections)?;
        settings.warn();
        *self.open.write() = (Arc::new(settings), channel);
        Ok(())
    }

    /// Drops the connection, which may be dead and not yet closed: the next call opens a new
    /// one. Running calls are not cut off.
    pub fn renew(&self) -> Result<(), CloudError> {
        let settings = self.open.read().0.clone();
        let channel = settings.channel(&self.user_agent, &self.connections)?;
        self.open.write().1 = channel;
        Ok(())
    }
}

/// The configuration with the contents of its files.
struct Settings {
    config: ExternalConfig,
    tls: ClientConfig,
}

impl Settings {
    async fn load(path: Option<PathBuf>) -> (Files, Result<Self, CloudError>) {
        let own = path.clone();
        let read = move || {
            let mut files = Files::default();
            let settings = Self::read(path.as_deref(), &mut files);
            (files, settings)
        };
        spawn_blocking(read).await.unwrap_or_else(|panic| {
            // The same files would make the reader panic again.
            let (path, mut files) = (own.unwrap_or_default(), Files::default());
            files.notice(&path);
            (files, Err(invalid(&format!("{}: cannot be read: {panic}", path.display()))))
        })
    }

    fn read(path: Option<&Path>, files: &mut Files) -> Result<Self, CloudError> {
        let config = ExternalConfig::read(path, files)?;
        let path = path.unwrap_or(Path::new("")).display();
        let tls = certificates(config.tls.as_ref(), files)
            .map_err(|error| error.to_string())
            .and_then(|(roots, identity)| {
                client_tls(Some(roots), identity).map_err(|error| format!("tls.ca: {error}"))
            });
        let tls = tls.map_err(|why| invalid(&format!("{path}: {why}")))?;
        Ok(Self { config, tls })
    }

    fn in_clear(&self) -> Option<String> {
        match &self.config.target {
            target @ Target::Tcp { host, .. } if !is_loopback(host) => {
                Some(format!("the provider at {target}"))
            }
            _ => None,
        }
    }

    fn warn(&self) {
        if let Some(endpoint) = self.in_clear() {
            tracing::warn!(
                "{endpoint} is reached over the network without TLS: everybody on the network path can read and change its requests and answers; use https://, or a unix socket"
            );
        }
    }

    fn channel(
        &self,
        user_agent: &str,
        connections: &Arc<Connections>,
    ) -> Result<Channel, CloudError> {
        let Self { config: ExternalConfig { target, tls, connect_timeout }, .. } = self;
        let wrong = |error: &(dyn Error + 'static)| {
            invalid(&format!("endpoint {target}: {}", message::chain(error)))
        };
        // A unix socket has no host, but HTTP requires one.
        let server = match target {
            Target::Unix(_) => Ok(Uri::from_static("http://localhost")),
            target => target.to_string().parse::<Uri>(),
        };
        let server = server.map_err(|error| wrong(&error))?;
        // The connector adds TLS, so the library sees a server without TLS.
        let endpoint = Endpoint::from_static("http://localhost").origin(server.clone());
        let endpoint = endpoint.user_agent(user_agent).map_err(|error| wrong(&error))?;
        let endpoint = endpoint
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let connections = Arc::clone(connections);
        let Target::Unix(path) = target else {
            let name = tls.as_ref().and_then(|tls| tls.server_name.clone());
            let outgoing = Outgoing {
                proxies: Proxies::none(),
                tls: self.tls.clone(),
                server_name: name.map(ServerName::try_from).transpose().map_err(|e| wrong(&e))?,
                versions: Versions::Http2,
                limit: *connect_timeout,
            };
            let to_server = outgoing.connector().map_request(move |_| server.clone());
            let connector = to_server.map_response(move |stream| {
                connections.made.send_modify(|made| *made += 1);
                stream
            });
            return Ok(Channel::new(endpoint.connect_with_connector_lazy(connector)));
        };
        let path = path.clone();
        let to_socket = service_fn(move |_| UnixStream::connect(path.clone()));
        let endpoint = endpoint.connect_timeout(*connect_timeout);
        let connector = to_socket.map_response(move |stream| {
            connections.made.send_modify(|made| *made += 1);
            TokioIo::new(stream)
        });
        Ok(Channel::new(endpoint.connect_with_connector_lazy(connector)))
    }
}

/// Returns the trusted roots (empty without TLS), and the certificate for the server.
fn certificates(
    tls: Option<&TlsFiles>,
    files: &mut Files,
) -> Result<(Vec<CertificateDer<'static>>, Option<CertifiedKey>), PemError> {
    let Some(tls) = tls else { return Ok((Vec::new(), None)) };
    let roots = PemFile { setting: "tls.ca", path: &tls.ca }.certificates(files)?;
    let identity = tls.identity.as_ref().map(|(cert, key)| {
        let cert = PemFile { setting: "tls.cert", path: cert };
        identity(cert, PemFile { setting: "tls.key", path: key }, files)
    });
    Ok((roots, identity.transpose()?))
}

fn invalid(what: &str) -> CloudError {
    CloudError::new(ErrorKind::Invalid, format!("--cloud-config {what}"))
}

#[cfg(test)]
mod tests {
    use ccm_testing::Log;
    use tracing::Level;

    use super::*;

    #[tokio::test]
    async fn a_provider_on_another_machine_without_tls_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.yaml");
        let log = Log::new();
        let _listening = log.listen(Level::WARN);
        for (endpoint, expect) in [
            ("http://10.0.0.1:1", Some("the provider at http://10.0.0.1:1")),
            (
                "http://provider.kube-system:1",
                Some("the provider at http://provider.kube-system:1"),
            ),
            ("http://127.0.0.1:1", None),
            ("http://[::1]:1", None),
            ("unix:///run/cloud.sock", None),
        ] {
            std::fs::write(&path, format!("endpoint: {endpoint}\n")).unwrap();
            log.take();
            let configured = Connection::configure(Some(path.clone()), "test".to_owned()).await;
            let (connection, mut files) = configured.unwrap();
            assert_eq!(connection.in_clear().as_deref(), expect, "{endpoint}");
            let warned = usize::from(expect.is_some());
            assert_eq!(log.lines_with("without TLS"), warned, "{endpoint}: {}", log.text());
            connection.reload(&mut files).await.unwrap();
            assert_eq!(log.lines_with("without TLS"), 2 * warned, "the new file is told as well");
        }
    }
}
