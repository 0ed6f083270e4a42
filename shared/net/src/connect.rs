//! Opens connections: directly, through a proxy's tunnel, or to a proxy that passes requests
//! on.
//!
//! TCP detects a dead peer (a failed machine, a firewall that dropped its state):
//! unacknowledged data after 30 s by `TCP_USER_TIMEOUT`, an idle connection after 60 s by
//! keepalive (30 s, then three probes 10 s apart).

use std::time::Duration;

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{HttpConnector, proxy::Tunnel};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::time::timeout;
use tower::{BoxError, ServiceExt as _, service_fn, util::BoxCloneSyncService};

use crate::{Proxies, Stream};

/// Idle time before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes before the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;
/// The longest time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Opens connections, with TLS if the URL requires it.
pub type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<Stream>, BoxError>;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without negotiation, as gRPC uses it.
    Http2,
    /// HTTP/2 where the server offers it over TLS, otherwise HTTP/1.1.
    Negotiated,
}

/// How connections are opened.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The proxies on the way.
    pub proxies: Proxies,
    /// Certificates.
    pub tls: ClientConfig,
    /// Replaces the URL's host in the TLS handshake.
    pub server_name: Option<ServerName<'static>>,
    /// The protocol.
    pub versions: Versions,
    /// The time limit of name resolution, TCP, proxy and TLS together.
    pub limit: Duration,
}

/// The connection was not established in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection within {} s", .0.as_secs_f32())]
struct NotEstablished(Duration);

impl Outgoing {
    /// The limit for servers that answer at once or not at all.
    pub const LIMIT: Duration = Duration::from_secs(10);

    /// Returns the connector. It opens a connection for each call; [`pool()`](crate::pool()) keeps
    /// them.
    pub fn connector(self) -> Connector {
        let Self { proxies, tls, server_name, versions, limit } = self;
        let tcp = tcp(limit);
        let dial = service_fn(move |server| dial(tcp.clone(), proxies.clone(), server));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let builder = match server_name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let https = match versions {
            Versions::Http1 => builder.enable_http1().wrap_connector(dial),
            Versions::Http2 => builder.enable_http2().wrap_connector(dial),
            Versions::Negotiated => builder.enable_all_versions().wrap_connector(dial),
        };
        Connector::new(service_fn(move |server| {
            let connection = https.clone().oneshot(server);
            async move { timeout(limit, connection).await.map_err(|_elapsed| NotEstablished(limit))? }
        }))
    }
}

fn tcp(limit: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    // This leaves time for another attempt if a name has several addresses.
    tcp.set_connect_timeout(Some(limit / 2));
    tcp
}

async fn dial(tcp: HttpConnector, proxies: Proxies, server: Uri) -> Result<Stream, BoxError> {
    let Some(proxy) = proxies.find(&server)? else {
        return Ok(Stream { io: tcp.oneshot(server).await?, passed_on: false });
    };
    if proxies.passing_on(&server)?.is_some() {
        return Ok(Stream { io: tcp.oneshot(proxy.uri().clone()).await?, passed_on: true });
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Ok(Stream { io: tunnel.oneshot(server).await?, passed_on: false })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A connection has the options by which TCP detects a dead peer.
    #[tokio::test]
    async fn connections_notice_a_dead_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = dial(tcp(Outgoing::LIMIT), Proxies::none(), server).await.unwrap();
        let socket = socket2::SockRef::from(connection.io.inner());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
        assert!(socket.tcp_nodelay().unwrap());
    }
}
