//! The server of the external protocol: serves any implementation of the contract, for example a
//! provider that is a separate program written in Rust. Quartet's programs have the client only,
//! `ccm-external`.
//!
//! | module | what it holds |
//! |---|---|
//! | `listener` | the socket, and its TLS |
//! | `service`, `load_balancers`, `routes` | the gRPC services, implemented with a [`Cloud`] |
//! | `items`, `snapshots` | the items of a call and their answers; lists that clients read page by page |
//! | `convert` | messages as what a controller asks for, and the cloud's answers as messages |
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ccm_cloud::Cloud;
//! use ccm_external_server::{Listener, ServeError, serve};
//! use tokio_util::{either::Either, sync::CancellationToken};
//!
//! async fn run(cloud: Arc<dyn Cloud>, stop: CancellationToken) -> Result<(), ServeError> {
//!     let listener = Listener::bind("unix:///run/quartet/cloud.sock").await?;
//!     serve(cloud, listener, None, stop).await
//! }
//! ```

mod convert;
mod items;
mod listener;
mod load_balancers;
mod routes;
mod service;
mod snapshots;

use std::{io, sync::Arc, time::Duration};

use ccm_base::message;
use ccm_cloud::Cloud;
use ccm_external::proto::{
    instances_server::InstancesServer, load_balancers_server::LoadBalancersServer,
    provider_server::ProviderServer, routes_server::RoutesServer,
};
use ccm_net::{Accepted, Incoming, until};
use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{either::Either, sync::CancellationToken};
use tonic::service::Routes as Services;
use tower::BoxError;

use self::{
    load_balancers::LoadBalancersService,
    routes::RoutesService,
    service::{InstancesService, ProviderService},
};

pub use listener::Listener;

/// The maximum number of connections at the same time. A controller keeps one, and a busy cluster
/// has a dozen controllers. The maximum bounds the memory and file descriptors that clients with
/// more connections can take.
const CONNECTIONS: usize = 256;
/// The maximum size of a request, in bytes.
const MAX_QUESTION: usize = 16 << 20;
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

/// The reason why a provider cannot be served.
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
}

/// Serves `cloud` on `listener` until `stop` is cancelled, then lets running calls finish for
/// at most five seconds. Dropping the future cuts all connections at once.
pub async fn serve(
    cloud: Arc<dyn Cloud>,
    listener: Listener,
    tls: Option<ServerTls>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let tls = tls.as_ref().map(acceptor).transpose();
    let tls = tls.map_err(|error| ServeError::Tls(message::chain(&*error)))?;
    let provider = ProviderServer::new(ProviderService::new(Arc::clone(&cloud)));
    let instances = InstancesServer::new(InstancesService::new(Arc::clone(&cloud)));
    let balancers = LoadBalancersServer::new(LoadBalancersService::new(Arc::clone(&cloud)));
    let tables = RoutesServer::new(RoutesService::new(cloud));
    let services = Services::new(provider)
        .add_service(instances.max_decoding_message_size(MAX_QUESTION))
        .add_service(balancers.max_decoding_message_size(MAX_QUESTION))
        .add_service(tables.max_decoding_message_size(MAX_QUESTION))
        .prepare();
    // The socket's file must be removed at the end.
    let (socket, _unlink) = listener.into_parts();
    let token = stop.clone();
    match socket {
        Either::Left(listener) => {
            let serve = move |stream, _| converse(stream, services.clone(), token.clone());
            Incoming { listener, tls, most: CONNECTIONS, grace: DRAIN }.serve(&stop, serve).await;
        }
        Either::Right(listener) => {
            let serve = move |stream: Accepted<TcpStream>, _| {
                let tcp = match &stream {
                    Either::Left(tcp) => tcp,
                    Either::Right(tls) => tls.get_ref().0,
                };
                if let Err(error) = tcp.set_nodelay(true) {
                    tracing::debug!(%error, "answers may be delayed");
                }
                converse(stream, services.clone(), token.clone())
            };
            Incoming { listener, tls, most: CONNECTIONS, grace: DRAIN }.serve(&stop, serve).await;
        }
    }
    Ok(())
}

/// Serves the calls of one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    services: Services,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(None)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(services));
    until(connection, stop.cancelled()).await
}

fn acceptor(tls: &ServerTls) -> Result<TlsAcceptor, BoxError> {
    let certificates = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let provider = Arc::new(ring::default_provider());
    let clients = match &tls.client_ca {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(ca)?);
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .build()?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&tls.cert)?, PrivateKeyDer::from_pem_slice(&tls.key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
