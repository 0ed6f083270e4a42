//! What stands between `kube-leader-election` and the API server.
//!
//! The library sees a Lease on which its own test by the wall clock comes out as our
//! observation says, and its patches get the precondition that they lack.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use ccm_cloud::clock;
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// What this process itself has seen of the Lease.
#[derive(Default)]
struct Observed {
    /// The version of the last read, until a patch uses it up.
    version: Option<String>,
    /// The record as last seen. Only that it *changes* matters, never its timestamps.
    record: Option<Value>,
    /// When it was last seen to change.
    changed: Option<Instant>,
    /// When it was last seen at all.
    seen: Option<Instant>,
}

/// A layer for the client that writes the Lease, and nothing else. Clones share what
/// has been observed.
#[derive(Clone)]
pub struct LeaseGuard {
    me: Arc<str>,
    duration: Duration,
    observed: Arc<Mutex<Observed>>,
}

impl LeaseGuard {
    /// Guards the candidate `me`, which respects an unchanged Lease for `duration`, or
    /// for the record's own duration where that is longer.
    pub fn new(me: &str, duration: Duration) -> Self {
        Self { me: me.into(), duration, observed: Arc::default() }
    }

    /// When the Lease will have been unchanged for long enough; `None` if nobody else's
    /// record has been seen.
    pub fn expires_at(&self) -> Option<Instant> {
        let observed = self.observed.lock();
        let record = observed.record.as_ref().filter(|record| holder(record) != &*self.me)?;
        Some(observed.changed? + self.respected(record))
    }

    /// Who held the Lease when it was last seen; empty for nobody.
    pub fn holder(&self) -> String {
        self.observed.lock().record.as_ref().map(|record| holder(record).to_owned()).unwrap_or_default()
    }

    fn respected(&self, record: &Value) -> Duration {
        let seconds = record.get("leaseDurationSeconds").and_then(Value::as_u64);
        seconds.map_or(self.duration, |seconds| Duration::from_secs(seconds).max(self.duration))
    }

    /// Notes a Lease that was read, and says whether a candidate may take it.
    fn observe(&self, lease: &Value) -> bool {
        let now = Instant::now();
        let record = lease.get("spec").cloned().unwrap_or_default();
        let mut observed = self.observed.lock();
        observed.seen = Some(now);
        observed.version = lease.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        if observed.record.as_ref() != Some(&record) {
            observed.changed = Some(now);
            observed.record = Some(record.clone());
        }
        let unchanged = observed.changed.map_or(Duration::ZERO, |changed| now.duration_since(changed));
        holder(&record).is_empty() || unchanged >= self.respected(&record)
    }

    /// The Lease as the library is to see it: complete, and expired exactly when we say so.
    fn present(&self, mut lease: Value) -> Value {
        let free = self.observe(&lease);
        let Some(object) = lease.as_object_mut() else { return lease };
        let spec = object.entry("spec").or_insert_with(|| json!({}));
        if !spec.is_object() {
            *spec = json!({});
        }
        let mine = holder(spec) == &*self.me;
        let renewed = if free && !mine { Timestamp::UNIX_EPOCH } else { clock::wall() };
        for (field, absent) in [("holderIdentity", json!("")), ("leaseTransitions", json!(0))] {
            if spec.get(field).is_none_or(Value::is_null) {
                spec[field] = absent;
            }
        }
        spec["leaseDurationSeconds"] = json!(self.duration.as_secs());
        spec["renewTime"] = json!(format!("{renewed:.6}"));
        lease
    }

    /// A Lease that was there a moment ago and is not now. Somebody may still lead by
    /// it: until it would have expired, a candidate is shown the one that it knew.
    fn present_absent(&self) -> Option<Value> {
        let mut observed = self.observed.lock();
        observed.version = None;
        let record = observed.record.clone()?;
        let seen = observed.seen?;
        let held_by_other = !holder(&record).is_empty() && holder(&record) != &*self.me;
        if !held_by_other || seen.elapsed() >= self.respected(&record) {
            return None;
        }
        let spec = json!({
            "holderIdentity": holder(&record), "leaseTransitions": 0,
            "leaseDurationSeconds": self.duration.as_secs(), "renewTime": format!("{:.6}", clock::wall()),
        });
        Some(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec}))
    }

    /// Gives a patch the version of the read that led to it, which serves once.
    fn stamp(&self, request: Request<Body>) -> Result<Request<Body>, BoxError> {
        let version = self.observed.lock().version.take();
        let version = version.ok_or("a Lease is not patched without having been read: refused here")?;
        let (mut parts, body) = request.into_parts();
        // Bodies that kube's Api makes are in memory.
        let bytes = body.collect_bytes().now_or_never().ok_or("the patch is not in memory")??;
        let mut patch: Value = serde_json::from_slice(&bytes)?;
        patch["metadata"]["resourceVersion"] = version.into();
        parts.headers.remove(CONTENT_LENGTH);
        Ok(Request::from_parts(parts, Body::from(serde_json::to_vec(&patch)?)))
    }

    async fn answer<B>(&self, method: Method, response: Response<B>) -> Result<Response<Body>, BoxError>
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

/// Who holds the record; empty for nobody.
fn holder(record: &Value) -> &str {
    record.get("holderIdentity").and_then(Value::as_str).unwrap_or("")
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
