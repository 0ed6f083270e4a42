//! The server of the protocol: serves any implementation of the contract.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ccm_cloud::Cloud;
//! use ccm_providers::external::server::{Listener, ServeError, serve};
//! use tokio_util::sync::CancellationToken;
//!
//! async fn run(cloud: Arc<dyn Cloud>, stop: CancellationToken) -> Result<(), ServeError> {
//!     let listener = Listener::bind("unix:///run/quartet/cloud.sock").await?;
//!     serve(cloud, listener, None, stop).await
//! }
//! ```

mod listener;
mod service;
mod snapshots;

use std::{io, sync::Arc, time::Duration};

use ccm_base::message;
use ccm_cloud::Cloud;
use futures::{Stream, StreamExt};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::{either::Either, sync::CancellationToken};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use self::{
    listener::{Accepted, Socket},
    service::{InstancesService, ProviderService},
};
use super::{
    MAX_QUESTION,
    proto::{instances_server::InstancesServer, provider_server::ProviderServer},
};

pub use listener::Listener;

/// The time that running calls get after the stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Certificate and key of the server, as PEM.
#[derive(Clone)]
pub struct ServerTls {
    /// The server's certificate, with its intermediates.
    pub cert: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// If set, only clients with a certificate of this authority are served.
    pub client_ca: Option<Vec<u8>>,
}

/// Why a provider cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The endpoint is invalid.
    #[error("endpoint {endpoint:?} {what}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The problem and the valid forms.
        what: String,
    },
    /// The endpoint cannot be listened on.
    #[error("cannot listen on {endpoint}")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: io::Error,
    },
    /// Certificate and key cannot be used.
    #[error("the server's certificate cannot be used: {0}")]
    Tls(String),
    /// The server ended unexpectedly.
    #[error("the server failed: {0}")]
    Server(String),
}

/// Serves `cloud` on `listener` until `stop` is cancelled, then lets running calls finish for
/// at most five seconds. Dropping the future cuts all connections at once.
pub async fn serve(
    cloud: Arc<dyn Cloud>,
    listener: Listener,
    tls: Option<ServerTls>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let mut builder = Server::builder();
    if let Some(tls) = tls {
        let config = server_tls(&tls);
        builder =
            builder.tls_config(config).map_err(|error| ServeError::Tls(message::chain(&error)))?;
    }
    let provider = ProviderServer::new(ProviderService::new(Arc::clone(&cloud)));
    let instances = InstancesServer::new(InstancesService::new(cloud));
    let router = builder
        .add_service(provider)
        .add_service(instances.max_decoding_message_size(MAX_QUESTION));
    let cut = CancellationToken::new();
    let _cut_at_the_end = cut.clone().drop_guard();
    let serving = router
        .serve_with_incoming_shutdown(incoming(listener, cut), stop.clone().cancelled_owned());
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = serving => ended.map_err(|error| ServeError::Server(message::chain(&error))),
        () = drained => Ok(()),
    }
}

/// The incoming connections. Dropping the stream removes the socket's file, so that no client
/// finds a file without a server.
fn incoming(
    listener: Listener,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Accepted>> {
    let (socket, unlink) = listener.into_parts();
    let streams = match socket {
        Socket::Unix(socket) => {
            UnixListenerStream::new(socket).map(|stream| stream.map(Either::Left)).left_stream()
        }
        Socket::Tcp(socket) => TcpListenerStream::new(socket)
            .map(|stream| stream.and_then(without_delay).map(Either::Right))
            .right_stream(),
    };
    streams.map(move |stream| {
        let _goes_with_the_stream = &unlink;
        stream.map(|stream| Accepted::new(stream, &cut))
    })
}

fn without_delay(stream: tokio::net::TcpStream) -> io::Result<tokio::net::TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn server_tls(tls: &ServerTls) -> ServerTlsConfig {
    let config = ServerTlsConfig::new().identity(Identity::from_pem(&tls.cert, &tls.key));
    match &tls.client_ca {
        Some(ca) => config.client_ca_root(Certificate::from_pem(ca)),
        None => config,
    }
}
