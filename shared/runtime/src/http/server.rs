//! The HTTP server of the admin pages.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use ccm_net::{Accepted, Incoming, Peer as _, until};
use futures::future::OptionFuture;
use http::{HeaderValue, header::CONNECTION};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Mutex,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    PageSettings, Pages,
    tls::{Certificate, TlsError},
};

/// Maximum number of connections. Probes and a few scrapers need a handful. A probe or scrape
/// is answered within milliseconds, so it is never the oldest connection for long.
const CONNECTIONS: usize = 64;
/// With more connections than this, each one is closed after one response: a client may have sent
/// hundreds of requests on each, and reads no response.
const MANY: usize = CONNECTIONS / 2;
/// Connections that the kernel completes before they are accepted. With the usual 128 a burst
/// of neighbours makes it drop the packet that opens a probe's connection, and the probe
/// repeats it only after a second.
const BACKLOG: u32 = 4096;
/// Time from the connection, or the end of the last response, to the end of the next request's
/// header. Shorter than the usual periods of scrapers: a request that is sent just when the connection is closed
/// is lost.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection, so that a client that never reads its response cannot
/// hold it.
const CONNECTION_LIFE: Duration = Duration::from_mins(10);
/// Time between the responses on a connection. A client that sends many requests at once waits
/// like one that waits for each response.
const PAUSE: Duration = Duration::from_millis(50);
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

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A server bound to an address.
pub struct Server {
    listener: TcpListener,
    certificate: Option<Certificate>,
    pages: Pages,
}

impl Server {
    /// Reads the certificate, if one is configured. Does not bind the address.
    pub(crate) fn check(settings: &PageSettings) -> Result<(), ServeError> {
        settings.tls.as_ref().map(Certificate::read).transpose()?;
        Ok(())
    }

    /// Binds the address and reads the certificate. Needs an async runtime.
    pub fn bind(settings: &PageSettings, pages: Pages) -> Result<Self, ServeError> {
        let certificate = settings.tls.as_ref().map(Certificate::read).transpose()?;
        let address = settings.address;
        let listener = listen(address).map_err(|source| ServeError::Listen { address, source })?;
        Ok(Self { listener, certificate, pages })
    }

    /// Returns the bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the token is cancelled, then finishes responses in progress.
    pub async fn run(self, token: CancellationToken) {
        let Self { listener, certificate, pages } = self;
        let incoming = Incoming {
            listener,
            tls: certificate.as_ref().map(Certificate::acceptor),
            most: CONNECTIONS,
            grace: LAST_ANSWER,
        };
        let (stop, follow) = (token.clone(), certificate.map(|it| it.follow(token.clone())));
        let open = Arc::new(());
        let serve = move |stream, peer: SocketAddr| {
            let is_local = peer.host().is_some_and(|host| host.is_loopback());
            converse(stream, is_local, pages.clone(), Arc::clone(&open), stop.clone())
        };
        tokio::join!(incoming.serve(&token, serve), OptionFuture::from(follow));
    }
}

/// Serves the requests of one connection. Each connection holds one reference to `open`.
async fn converse(
    stream: Accepted<TcpStream>,
    is_local: bool,
    pages: Pages,
    open: Arc<()>,
    token: CancellationToken,
) -> hyper::Result<()> {
    let next = Arc::new(Mutex::new(Instant::now()));
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (pages, open, next) = (pages.clone(), Arc::clone(&open), Arc::clone(&next));
        async move {
            let mut next = next.lock().await;
            sleep_until(*next).await;
            let mut answer = pages.answer(&request.map(drop), is_local);
            *next = Instant::now() + PAUSE;
            if Arc::strong_count(&open) > MANY {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        // A client that has sent its request may close its side, as `nc -N` does.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let over = async {
        timeout(CONNECTION_LIFE, token.cancelled()).await.unwrap_or(());
    };
    timeout(CONNECTION_LIFE + LAST_ANSWER, until(connection, over)).await.unwrap_or(Ok(()))
}
