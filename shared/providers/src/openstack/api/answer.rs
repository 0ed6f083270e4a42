//! What a service answered.

use bytes::Bytes;
use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use http::HeaderMap;
use serde::de::DeserializeOwned;

use super::fault;
use crate::openstack::text::MAX_MESSAGE;

/// An answer of status 2xx, or a 404 by which the service itself says that the object
/// does not exist.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The service's ID of the request.
    pub request_id: Option<String>,
}

impl Answer {
    /// The body as what it should be.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CloudError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let why = format!(
                "the answer (HTTP {}, {} bytes) is not the expected document: {}",
                self.status,
                self.body.len(),
                one_line(&error.to_string(), MAX_MESSAGE)
            );
            self.error(ErrorKind::Malformed, why)
        })
    }

    /// The error for a write whose 404 says that what it names does not exist.
    pub(crate) fn missing(&self, operation: &str) -> CloudError {
        let words = fault::words(&self.body);
        self.error(ErrorKind::NotFound, format!("{operation}: HTTP 404: {words}"))
    }

    /// An error about this answer.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> CloudError {
        CloudError { request_id: self.request_id.clone(), ..CloudError::new(kind, message) }
    }
}
