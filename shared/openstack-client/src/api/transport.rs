//! Sends one request over a pooled connection and reads its answer, up to a bound.

mod tls;

use std::{error::Error, io, pin::pin};

use bytes::Bytes;
use ccm_base::message;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_net::{AnswerMemory, Outgoing, Proxies, Room, UnfitProxy, Versions, pool};
use http::{HeaderMap, Request, StatusCode, header::PROXY_AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::{self as client, connect::Connect};
use tower::{BoxError, ServiceExt as _, util::BoxCloneSyncService};

use crate::config::Access;

/// The most idle connections that are kept to each host.
const IDLE_CONNECTIONS: usize = 16;
/// The maximum length of an answer with an error. The removal of secrets needs several times its
/// length.
const LONGEST_FAULT: usize = 1 << 20;

/// Clones share their connections.
#[derive(Clone)]
pub struct Transport {
    send: BoxCloneSyncService<Request<Full<Bytes>>, http::Response<Incoming>, BoxError>,
    proxies: Proxies,
    memory: AnswerMemory,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Raw {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The reason why no complete answer was received.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The two sides do not accept each other's certificates.
    #[error("{0}")]
    Certificate(String),
    /// The proxy on the way is of a kind that is not supported.
    #[error("{0}")]
    Proxy(String),
    /// No connection could be made, so nothing was sent.
    #[error("{0}")]
    NotConnected(String),
    /// The connection ended before the answer did.
    #[error("{0}")]
    Connection(String),
    /// The answer is too long.
    #[error("the answer is longer than {} MiB", .0 >> 20)]
    TooLong(usize),
}

impl Transport {
    /// Reads the files that `config` names, and the proxies in the environment. Does
    /// not connect yet.
    pub fn new(config: &Access) -> Result<Self, CloudError> {
        Self::with_proxies(config, Proxies::of_environment())
    }

    /// Creates a transport as [`Transport::new`] does, but with these proxies.
    fn with_proxies(config: &Access, proxies: Proxies) -> Result<Self, CloudError> {
        let tls = tls::client(&config.tls, config.auth_url.scheme() == "https")?;
        // The hosts of the other services are known only from the catalog.
        if let Ok(uri) = config.auth_url.as_str().parse() {
            proxies.find(&uri).map_err(|unfit| {
                CloudError::new(ErrorKind::Invalid, format!("auth-url: {unfit}"))
            })?;
        }
        let outgoing = Outgoing {
            proxies: proxies.clone(),
            tls,
            server_name: None,
            versions: Versions::Negotiated,
            limit: Outgoing::LIMIT,
        };
        Ok(Self { proxies, ..Self::over(outgoing.connector()) })
    }

    /// Sends over connections that `connector` makes.
    pub fn over(connector: impl Connect + Clone + Send + Sync + 'static) -> Self {
        let client = pool::<_, Full<Bytes>>(connector, IDLE_CONNECTIONS);
        let send = BoxCloneSyncService::new(client.map_err(BoxError::from));
        Self { send, proxies: Proxies::none(), memory: AnswerMemory::of_process() }
    }

    /// Sends the request and reads the whole answer. Knows no time limit.
    pub async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Raw, Broken> {
        // A tunnel sends its credentials to the proxy itself.
        if let Ok(Some(proxy)) = self.proxies.passing_on(request.uri())
            && let Some(credentials) = proxy.basic_auth()
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        let response = self.send.clone().oneshot(request).await.map_err(broken)?;
        let (parts, body) = response.into_parts();
        let longest = if parts.status.is_success() { AnswerMemory::LONGEST } else { LONGEST_FAULT };
        let body = whole(body, longest, &self.memory).await?;
        Ok(Raw { status: parts.status, headers: parts.headers, body })
    }
}

/// The bytes of an answer, and the memory that they take until they are dropped.
struct Held {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a whole body of at most `longest` bytes, when there is room for it.
async fn whole<B>(body: B, longest: usize, memory: &AnswerMemory) -> Result<Bytes, Broken>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let length = body.size_hint().exact();
    if length.is_some_and(|length| length > longest as u64) {
        return Err(Broken::TooLong(longest));
    }
    let mut room = memory.room(length).await;
    let mut bytes = Vec::new();
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(error.into()))?.into_data() else { continue };
        let total = bytes.len() + data.len();
        if total > longest {
            return Err(Broken::TooLong(longest));
        }
        room.grow(total).await;
        if total > bytes.capacity() {
            // While a longer copy is made, both copies take memory. A single answer makes its last
            // copy here.
            bytes.reserve_exact(room.size().min(longest) - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Bytes::from_owner(Held { bytes, _room: room }))
}

fn broken(error: BoxError) -> Broken {
    if let Some(unfit) = cause::<UnfitProxy>(error.as_ref()) {
        return Broken::Proxy(unfit.to_string());
    }
    let text = message::chain(error.as_ref());
    match is_certificate(error.as_ref()) {
        true if is_untrusted(&text) => Broken::Certificate(format!(
            "{text}: set ca-file to the certificates of the cloud's authority"
        )),
        true => Broken::Certificate(text),
        false if cause::<client::Error>(error.as_ref()).is_some_and(client::Error::is_connect) => {
            Broken::NotConnected(text)
        }
        false => Broken::Connection(text),
    }
}

/// Returns true if a certificate caused the failure, which a retry does not change.
fn is_certificate(error: &(dyn Error + 'static)) -> bool {
    matches!(
        cause(error),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

/// Returns true if the certificate does not come from a trusted authority: from an unknown one,
/// another one with the same name, or itself.
fn is_untrusted(text: &str) -> bool {
    ["UnknownIssuer", "BadSignature", "CaUsedAsEndEntity"].iter().any(|why| text.contains(why))
}

/// Returns the first of the error's causes, itself included, that is of this kind.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    // The error inside an I/O error is not among its sources.
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return cause(inner);
    }
    error.downcast_ref::<E>().or_else(|| error.source().and_then(cause))
}

#[cfg(test)]
mod tests;
