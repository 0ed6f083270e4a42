//! The HTTP server of the admin pages.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    PageSettings, Pages,
    tls::{Certificate, TlsError},
};

/// Maximum number of connections. Probes and a few scrapers need a handful; others wait in the
/// kernel's queue.
const CONNECTIONS: usize = 64;
/// Time from the connection, or the end of the last response, to the end of the next request's
/// header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection, so that a client that never reads its response cannot
/// hold it.
const CONNECTION_LIFE: Duration = Duration::from_mins(10);
/// Time to finish a response at shutdown.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// Largest request header.
const HEADER_BYTES: usize = 16 * 1024;

/// The pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("--bind-address and --secure-port: cannot listen on {address}{}", hint(source))]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("invalid certificate of the HTTP pages")]
    Tls(#[from] TlsError),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": the port is in use; choose another --secure-port",
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::AddrNotAvailable => ": --bind-address must be an address of this machine",
        _ => "",
    }
}

/// A server bound to an address.
pub struct Server {
    listener: TcpListener,
    certificate: Option<Certificate>,
    pages: Pages,
}

impl Server {
    /// Reads the certificate, if there is one, and does not bind the address.
    pub(crate) fn check(settings: &PageSettings) -> Result<(), ServeError> {
        settings.tls.as_ref().map(Certificate::read).transpose()?;
        Ok(())
    }

    /// Binds the address and reads the certificate.
    pub async fn bind(settings: &PageSettings, pages: Pages) -> Result<Self, ServeError> {
        let certificate = settings.tls.as_ref().map(Certificate::read).transpose()?;
        let address = settings.address;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| ServeError::Listen { address, source })?;
        Ok(Self { listener, certificate, pages })
    }

    /// The bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the token is cancelled, then finishes responses in progress.
    pub async fn run(self, token: CancellationToken) {
        let Self { listener, certificate, pages } = self;
        let acceptor = certificate.as_ref().map(Certificate::acceptor);
        let mut tasks = JoinSet::new();
        if let Some(certificate) = certificate {
            tasks.spawn(certificate.follow(token.clone()));
        }
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        while let Some(accepted) = token.run_until_cancelled(next(&listener, &slots)).await {
            while tasks.try_join_next().is_some() {}
            let (stream, is_local, slot) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors: wait for some to be closed.
                    tracing::warn!(%error, "cannot accept a connection to the HTTP pages");
                    sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let (acceptor, pages, token) = (acceptor.clone(), pages.clone(), token.clone());
            tasks.spawn(async move {
                let _slot = slot;
                match acceptor {
                    None => converse(stream, is_local, pages, token).await,
                    Some(acceptor) => secure(acceptor, stream, is_local, pages, token).await,
                }
            });
        }
        let ended =
            timeout(LAST_ANSWER, async { while tasks.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            tracing::debug!(connections = tasks.len(), "closed connections to the HTTP pages");
        }
    }
}

/// The next connection, once a slot is free, and whether it comes from loopback.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, bool, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // A dual-stack listener shows an IPv4 peer as an IPv6 address.
    Ok((stream, peer.ip().to_canonical().is_loopback(), slot))
}

async fn secure(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    is_local: bool,
    pages: Pages,
    token: CancellationToken,
) {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, is_local, pages, token).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

/// Serves the requests of one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    is_local: bool,
    pages: Pages,
    token: CancellationToken,
) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let answer = pages.answer(&request, is_local);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { tokio::select! { () = token.cancelled() => {}, () = sleep(CONNECTION_LIFE) => {} } } => {
            connection.as_mut().graceful_shutdown();
            timeout(LAST_ANSWER, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection to the HTTP pages failed");
    }
}
