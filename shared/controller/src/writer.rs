//! Writing objects: only while this replica leads for long enough, and only to the very
//! version that a write was decided on, so that a stale process gets a conflict.
//!
//! Controllers write objects by this and by nothing else.

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

use crate::kind::right;

/// What [`Writer::patch`] needs for this kind.
pub fn patch<K: Stored>() -> Right {
    right::<K>("patch", "")
}

/// What [`Writer::patch_status`] needs for this kind.
pub fn patch_status<K: Stored>() -> Right {
    right::<K>("patch", "status")
}

/// What [`Writer::delete`] needs for this kind.
pub fn delete<K: Stored>() -> Right {
    right::<K>("delete", "")
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// This replica does not lead for long enough: nothing was sent.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The API server did not take the write, or it is not known whether it did.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// Writes objects of one kind as long as this replica leads. What was written is in the
/// store when a call returns.
pub struct Writer<K> {
    api: ObjectApi<K>,
    leadership: Leadership,
    store: Store<K>,
}

impl<K: Stored> Writer<K> {
    /// Writes with the program's client, and into this store. A write gets the time of
    /// `--kube-api-timeout`, but no more than a term of leadership covers.
    pub fn new<P: Program>(context: &Context<P>, store: &Store<K>) -> Self {
        let longest = context.common.borrow().kube.timeout;
        let timeout = context.leadership.write_timeout().min(longest);
        Self {
            api: ObjectApi::new(context.clients.main.clone(), timeout),
            leadership: context.leadership.clone(),
            store: store.clone(),
        }
    }

    /// Changes metadata and spec of the object if it is still as given. Returns the object
    /// as it is now.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed.
    pub async fn patch(&self, object: &K, patch: &Patch) -> Result<Arc<K>, Stopped> {
        self.check()?;
        Ok(self.keep(self.api.patch(object, patch).await?))
    }

    /// Changes the status of the object if it is still as given. Returns the object as it is
    /// now.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed.
    pub async fn patch_status(&self, object: &K, patch: &StatusPatch) -> Result<Arc<K>, Stopped> {
        self.check()?;
        Ok(self.keep(self.api.patch_status(object, patch).await?))
    }

    /// Deletes the object if it is still as given. One that is gone already is deleted, too.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the object has changed, or another has
    /// its name.
    pub async fn delete(&self, object: &K) -> Result<(), Stopped> {
        self.check()?;
        match self.api.delete(object).await {
            Ok(()) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the longest write fits into the term.
    fn check(&self) -> Result<(), Lost> {
        self.leadership.check(self.api.timeout()).map(|_| ())
    }

    fn keep(&self, written: K) -> Arc<K> {
        let written = Arc::new(written);
        self.store.apply_written(Arc::clone(&written));
        written
    }
}

#[cfg(test)]
mod tests;
