//! Makes a layer from a function around a request.
//!
//! `kube::Client` polls its stack for readiness from a single task. A layer that is not
//! ready blocks every request of that client, so these layers are always ready and wait
//! only in the future of the request concerned.

use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, service_fn, util::BoxCloneSyncService};

use super::ResponseBody;

/// The result of a request.
pub(super) type RequestResult = Result<Response<ResponseBody>, BoxError>;

/// The layers below.
pub(super) type InnerService = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// Wraps the layers below in a layer: `handle` gets each request and passes it on, as often
/// as needed.
pub(super) fn around<F, A>(next: InnerService, handle: F) -> InnerService
where
    F: Fn(Request<Body>, InnerService) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = RequestResult> + Send + 'static,
{
    InnerService::new(service_fn(move |request| handle(request, next.clone())))
}
