//! Forwards requests to the service, and replaces its addresses with the proxy's.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use super::Place;

/// Headers of a single connection (RFC 9110, section 7.6.1), and the length, which is set
/// again.
const OWN: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// The client for the services.
pub(super) struct Upstream(Client<HttpConnector, Full<Bytes>>);

impl Upstream {
    pub(super) fn new() -> Self {
        // The services close each connection after the answer.
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http())
    }

    /// Returns the service's whole answer. `Host` stays the proxy's, so that the links in the
    /// answers lead to the proxy.
    pub(super) async fn ask(
        &self,
        at: SocketAddr,
        mut request: Request<Bytes>,
    ) -> Result<Response<Bytes>> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("http://{at}{path}").parse::<Uri>()?;
        clean(request.headers_mut());
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let answer = self.0.request(request.map(Full::new)).await.context("asking the service")?;
        let (mut parts, body) = answer.into_parts();
        clean(&mut parts.headers);
        let body = body.collect().await.context("reading the service's answer")?.to_bytes();
        Ok(Response::from_parts(parts, body))
    }
}

fn clean(headers: &mut HeaderMap) {
    for name in OWN {
        headers.remove(name);
    }
}

/// Returns the text with the proxy's addresses in place of the services'.
pub(super) fn readdress<'a>(body: Bytes, places: impl Iterator<Item = &'a Place>) -> Bytes {
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let mut text = text.to_owned();
    for place in places {
        // The next character is a quote or a slash, never another digit of the port.
        for end in ['/', '"'] {
            let own = format!("http://{}{end}", place.own);
            text = text.replace(&format!("http://{}{end}", place.upstream), &own);
        }
    }
    text.into()
}
