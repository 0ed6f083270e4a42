//! The answer of a service.

use bytes::Bytes;
use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use http::HeaderMap;
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error as _},
};

use super::{bounded::members_of, fault};
use crate::text::MAX_MESSAGE;

/// An answer of status 2xx, or a 404 by which the service itself says that the object
/// does not exist.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The name of the request in metrics.
    pub operation: &'static str,
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
    /// Reads the body.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, CloudError> {
        let read = serde_json::from_slice(&self.body);
        read.map_err(|error| self.malformed(&error.to_string()))
    }

    /// Reads the object that the body has as its member `key`.
    pub fn object<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Result<T, CloudError> {
        let read = members_of(&self.body, [key]).and_then(|[object]| match object {
            Some(object) => serde_json::from_str(object.get()),
            None => Err(serde_json::Error::custom(format!("missing field `{key}`"))),
        });
        read.map_err(|error| self.malformed(&error.to_string()))
    }

    /// Reads that object; `None` if a 404 says that it does not exist.
    pub fn object_or_none<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, CloudError> {
        if self.status == 404 { Ok(None) } else { self.object(key).map(Some) }
    }

    /// Fails if a 404 says that an object that the request names does not exist.
    pub fn found(self) -> Result<Self, CloudError> {
        if self.status == 404 { Err(self.missing()) } else { Ok(self) }
    }

    /// Returns the error for an answer that cannot be parsed.
    pub fn malformed(&self, what: &str) -> CloudError {
        let what = one_line(what, MAX_MESSAGE);
        let message = format!("{}: cannot parse the response: {what}", self.operation);
        self.error(ErrorKind::Malformed, message)
    }

    /// Returns the error for a write whose 404 says that what it names does not exist.
    pub fn missing(&self) -> CloudError {
        let words = fault::words(&self.body);
        self.error(ErrorKind::NotFound, format!("{}: HTTP 404: {words}", self.operation))
    }

    /// Returns true if a 404 says that the object with this ID does not exist, and not another object
    /// that the request names.
    pub fn denies(&self, id: &str) -> bool {
        let words = fault::words(&self.body);
        let ends = ["not found", "could not be found"];
        self.status == 404 && ends.iter().any(|end| words.contains(&format!("{id} {end}")))
    }

    /// Returns an error about this answer.
    pub fn error(&self, kind: ErrorKind, message: impl Into<String>) -> CloudError {
        CloudError { request_id: self.request_id.clone(), ..CloudError::new(kind, message) }
    }
}

/// The outcome of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The service has accepted it.
    Accepted,
    /// The service itself says that the object does not exist.
    Gone {
        /// The service's ID of the request.
        request_id: Option<String>,
    },
}

impl Deletion {
    /// Returns the outcome that the answer to a deletion reports. An error if the services never
    /// answer like this: then it may come from something in between, and the object may still
    /// exist.
    pub fn from_answer(answer: &Answer) -> Result<Self, CloudError> {
        match answer.status {
            204 => Ok(Self::Accepted),
            404 => Ok(Self::Gone { request_id: answer.request_id.clone() }),
            status => {
                let what = format!("the answer to a deletion is HTTP {status} instead of 204");
                Err(answer.error(ErrorKind::Malformed, what).that_may_be_done())
            }
        }
    }
}
