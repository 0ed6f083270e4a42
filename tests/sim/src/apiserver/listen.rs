//! The listener: plain HTTP/1.1.

use std::{net::SocketAddr, sync::Arc};

use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::service::ApiService;

/// A running listener. Dropping it closes it and all its connections.
pub struct ListenHandle {
    /// The listening address, with the actual port if 0 was requested.
    pub addr: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl ListenHandle {
    pub(super) async fn bind(service: ApiService, addr: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, service, stop.clone()));
        Ok(Self { addr, stop, tasks })
    }

    /// Stops listening and breaks all connections, like a killed server.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn accept(listener: TcpListener, service: ApiService, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, service.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, service: ApiService) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let service = Arc::new(service);
    let service = tower::service_fn(move |request: http::Request<Incoming>| {
        let service = ApiService::clone(&service);
        service.oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    // Disconnecting clients and faults that break connections end here.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}
