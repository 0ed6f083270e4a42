//! The layer between `kube-leader-election` and the API server.
//!
//! The guard rewrites each Lease that the library reads, so that the library's comparison with the
//! wall clock gives the result of our observation, and turns the library's patches into updates
//! (PUT) of the Lease that was read. An update carries the version that was read as its
//! precondition, and the API server serves it at the priority level `leader-election`, which
//! patches never reach: its FlowSchemas match the verbs get, create and update.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_kube::client::{LeaseService, ResponseBody};
use futures::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::{annotations::LeaseAnnotations, observed::Observed};

/// The renew time shown for a Lease that may be taken: expired by any clock.
const LONG_AGO: &str = "1970-01-01T00:00:00.000000Z";
/// The renew time shown for a Lease that must be respected: in the future by any clock.
const FAR_AHEAD: &str = "9000-01-01T00:00:00.000000Z";
/// The duration shown; any value works between those two times.
const SHOWN_SECONDS: u32 = 1;

/// The layer. Only the client that writes the Lease has it. Clones share the observation.
#[derive(Clone)]
pub struct LeaseGuard {
    observed: Arc<Mutex<Observed>>,
    annotations: LeaseAnnotations,
}

impl LeaseGuard {
    /// Guards the candidate `me`, which respects an unchanged Lease for `duration`, or for the
    /// record's own duration where that is longer.
    pub fn new(me: &str, duration: Duration) -> Self {
        let observed = Arc::new(Mutex::new(Observed::new(me, duration)));
        Self { observed, annotations: LeaseAnnotations::elected() }
    }

    /// Returns the annotations of the Lease.
    pub(super) fn annotations(&self) -> &LeaseAnnotations {
        &self.annotations
    }

    /// Puts the guard in front of a stack for Lease requests.
    pub fn layer(&self, stack: LeaseService) -> LeaseService {
        let guard = self.clone();
        let guarded = move |request| guard.clone().carry(stack.clone(), request);
        LeaseService::new(service_fn(guarded))
    }

    /// Returns the known state of the Lease.
    pub(super) fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock()
    }

    /// Returns the Lease as shown to the library: complete, and expired exactly when we decide so.
    fn present(&self, mut lease: Value) -> Value {
        let (now, mut observed) = (Instant::now(), self.observed());
        let has_version = lease.pointer("/metadata/resourceVersion").is_some_and(Value::is_string);
        observed.read = has_version.then(|| lease.clone());
        observed.saw(lease.get("spec").unwrap_or(&Value::Null), now);
        self.annotations.read(&lease, observed.is_mine(&lease["spec"]));
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
        // The library adds one to this number, which must neither overflow nor be negative.
        let countable = |count: i64| (0..i64::from(i32::MAX)).contains(&count);
        if spec["leaseTransitions"].as_i64().is_some_and(|count| !countable(count)) {
            spec["leaseTransitions"] = json!(0);
        }
        let takeable = observed.is_free(now) && !observed.is_mine(spec);
        spec["renewTime"] = json!(if takeable { LONG_AGO } else { FAR_AHEAD });
        spec["leaseDurationSeconds"] = json!(SHOWN_SECONDS);
        lease
    }

    /// Answers for a Lease that does not exist. If it existed before, its holder may still lead, so
    /// the candidate is shown the last known Lease as long as it must be respected.
    fn present_absent(&self) -> Option<Value> {
        let (now, mut observed) = (Instant::now(), self.observed());
        observed.read = None;
        observed.missed(now);
        if observed.is_free(now) {
            return None;
        }
        let spec = json!({
            "holderIdentity": observed.holder(), "leaseTransitions": 0, "renewTime": FAR_AHEAD,
            "leaseDurationSeconds": SHOWN_SECONDS,
        });
        Some(
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec}),
        )
    }

    /// Turns a patch into an update of the Lease that was read before it; a read serves one write.
    /// The update keeps the Lease's version and UID, so it neither overwrites a change nor
    /// recreates a Lease that was deleted in between. Also returns how many changes of the leader's
    /// annotations the update contains.
    fn update(&self, patch: Request<Body>) -> Result<(Request<Body>, u64), BoxError> {
        let lease = self.observed().read.take();
        let mut lease = lease.ok_or("refused here: a Lease must be read before it is written")?;
        let (mut parts, body) = patch.into_parts();
        // The bodies of kube's Api are in memory.
        let bytes = body.collect_bytes().now_or_never().ok_or("the patch is not in memory")??;
        merge(&mut lease, serde_json::from_slice(&bytes)?);
        let changes = self.annotations.write(&mut lease);
        parts.method = Method::PUT;
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.headers.remove(CONTENT_LENGTH);
        Ok((Request::from_parts(parts, Body::from(serde_json::to_vec(&lease)?)), changes))
    }

    async fn carry(
        self,
        stack: LeaseService,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let method = request.method().clone();
        let (request, changes) = match method {
            Method::PATCH => self.update(request)?,
            _ => (request, 0),
        };
        let (mut parts, body) = stack.oneshot(request).await?.into_parts();
        if parts.status.is_success() {
            self.annotations.store(changes);
        }
        let mut bytes = body.collect().await?.to_bytes();
        if method == Method::GET {
            let shown = match parts.status {
                StatusCode::OK => Some(self.present(serde_json::from_slice(&bytes)?)),
                StatusCode::NOT_FOUND => self.present_absent(),
                _ => None,
            };
            if let Some(lease) = shown {
                parts.status = StatusCode::OK;
                parts.headers = HeaderMap::new();
                bytes = Bytes::from(serde_json::to_vec(&lease)?);
            }
        }
        let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::from_parts(parts, body))
    }
}

/// Applies a JSON merge patch (RFC 7386). To the API server, a field that is set to null is absent.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        merge(&mut into[name], value);
    }
}
