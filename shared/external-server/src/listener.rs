//! The listening socket of a provider.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use ccm_external::{Target, parse_target};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::either::Either;

use super::ServeError;

/// A bound socket: clients can connect immediately and are served once [`serve`](super::serve)
/// runs.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    endpoint: String,
    unlink: Option<Unlink>,
}

pub type Socket = Either<UnixListener, TcpListener>;

/// Removes a unix socket's file at the end, unless another process has replaced it.
#[derive(Debug)]
pub struct Unlink {
    path: PathBuf,
    file: (u64, u64),
}

/// Returns the identity of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl Drop for Unlink {
    fn drop(&mut self) {
        let ours = identity(&self.path).is_ok_and(|file| file == self.file);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), error = %error, "socket file not removed");
        }
    }
}

impl Listener {
    /// Listens on an endpoint in the client's notation. Port 0 selects a free port.
    pub async fn bind(endpoint: &str) -> Result<Self, ServeError> {
        // The client's parser rejects port 0, to which no client can connect.
        let (text, any_port) = match endpoint.strip_suffix(":0") {
            Some(start) => (format!("{start}:1"), true),
            None => (endpoint.to_owned(), false),
        };
        let target = parse_target(&text)
            .map_err(|what| ServeError::Endpoint { endpoint: endpoint.to_owned(), what })?;
        let failed = |source| ServeError::Bind { endpoint: endpoint.to_owned(), source };
        let (scheme, host, port) = match target {
            Target::Unix(path) => return bind_unix(path).await.map_err(failed),
            Target::Tcp { host, port } => ("http", host, port),
            Target::Tls { host, port } => ("https", host, port),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let socket =
            TcpListener::bind((bare, if any_port { 0 } else { port })).await.map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.port();
        Ok(Self {
            socket: Socket::Right(socket),
            endpoint: format!("{scheme}://{host}:{port}"),
            unlink: None,
        })
    }

    /// Returns the endpoint for a client's configuration.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn into_parts(self) -> (Socket, Option<Unlink>) {
        (self.socket, self.unlink)
    }
}

async fn bind_unix(path: PathBuf) -> io::Result<Listener> {
    let socket = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(&path).await => {
            std::fs::remove_file(&path)?;
            UnixListener::bind(&path)?
        }
        other => other?,
    };
    let endpoint = format!("unix://{}", path.display());
    Ok(Listener {
        socket: Socket::Left(socket),
        endpoint,
        unlink: Some(Unlink { file: identity(&path)?, path }),
    })
}

/// Returns true if this is the socket of a dead process. Any other file, and a socket with a live
/// server, is kept.
async fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && UnixStream::connect(path)
            .await
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
