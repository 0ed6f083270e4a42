//! Compression of responses.
//!
//! Lists compress well. Watches must not be compressed: since Kubernetes 1.37 the API
//! server sends one gzip member per event, and the decoder reads the first and fails on
//! the second (kube #2079). The decompression layer requests gzip only if the request has
//! no `Accept-Encoding`.

use http::{HeaderValue, Request, Response, header::ACCEPT_ENCODING};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::ServiceBuilder;
use tower_http::decompression::{DecompressionBody, DecompressionLayer};

use super::{class::is_watch, middleware::InnerService};

/// Decompresses responses, but requests uncompressed ones for watches; with `gzip` false it
/// requests no compression.
pub(super) fn decompressed(gzip: bool, next: InnerService) -> InnerService {
    let service = ServiceBuilder::new()
        .map_request(|mut request: Request<Body>| {
            if is_watch(request.uri()) {
                request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            request
        })
        .map_response(|response: Response<DecompressionBody<_>>| {
            response.map(BodyExt::boxed_unsync)
        })
        .layer(DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(gzip))
        .service(next);
    InnerService::new(service)
}
