//! How a connection is made: directly, through a proxy's tunnel (https), or with a
//! proxy that passes requests on (http).
//!
//! A peer that vanishes without a word is noticed by TCP itself: unanswered data after
//! 30 s, an idle connection after 60 s.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ccm_base::is_loopback;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{Connected, Connection, HttpConnector, proxy::Tunnel},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use tokio::{net::TcpStream, time::timeout};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Silence on a connection before TCP asks whether the peer is there; time between two
/// such questions; unanswered questions that end the connection.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// Longest time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Longest time for name resolution, TCP, proxy and TLS together.
const ESTABLISH: Duration = Duration::from_secs(10);

/// A connection could not be made in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection within {} s", ESTABLISH.as_secs())]
struct NotEstablished;

/// A proxy that would have to be spoken to in another way than plain HTTP. Its own
/// credentials must not go to it in clear text.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the proxy for {host} has the scheme {scheme}, which is not supported: set HTTPS_PROXY or HTTP_PROXY to http://host:port, or name the host in NO_PROXY"
)]
pub(super) struct UnfitProxy {
    host: String,
    scheme: String,
}

/// Whether the proxy on the way to `uri` can be used.
pub(super) fn fit(proxy: &Intercept, uri: &Uri) -> Result<(), UnfitProxy> {
    match proxy.uri().scheme_str() {
        Some("http") => Ok(()),
        scheme => Err(UnfitProxy {
            host: uri.host().unwrap_or_default().to_owned(),
            scheme: scheme.unwrap_or_default().to_owned(),
        }),
    }
}

/// The proxy for `uri`. What is on this machine needs none.
pub(super) fn proxy(proxies: &Matcher, uri: &Uri) -> Option<Intercept> {
    proxies.intercept(uri).filter(|_| !uri.host().is_some_and(is_loopback))
}

/// Makes connections, with TLS and HTTP/2 where the other side offers them.
#[derive(Clone)]
pub(super) struct Connector(HttpsConnector<BoxCloneSyncService<Uri, Stream, BoxError>>);

impl Connector {
    pub(super) fn new(proxies: Arc<Matcher>, tls: rustls::ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE.0));
        tcp.set_keepalive_interval(Some(KEEPALIVE.1));
        tcp.set_keepalive_retries(Some(KEEPALIVE.2));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        tcp.set_connect_timeout(Some(ESTABLISH));
        let dial = tower::service_fn(move |uri: Uri| {
            let route = proxy(&proxies, &uri);
            connect(tcp.clone(), uri, route)
        });
        Self(
            HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
                .enable_all_versions()
                .wrap_connector(BoxCloneSyncService::new(dial)),
        )
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<Stream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connection = self.0.call(server);
        Box::pin(
            async move { timeout(ESTABLISH, connection).await.map_err(|_elapsed| NotEstablished)? },
        )
    }
}

async fn connect(
    tcp: HttpConnector,
    uri: Uri,
    route: Option<Intercept>,
) -> Result<Stream, BoxError> {
    let Some(proxy) = route else {
        return Ok(Stream { io: tcp.oneshot(uri).await?, passed_on: false });
    };
    fit(&proxy, &uri)?;
    if uri.scheme_str() == Some("http") {
        return Ok(Stream { io: tcp.oneshot(proxy.uri().clone()).await?, passed_on: true });
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Ok(Stream { io: tunnel.oneshot(uri).await?, passed_on: false })
}

/// A TCP connection that knows whether a proxy passes its requests on: those name the
/// whole URL.
pub(super) struct Stream {
    io: TokioIo<TcpStream>,
    passed_on: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.passed_on)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }
}
