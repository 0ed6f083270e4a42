//! Serves incoming connections.

use std::{fmt::Display, io, pin::pin, time::Duration};

use hyper_util::server::graceful::GracefulConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{either::Either, net::Listener, sync::CancellationToken};

/// The time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// An accepted connection, with TLS if there is a certificate.
pub type Accepted<S> = Either<S, TlsStream<S>>;

/// A listener whose connections are served.
pub struct Incoming<L> {
    /// The bound socket.
    pub listener: L,
    /// The server's side of TLS; none for plain connections.
    pub tls: Option<TlsAcceptor>,
    /// The most connections at once; others wait in the kernel's queue.
    pub most: usize,
    /// The time that connections get to end after the stop.
    pub grace: Duration,
}

impl<L> Incoming<L>
where
    L: Listener,
    L::Io: Unpin + Send + 'static,
    L::Addr: Send + 'static,
{
    /// Serves each connection by `serve`, until `stop`. Dropping the future cuts all
    /// connections at once.
    pub async fn serve<F, E>(
        self,
        stop: &CancellationToken,
        serve: impl Fn(Accepted<L::Io>, L::Addr) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = Result<(), E>> + Send,
        E: Display,
    {
        let Self { mut listener, tls, most, grace } = self;
        let mut connections = JoinSet::new();
        let accepting = async {
            loop {
                while connections.try_join_next().is_some() {}
                if connections.len() >= most {
                    connections.join_next().await;
                }
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Most likely out of file descriptors: wait for some to be closed.
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(PAUSE).await;
                        continue;
                    }
                };
                let (tls, serve) = (tls.clone(), serve.clone());
                connections.spawn(async move {
                    match secure(tls, stream).await {
                        Ok(stream) => {
                            if let Err(error) = serve(stream, peer).await {
                                tracing::debug!(%error, "a connection ended early");
                            }
                        }
                        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                    }
                });
            }
        };
        stop.run_until_cancelled(accepting).await.unwrap_or(());
        drop(listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        if timeout(grace, ended).await.is_err() {
            tracing::debug!(connections = connections.len(), "cut connections");
        }
    }
}

async fn secure<S>(tls: Option<TlsAcceptor>, stream: S) -> io::Result<Accepted<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(tls) = tls else { return Ok(Either::Left(stream)) };
    timeout(HANDSHAKE, tls.accept(stream)).await?.map(Either::Right)
}

/// Serves a connection to its end; after `stop` only the requests in progress.
pub async fn until<C: GracefulConnection>(
    connection: C,
    stop: impl Future<Output = ()>,
) -> Result<(), C::Error> {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stop => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}
