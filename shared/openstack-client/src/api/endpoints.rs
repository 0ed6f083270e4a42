//! Finds where a service's API begins, and which of Nova's microversions the client uses.

use std::{cmp::Ordering, fmt, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError, ErrorKind};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::{
    Failure, Request, Service,
    send::{Outgoing, TOKEN, Wire},
};
use crate::text::{MAX_MESSAGE, http_url};

/// The microversion that this client reads: servers include their flavor.
const WANTED: Microversion = Microversion { major: 2, minor: 79 };
/// The first microversion with the header that all services share.
const SHARED_HEADER: Microversion = Microversion { major: 2, minor: 27 };
/// The operation's name in metrics.
pub const OPERATION: &str = "version_list";

/// A microversion of Nova, or a version of Octavia's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Microversion {
    /// The number that changes when clients must change.
    pub major: u32,
    /// The number that grows.
    pub minor: u32,
}

/// Where requests to a service go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Ends with a slash.
    pub base: Url,
    /// Nova's microversion, if Nova has any.
    pub microversion: Option<Microversion>,
}

#[derive(Deserialize)]
struct VersionDocument {
    version: Option<Version>,
    #[serde(default)]
    versions: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Version {
    #[serde(default)]
    id: String,
    /// The highest microversion.
    #[serde(rename = "version")]
    highest: Option<String>,
    #[serde(rename = "min_version")]
    lowest: Option<String>,
}

/// Asks Nova for its versions. Returns `false` if it did not report any: then the lowest is used.
pub async fn look(
    wire: &Wire,
    token: &HeaderValue,
    catalog_url: &str,
    limit: Duration,
) -> Result<(Endpoint, bool), Failure> {
    let mut base = directory(Service::Compute, catalog_url)?;
    let versioned = up_to_version(&base);
    let url = versioned.as_ref().unwrap_or(&base).to_string();
    let mut outgoing = Outgoing::new(&Request::get(Service::Compute, OPERATION, ""), url);
    outgoing.headers.insert(TOKEN, token.clone());
    let document = match wire.send(outgoing, Call::waiting(limit)).await {
        Ok(reply) => serde_json::from_slice::<VersionDocument>(&reply.body).ok(),
        Err(Failure { error, .. })
            if versioned.is_some()
                && matches!(error.kind, ErrorKind::Malformed | ErrorKind::Forbidden) =>
        {
            None
        }
        Err(failure) => return Err(failure),
    };
    let version = document.and_then(VersionDocument::newest);
    if versioned.is_none() {
        let id = version.as_ref().map_or("v2.1", |version| version.id.as_str());
        base = joined(&base, &format!("{id}/"))?;
    }
    let is_clear = version.is_some();
    let microversion = version.and_then(|version| version.chosen());
    Ok((Endpoint { base, microversion }, is_clear))
}

impl VersionDocument {
    /// Returns the version with the highest microversion.
    fn newest(self) -> Option<Version> {
        let listed =
            self.versions.into_iter().filter_map(|entry| serde_json::from_value(entry).ok());
        self.version
            .into_iter()
            .chain(listed)
            .filter(|version: &Version| is_version(&version.id))
            .max_by(|one, other| match one.highest().cmp(&other.highest()) {
                Ordering::Equal => one.id.cmp(&other.id),
                order => order,
            })
    }
}

impl Version {
    fn highest(&self) -> Option<Microversion> {
        Microversion::parse(self.highest.as_deref()?)
    }

    /// Ours, or the nearest that Nova offers.
    fn chosen(&self) -> Option<Microversion> {
        let highest = self.highest()?;
        let lowest = self.lowest.as_deref().and_then(Microversion::parse).unwrap_or(highest);
        Some(WANTED.min(highest).max(lowest.min(highest)))
    }
}

impl Microversion {
    /// Reads `2.79`, or `v2.26` as Octavia writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Returns the headers that ask for it.
    pub fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        const SHARED: HeaderName = HeaderName::from_static("openstack-api-version");
        const OLD: HeaderName = HeaderName::from_static("x-openstack-nova-api-version");
        let mut headers = Vec::new();
        headers.extend(HeaderValue::try_from(format!("compute {self}")).map(|v| (SHARED, v)));
        if self < SHARED_HEADER {
            headers.extend(HeaderValue::try_from(self.to_string()).map(|value| (OLD, value)));
        }
        headers
    }
}

impl fmt::Display for Microversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns Neutron's base: version 2.0 below its URL in the catalog, unless that has it.
pub fn network(catalog_url: &str) -> Result<Url, CloudError> {
    let base = directory(Service::Network, catalog_url)?;
    if up_to_version(&base).is_some() { Ok(base) } else { joined(&base, "v2.0/") }
}

/// Returns Octavia's base: its URL in the catalog, without a version. Its versions are at this URL,
/// and everything else is in `v2.0/lbaas` below it.
pub fn load_balancer(catalog_url: &str) -> Result<Url, CloudError> {
    let base = directory(Service::LoadBalancer, catalog_url)?;
    up_to_version(&base).map_or(Ok(base), |versioned| joined(&versioned, "../"))
}

/// Returns Keystone's base: version 3 below `auth-url`, unless that has it.
pub fn identity(auth_url: &Url) -> Result<Url, CloudError> {
    let base = directory(Service::Identity, auth_url.as_str())?;
    match up_to_version(&base) {
        None => joined(&base, "v3/"),
        Some(base) if base.path().ends_with("/v3/") => Ok(base),
        Some(_) => {
            let why = format!(
                "auth-url: {auth_url} is of a version that is not supported: name version 3, or no version"
            );
            Err(CloudError::new(ErrorKind::Invalid, why))
        }
    }
}

/// Returns the URL of the catalog, ending with a slash.
fn directory(service: Service, text: &str) -> Result<Url, CloudError> {
    let url =
        http_url(text).filter(|url| url.has_host() && !text.contains("%(") && !text.contains("$("));
    let Some(mut url) = url else {
        return Err(CloudError::new(
            ErrorKind::Malformed,
            format!(
                "the URL of {} is not an http URL: {:?}",
                service.name(),
                one_line(text, MAX_MESSAGE)
            ),
        ));
    };
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// Returns the URL cut after its first version, if it has one.
fn up_to_version(url: &Url) -> Option<Url> {
    let segments: Vec<&str> = url.path().split('/').collect();
    let at = segments.iter().position(|segment| is_version(segment))?;
    let mut cut = url.clone();
    cut.set_path(&format!("{}/", segments.get(..=at)?.join("/")));
    Some(cut)
}

/// Returns true for `v3`, `v2.1` and such.
fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v').unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.len() <= 8
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn joined(base: &Url, path: &str) -> Result<Url, CloudError> {
    base.join(path).map_err(|error| {
        CloudError::new(ErrorKind::Malformed, format!("{base} and {path}: {error}"))
    })
}

#[cfg(test)]
mod tests;
