//! Writes objects of any kind: metadata and spec, the status, deletion.
//!
//! Each write carries the version and the UID of the object that it was decided on, so that
//! a write to a changed object, or to another of the same name, is a conflict.

mod patch;

use std::time::Duration;

use http::Method;
use kube::{
    Client, Resource as _,
    api::{DeleteParams, Patch as Body, PatchParams, Preconditions, Request},
};
use serde_json::Value;
use tokio::time::timeout;

pub use self::patch::{ConditionChange, Patch, StatusPatch};
use crate::{
    client::{Admission, Admitted},
    error::ApiError,
    store::{Store, Stored},
};

/// Writes objects of one kind. Each call ends within its timeout, whatever the connection
/// does.
#[derive(Clone)]
pub struct ObjectApi<K: Stored> {
    client: Client,
    timeout: Duration,
    store: Store<K>,
    admission: Option<Admission>,
    admitted: Option<Admitted>,
}

impl<K: Stored> ObjectApi<K> {
    /// Writes through this client; `timeout` bounds a call with all retries and the whole
    /// response. Answers are read by the rule of `store`, which is not changed.
    pub fn new(client: Client, timeout: Duration, store: &Store<K>) -> Self {
        Self { client, timeout, store: store.clone(), admission: None, admitted: None }
    }

    /// Adds the admission of the client: for [`admitted`](Self::admitted).
    #[must_use]
    pub fn with_admission(self, admission: &Admission) -> Self {
        Self { admission: Some(admission.clone()), ..self }
    }

    /// Waits until the limiter admits a write with this method. The returned API writes once
    /// without waiting for the limiter, so its timeout counts from the sending.
    pub async fn admitted(&self, method: Method) -> Self {
        let mut this = self.clone();
        if let Some(admission) = &self.admission {
            this.admitted = Some(admission.admit(&method).await);
        }
        this
    }

    /// Marks a request that the limiter has admitted.
    fn marked(&self, mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
        if let Some(admitted) = &self.admitted {
            request.extensions_mut().insert(admitted.clone());
        }
        request
    }

    /// Returns the timeout of a call, which the term of leadership must cover before the call
    /// starts.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Patches metadata and spec. Returns the new object. A patch that changes nothing is not
    /// sent: [`ApiError::Invalid`].
    pub async fn patch(&self, object: &K, patch: &Patch) -> Result<K, ApiError> {
        self.send_patch(object, patch.body(object), None).await
    }

    /// Patches the status. Returns the new object. A patch that changes nothing is not sent:
    /// [`ApiError::Invalid`].
    pub async fn patch_status(&self, object: &K, patch: &StatusPatch) -> Result<K, ApiError> {
        self.send_patch(object, patch.body(object), Some("status")).await
    }

    /// Deletes exactly this object. Another object of the same name, or a changed one, stays: the
    /// call fails with [`ApiError::Conflict`].
    pub async fn delete(&self, object: &K) -> Result<(), ApiError> {
        let (request, name) = path(object);
        let preconditions = Preconditions {
            uid: Some(object.uid().to_owned()),
            resource_version: Some(object.resource_version().to_owned()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = request.delete(name, &params).map_err(kube::Error::BuildRequest)?;
        // Depending on finalizers the response is the object or a status: both are successes.
        let call = self.client.request_status::<K::Wire>(self.marked(request));
        let answer = timeout(self.timeout, call).await.map_err(|_| ApiError::Timeout)?;
        answer.map(|_| ()).map_err(ApiError::from)
    }

    async fn send_patch(
        &self,
        object: &K,
        body: Option<Value>,
        subresource: Option<&str>,
    ) -> Result<K, ApiError> {
        let (request, name) = path(object);
        let Some(body) = body else {
            let kind = K::Wire::kind(&());
            return Err(ApiError::Invalid(format!("the patch of {kind} {name} changes nothing")));
        };
        let (params, body) = (PatchParams::default(), Body::Strategic(body));
        let request = match subresource {
            Some(subresource) => request.patch_subresource(subresource, name, &params, &body),
            None => request.patch(name, &params, &body),
        };
        let request = self.marked(request.map_err(kube::Error::BuildRequest)?);
        let call = self.client.request::<K::Wire>(request);
        let answer = timeout(self.timeout, call).await.map_err(|_| ApiError::Timeout)?;
        K::read(answer?, &self.store.rule()).map_err(ApiError::Decode)
    }
}

/// Returns the path of the object's collection, and its name.
fn path<K: Stored>(object: &K) -> (Request, &str) {
    let key: &str = object.key();
    let (namespace, name) = match key.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, key),
    };
    (Request::new(K::Wire::url_path(&(), namespace)), name)
}
