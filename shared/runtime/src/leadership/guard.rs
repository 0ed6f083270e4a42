//! The layer between `kube-leader-election` and the API server.
//!
//! It rewrites each Lease that the library reads, so that the library's wall clock test gives
//! the result of our observation, and adds the missing precondition to the library's patches.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::observed::{Observed, holder};

/// The renew time shown for a Lease that may be taken: expired by any clock.
const LONG_AGO: &str = "1970-01-01T00:00:00.000000Z";
/// The renew time shown for a Lease that must be respected: in the future by any clock.
const FAR_AHEAD: &str = "9000-01-01T00:00:00.000000Z";
/// The duration shown; any value works between those two times.
const SHOWN_SECONDS: u32 = 1;

/// A layer only for the client that writes the Lease. Clones share the observation.
#[derive(Clone)]
pub struct LeaseGuard {
    shared: Arc<Mutex<Shared>>,
    me: Arc<str>,
}

struct Shared {
    observed: Observed,
    /// The version of the last read, until a patch consumes it. Only a read by the library sets
    /// it: the version must be the one that the library decided on.
    version: Option<String>,
}

impl LeaseGuard {
    /// Guards the candidate `me`, which respects an unchanged Lease for `duration`, or for the
    /// record's own duration where that is longer.
    pub fn new(me: &str, duration: Duration) -> Self {
        let shared = Shared { observed: Observed::new(me, duration), version: None };
        Self { shared: Arc::new(Mutex::new(shared)), me: me.into() }
    }

    /// When another candidate's Lease will have been unchanged for long enough; `None` if no
    /// other candidate is known to hold it.
    pub fn expires_at(&self) -> Option<Instant> {
        self.shared.lock().observed.expires_at()
    }

    /// The holder of the Lease when last seen; empty for none.
    pub fn holder(&self) -> String {
        self.shared.lock().observed.holder().to_owned()
    }

    /// The Lease's transitions as last seen; `None` if it was never seen.
    pub(super) fn transitions(&self) -> Option<i64> {
        self.shared.lock().observed.transitions()
    }

    /// Records a Lease seen outside of an attempt. It counts as an observation; no decision is
    /// based on it.
    pub(super) fn heard(&self, record: &Value) {
        self.shared.lock().observed.saw(record, Instant::now());
    }

    /// The Lease as shown to the library: complete, and expired exactly when we decide so.
    fn present(&self, mut lease: Value) -> Value {
        let free = {
            let (now, mut shared) = (Instant::now(), self.shared.lock());
            shared.version = lease
                .pointer("/metadata/resourceVersion")
                .and_then(Value::as_str)
                .map(str::to_owned);
            shared.observed.saw(lease.get("spec").unwrap_or(&Value::Null), now);
            shared.observed.is_free(now)
        };
        let Some(object) = lease.as_object_mut() else { return lease };
        let spec = object.entry("spec").or_insert_with(|| json!({}));
        if !spec.is_object() {
            *spec = json!({});
        }
        for (field, absent) in [("holderIdentity", json!("")), ("leaseTransitions", json!(0))] {
            if spec.get(field).is_none_or(Value::is_null) {
                spec[field] = absent;
            }
        }
        // The library adds one to it, which must neither overflow nor be negative.
        let countable = |count: i64| (0..i64::from(i32::MAX)).contains(&count);
        if spec["leaseTransitions"].as_i64().is_some_and(|count| !countable(count)) {
            spec["leaseTransitions"] = json!(0);
        }
        let takeable = free && holder(spec) != &*self.me;
        spec["renewTime"] = json!(if takeable { LONG_AGO } else { FAR_AHEAD });
        spec["leaseDurationSeconds"] = json!(SHOWN_SECONDS);
        lease
    }

    /// The Lease does not exist. If it existed before, its holder may still lead: as long as it
    /// must be respected, the candidate is shown the last known Lease.
    fn present_absent(&self) -> Option<Value> {
        let (now, mut shared) = (Instant::now(), self.shared.lock());
        shared.version = None;
        shared.observed.missed(now);
        if shared.observed.is_free(now) {
            return None;
        }
        let spec = json!({
            "holderIdentity": shared.observed.holder(), "leaseTransitions": 0, "renewTime": FAR_AHEAD,
            "leaseDurationSeconds": SHOWN_SECONDS,
        });
        Some(
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec}),
        )
    }

    /// Gives a patch the version of the read that led to it, which is valid once.
    fn stamp(&self, request: Request<Body>) -> Result<Request<Body>, BoxError> {
        let version = self.shared.lock().version.take();
        let version =
            version.ok_or("a Lease is not patched without having been read: refused here")?;
        let (mut parts, body) = request.into_parts();
        // Bodies that kube's Api makes are in memory.
        let bytes = body.collect_bytes().now_or_never().ok_or("the patch is not in memory")??;
        let mut patch: Value = serde_json::from_slice(&bytes)?;
        let metadata = patch
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .ok_or("the patch has no metadata")?;
        metadata.insert("resourceVersion".to_owned(), version.into());
        parts.headers.remove(CONTENT_LENGTH);
        Ok(Request::from_parts(parts, Body::from(serde_json::to_vec(&patch)?)))
    }

    async fn answer<B>(
        &self,
        method: Method,
        response: Response<B>,
    ) -> Result<Response<Body>, BoxError>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = response.into_parts();
        let mut bytes = body.collect().await.map_err(Into::into)?.to_bytes();
        if method == Method::GET {
            let shown = match parts.status {
                StatusCode::OK => Some(self.present(serde_json::from_slice(&bytes)?)),
                StatusCode::NOT_FOUND => self.present_absent(),
                _ => None,
            };
            if let Some(lease) = shown {
                parts.status = StatusCode::OK;
                parts.headers = HeaderMap::new();
                bytes = serde_json::to_vec(&lease)?.into();
            }
        }
        Ok(Response::from_parts(parts, Body::from(bytes)))
    }
}

impl<S> Layer<S> for LeaseGuard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: self.clone() }
    }
}

/// The guarded service.
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    guard: LeaseGuard,
}

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (guard, method) = (self.guard.clone(), request.method().clone());
        let request = if method == Method::PATCH { guard.stamp(request) } else { Ok(request) };
        match request {
            Err(error) => std::future::ready(Err(error)).boxed(),
            Ok(request) => {
                let answer = self.inner.call(request);
                async move { guard.answer(method, answer.await.map_err(Into::into)?).await }.boxed()
            }
        }
    }
}
