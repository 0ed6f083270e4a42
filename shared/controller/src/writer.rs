//! Writes objects: only while this replica leads for long enough, and only to the version
//! that the write was decided on, so that a stale process gets a conflict.
//!
//! Controllers write objects only through this module.

use std::sync::Arc;

use ccm_kube::{
    ApiError,
    store::{Store, Stored},
    write::{ObjectApi, Patch, StatusPatch},
};
use ccm_runtime::{
    leadership::{Leadership, Lost},
    program::{Context, Program},
    rights::Right,
};
use http::Method;

use crate::kind::right;

/// Returns the right that [`Writer::patch`] needs for this kind.
pub fn patch<K: Stored>() -> Right {
    right::<K>("patch", "")
}

/// Returns the right that [`Writer::patch_status`] needs for this kind.
pub fn patch_status<K: Stored>() -> Right {
    right::<K>("patch", "status")
}

/// Returns the right that [`Writer::delete`] needs for this kind.
pub fn delete<K: Stored>() -> Right {
    right::<K>("delete", "")
}

/// The reason why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// This replica does not lead for long enough: nothing was sent.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The caller's decision does not hold any more: nothing was sent.
    #[error("{0}")]
    Superseded(&'static str),
    /// The API server refused the write, or its outcome is unknown.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// Writes objects of one kind while this replica leads. When a call returns, the store
/// holds the result.
pub struct Writer<K: Stored> {
    api: ObjectApi<K>,
    leadership: Leadership,
    store: Store<K>,
}

impl Stopped {
    /// Returns the error of the API server, if a request was sent.
    pub const fn refusal(&self) -> Option<&ApiError> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Lost(_) | Self::Superseded(_) => None,
        }
    }
}

/// Returns the API server's answer; `None` if no request was sent.
pub fn answer<T>(result: &Result<T, Stopped>) -> Option<Result<(), &ApiError>> {
    match result {
        Ok(_) => Some(Ok(())),
        Err(stopped) => stopped.refusal().map(Err),
    }
}

impl<K: Stored> Writer<K> {
    /// Writes with the program's client and applies results to this store. A write is bounded by
    /// `--kube-api-timeout` and by the term of leadership, counted from when it is sent: before
    /// that it may wait for the rate limiter.
    pub fn new<P: Program>(context: &Context<P>, store: &Store<K>) -> Self {
        let longest = context.common.borrow().kube.timeout;
        let timeout = context.leadership.write_timeout().min(longest);
        Self {
            api: ObjectApi::new(context.clients.main.clone(), timeout, store)
                .with_admission(&context.clients.admission),
            leadership: context.leadership.clone(),
            store: store.clone(),
        }
    }

    /// Patches metadata and spec if the object is unchanged. Returns the new object.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed.
    pub async fn patch(&self, object: &K, patch: &Patch) -> Result<Arc<K>, Stopped> {
        let api = self.admitted(Method::PATCH).await?;
        Ok(self.keep(api.patch(object, patch).await?))
    }

    /// Patches the status if the object is unchanged. Returns the new object.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed.
    pub async fn patch_status(&self, object: &K, patch: &StatusPatch) -> Result<Arc<K>, Stopped> {
        let api = self.admitted(Method::PATCH).await?;
        Ok(self.keep(api.patch_status(object, patch).await?))
    }

    /// Deletes the object if it is unchanged. Succeeds if it is already gone.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed, or another has
    /// its name.
    pub async fn delete(&self, object: &K) -> Result<(), Stopped> {
        match self.admitted(Method::DELETE).await?.delete(object).await {
            Ok(()) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the rate limiter. Then the longest write must fit into the term. A write that is
    /// not sent does not take a place in the limiter.
    async fn admitted(&self, method: Method) -> Result<ObjectApi<K>, Lost> {
        self.check()?;
        let api = self.api.admitted(method).await;
        self.check()?;
        Ok(api)
    }

    /// Checks that the longest write fits into the term.
    fn check(&self) -> Result<(), Lost> {
        self.leadership.check(self.api.timeout()).map(|_| ())
    }

    fn keep(&self, written: K) -> Arc<K> {
        self.store.apply_written(written)
    }
}

#[cfg(test)]
mod tests;
