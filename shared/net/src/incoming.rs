//! Serves incoming connections.

use std::{
    collections::HashMap,
    fmt::Display,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    time::Duration,
};

use hyper_util::server::graceful::GracefulConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix,
    task::{AbortHandle, JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{either::Either, net::Listener, sync::CancellationToken};

/// The time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);
/// A younger connection is closed only if the connections are [`CROWD`] times the maximum: its
/// request may be about to arrive, and a burst of connections from the same host must not take its
/// place.
const YOUNG: Duration = Duration::from_millis(250);
/// See [`YOUNG`].
const CROWD: usize = 8;
/// The period of warnings about connections that had to be closed.
const QUIET: Duration = Duration::from_mins(1);

/// An accepted connection, with TLS if there is a certificate.
pub type Accepted<S> = Either<S, TlsStream<S>>;

/// A listener whose connections are served.
pub struct Incoming<L> {
    /// The bound socket.
    pub listener: L,
    /// The server's side of TLS; `None` for plain connections.
    pub tls: Option<TlsAcceptor>,
    /// The maximum number of connections. A new connection is always accepted. Beyond this number
    /// it replaces the oldest connection of the host with the most connections, unless they are
    /// younger than a quarter of a second. So a host that opens many connections, or sends nothing
    /// on them, loses its own connections, and other hosts keep their connections.
    pub most: usize,
    /// The time that connections get to end after the stop.
    pub grace: Duration,
}

/// The address of a client.
pub trait Peer {
    /// Returns the IP address, or `None` for a client of this machine on a Unix socket.
    fn host(&self) -> Option<IpAddr>;
}

impl Peer for SocketAddr {
    fn host(&self) -> Option<IpAddr> {
        // A dual-stack listener shows an IPv4 peer as an IPv6 address.
        Some(self.ip().to_canonical())
    }
}

impl Peer for unix::SocketAddr {
    fn host(&self) -> Option<IpAddr> {
        None
    }
}

/// An open connection.
struct Open {
    host: Option<IpAddr>,
    since: Instant,
    task: AbortHandle,
}

/// The open connections, the oldest first.
struct Connections {
    open: Vec<Open>,
    most: usize,
    /// When closed connections may be logged again.
    next_warning: Instant,
}

impl Connections {
    /// Makes room for one more connection.
    fn make_room(&mut self) {
        self.open.retain(|open| !open.task.is_finished());
        let count = self.open.len();
        while self.open.len() >= self.most {
            let hosts: Vec<_> = self.open.iter().map(|open| open.host).collect();
            let Some(at) = surplus(&hosts) else { return };
            let is_young = self.open.get(at).is_some_and(|open| open.since.elapsed() < YOUNG);
            if is_young && self.open.len() < self.most.saturating_mul(CROWD) {
                return;
            }
            let closed = self.open.remove(at);
            closed.task.abort();
            if self.next_warning <= Instant::now() {
                self.next_warning = Instant::now() + QUIET;
                tracing::warn!(
                    peer = closed.host.map(tracing::field::display),
                    connections = count,
                    "too many connections: closed the oldest one of the peer that has the most"
                );
            }
        }
    }
}

/// Returns the connection to close when too many are open: the oldest one of the host that has the
/// most connections. Of several such hosts, the one with the oldest connection is chosen. `hosts`
/// has an entry for each connection, the oldest first.
fn surplus(hosts: &[Option<IpAddr>]) -> Option<usize> {
    let mut shares: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for host in hosts {
        *shares.entry(*host).or_default() += 1;
    }
    let oldest_last = hosts.iter().enumerate().rev();
    oldest_last.max_by_key(|(_, host)| shares.get(host)).map(|(at, _)| at)
}

impl<L> Incoming<L>
where
    L: Listener,
    L::Io: Unpin + Send + 'static,
    L::Addr: Peer + Send + 'static,
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
        let mut known = Connections { open: Vec::new(), most, next_warning: Instant::now() };
        let accepting = async {
            loop {
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    // That connection has ended already, and others wait.
                    Err(error) if is_of_one(&error) => continue,
                    Err(error) => {
                        // Most likely no file descriptors are left, so this waits for some to be
                        // closed.
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(PAUSE).await;
                        continue;
                    }
                };
                while connections.try_join_next().is_some() {}
                known.make_room();
                let (host, tls, serve) = (peer.host(), tls.clone(), serve.clone());
                let task = connections.spawn(async move {
                    match secure(tls, stream).await {
                        Ok(stream) => {
                            if let Err(error) = serve(stream, peer).await {
                                tracing::debug!(%error, "a connection ended early");
                            }
                        }
                        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                    }
                });
                known.open.push(Open { host, since: Instant::now(), task });
                // This lets the connection answer a request that has already arrived, before the
                // many connections behind it are accepted.
                yield_now().await;
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

/// Returns true if an error of `accept` concerns a single connection.
fn is_of_one(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn secure<S>(tls: Option<TlsAcceptor>, stream: S) -> io::Result<Accepted<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(tls) = tls else { return Ok(Either::Left(stream)) };
    timeout(HANDSHAKE, tls.accept(stream)).await?.map(Either::Right)
}

/// Serves a connection to its end. After `stop` it finishes only the requests in progress.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the connection that is closed. Each letter is a connection of that host, the oldest
    /// first.
    fn closed(hosts: &str) -> Option<usize> {
        let host = |letter: u8| Some(IpAddr::from([10, 0, 0, letter]));
        surplus(&hosts.bytes().map(host).collect::<Vec<_>>())
    }

    #[test]
    fn the_oldest_connection_of_the_host_with_the_most_is_closed() {
        for (hosts, expect) in [
            ("", None),
            ("a", Some(0)),
            ("aaa", Some(0)),
            ("baa", Some(1)),
            ("abab", Some(0)),
            ("abcd", Some(0)),
            ("abccbc", Some(2)),
            ("kaaaaaaaa", Some(1)),
        ] {
            assert_eq!(closed(hosts), expect, "{hosts}");
        }
    }

    #[test]
    fn an_ipv4_peer_is_the_same_host_on_a_dual_stack_socket() {
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap().host();
        assert_eq!(peer("[::ffff:10.0.0.1]:1"), peer("10.0.0.1:2"));
        assert_ne!(peer("[::1]:1"), peer("127.0.0.1:1"));
    }
}
