//! Checks whether a server speaks TLS.

use std::{error::Error, io, net::SocketAddr, time::Duration};

use ccm_base::message::chain;
use http::Uri;
use rustls::AlertDescription;
use tower::ServiceExt as _;

use crate::{Outgoing, Proxies, Versions, client_tls};

/// The result of a TLS handshake with a server whose certificate does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The server has a certificate.
    Done,
    /// The server ended the handshake with the alert `internal_error`: servers written in Go, such
    /// as the kubelet, do so while they have no certificate.
    NoCertificate,
    /// The connection failed, or another error occurred.
    Failed(String),
}

/// Connects to the server without a proxy, completes a handshake and closes the connection.
pub async fn handshake(server: SocketAddr, limit: Duration) -> Handshake {
    let tls = match client_tls(None, None) {
        Ok(tls) => tls,
        Err(error) => return Handshake::Failed(error.to_string()),
    };
    let outgoing = Outgoing {
        proxies: Proxies::none(),
        tls,
        server_name: None,
        versions: Versions::Http1,
        limit,
    };
    let url: Uri = match format!("https://{server}").parse() {
        Ok(url) => url,
        Err(error) => return Handshake::Failed(format!("{server}: {error}")),
    };
    match outgoing.connector().oneshot(url).await {
        Ok(_) => Handshake::Done,
        Err(error) if is_internal_error(&*error) => Handshake::NoCertificate,
        Err(error) => Handshake::Failed(chain(&*error)),
    }
}

fn is_internal_error(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref() {
        return rustls::Error::AlertReceived(AlertDescription::InternalError) == *error;
    }
    // An `io::Error` is not the source of the error that it wraps.
    let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
    let inner = wrapped.map(|error| error as &(dyn Error + 'static)).or_else(|| error.source());
    inner.is_some_and(is_internal_error)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Returns the result with a server that answers the first message with these bytes.
    async fn answered(bytes: &[u8]) -> Handshake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 5]).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream
        };
        tokio::join!(handshake(address, LIMIT), serve).0
    }

    #[tokio::test]
    async fn the_alert_of_a_server_without_a_certificate_is_recognised() {
        // Record type alert, TLS 1.2, two bytes: fatal, internal_error.
        assert_eq!(answered(&[0x15, 3, 3, 0, 2, 2, 80]).await, Handshake::NoCertificate);
        // The same alert, but handshake_failure.
        let other = answered(&[0x15, 3, 3, 0, 2, 2, 40]).await;
        assert!(matches!(other, Handshake::Failed(_)), "{other:?}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        drop(listener);
        let Handshake::Failed(why) = handshake(server, LIMIT).await else { panic!("it connected") };
        assert!(why.contains("refused"), "{why}");
    }
}
