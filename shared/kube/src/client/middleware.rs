//! Makes a tower layer from a function around a request.
//!
//! `kube::Client` polls its stack for readiness from a single task. A layer that is not
//! ready blocks every request of that client, so these layers are always ready and wait
//! only in the future of the request concerned.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use super::ResponseBody;

/// The result of a request.
pub(super) type Answer = Result<Response<ResponseBody>, BoxError>;

/// The layers below.
pub(super) type Next = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A layer's work around the layers below it.
pub(super) trait Middleware: Send + Sync + 'static {
    /// Handles one request. [`send`] passes it on, as often as needed.
    fn handle(&self, request: Request<Body>, next: Next) -> impl Future<Output = Answer> + Send;
}

/// Sends a request to the layers below.
pub(super) async fn send(next: &Next, request: Request<Body>) -> Answer {
    next.clone().oneshot(request).await
}

/// Wraps the layers below in a layer.
pub(super) fn around<M: Middleware>(middleware: M, next: Next) -> Next {
    Next::new(Around { middleware: Arc::new(middleware), next })
}

struct Around<M> {
    middleware: Arc<M>,
    next: Next,
}

impl<M> Clone for Around<M> {
    fn clone(&self) -> Self {
        Self { middleware: Arc::clone(&self.middleware), next: self.next.clone() }
    }
}

impl<M: Middleware> Service<Request<Body>> for Around<M> {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (middleware, next) = (Arc::clone(&self.middleware), self.next.clone());
        Box::pin(async move { middleware.handle(request, next).await })
    }
}
