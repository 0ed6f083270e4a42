//! Connections to the API server.
//!
//! TCP detects a dead peer (a failed node, a firewall that dropped its state):
//! unacknowledged data after 30 s by `TCP_USER_TIMEOUT`, an idle connection after 60 s by
//! keepalive (30 s, then three probes 10 s apart).

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Uri;
use hyper_rustls::{
    FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
};
use hyper_util::{
    client::{
        legacy::connect::{HttpConnector, proxy::Tunnel},
        proxy::matcher::Intercept,
    },
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Idle time before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes before the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;
/// The longest time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// The timeout of one TCP connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of name resolution, TCP, proxy and TLS together.
const ESTABLISH: Duration = Duration::from_secs(10);

/// Opens the TCP connection, through a proxy if configured.
pub(super) type Dial = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

/// The connection was not established in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection within {} s", ESTABLISH.as_secs())]
struct NotEstablished;

/// Opens TCP connections to the API server or to its proxy.
pub(super) fn dial(proxy: Option<&Intercept>) -> Dial {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp.set_connect_timeout(Some(CONNECT));
    let Some(proxy) = proxy else { return Dial::new(tcp.map_err(BoxError::from)) };
    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Dial::new(tunnel.map_err(BoxError::from))
}

/// Opens connections, with TLS if the URL requires it.
#[derive(Clone)]
pub(super) struct Connector(HttpsConnector<Dial>);

impl Connector {
    /// HTTP/1.1 over `dial`; `server_name` replaces the URL's host in the TLS handshake.
    pub(super) fn new(
        dial: Dial,
        tls: rustls::ClientConfig,
        server_name: Option<ServerName<'static>>,
    ) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let builder = match server_name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        Self(builder.enable_http1().wrap_connector(dial))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
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
