//! What the callers of OpenStack's services see of the client.

use async_trait::async_trait;
use bytes::Bytes;
use ccm_cloud::{Call, CloudError};

/// The services that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
}

/// One request that reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get<'a> {
    /// Who is asked.
    pub service: Service,
    /// The name of the request in metrics.
    pub operation: &'static str,
    /// Below the service's base, with its query, percent-encoded.
    pub path: &'a str,
}

/// An answer of status 2xx or 404.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
    /// The service's ID of the request.
    pub request_id: Option<String>,
    /// Whether the service itself gave this answer, not something in front of it.
    pub authoritative: bool,
}

/// Sends requests. A status other than 2xx and 404 is an error.
#[async_trait]
pub(crate) trait Api: Send + Sync {
    /// Sends one request within the time of `call`.
    async fn get(&self, get: Get<'_>, call: Call) -> Result<Answer, CloudError>;
}
