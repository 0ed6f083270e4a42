//! Compression of responses.
//!
//! Lists compress well. Watches must not be compressed: since Kubernetes 1.37 the API
//! server sends one gzip member per event, and the decoder reads the first and fails on
//! the second (kube #2079). The decompression layer requests gzip only if the request has
//! no `Accept-Encoding`.

use http::{HeaderValue, Request, header::ACCEPT_ENCODING};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::ServiceBuilder;
use tower_http::decompression::DecompressionLayer;

use super::{
    class::is_watch,
    middleware::{Answer, Middleware, Next, around, send},
};

/// Requests uncompressed responses for watches.
struct PlainWatches;

impl Middleware for PlainWatches {
    async fn handle(&self, mut request: Request<Body>, next: Next) -> Answer {
        if is_watch(request.uri()) {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        send(&next, request).await
    }
}

/// Decompresses responses; with `gzip` false it requests no compression.
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
