//! Compression of answers.
//!
//! Lists compress well and are worth it. Watches must not be compressed: since
//! Kubernetes 1.37 the API server sends one gzip member per event, of which the
//! decoder reads the first and fails on the second (kube #2079). The decompression
//! layer asks for gzip only where the request does not say what it wants.

use http::{HeaderValue, Request, header::ACCEPT_ENCODING};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::ServiceBuilder;
use tower_http::decompression::DecompressionLayer;

use super::{
    class::is_watch,
    middleware::{Answer, Middleware, Next, around, send},
};

/// Asks for plain answers on watches.
struct PlainWatches;

impl Middleware for PlainWatches {
    async fn handle(&self, mut request: Request<Body>, next: Next) -> Answer {
        if is_watch(request.uri()) {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        send(&next, request).await
    }
}

/// Decompresses answers; `gzip` false asks for none compressed.
pub(super) fn decompressed(gzip: bool, next: Next) -> Next {
    let layer = DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(gzip);
    let next = ServiceBuilder::new()
        .map_response(|response: http::Response<_>| {
            response
                .map(|body: tower_http::decompression::DecompressionBody<_>| body.boxed_unsync())
        })
        .layer(layer)
        .service(next);
    around(PlainWatches, Next::new(next))
}
