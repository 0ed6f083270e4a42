//! Where a service's API begins, and which of Nova's microversions is spoken.
//!
//! Only Nova's version document is requested, once per process and catalog URL; the result
//! survives new logins. After a connection failure, or an answer that was not Nova's, it is
//! requested again, at most once a minute; until then the earlier result stays in use. At most
//! one discovery runs at a time, and it outlives a caller whose time is over.

use std::{cmp::Ordering, fmt, sync::Arc, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError, ErrorKind};
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::{
    client::{Failure, Outgoing, Service, TOKEN, Wire},
    session::Token,
    single_flight::{Pending, SingleFlight},
    text::MAX_MESSAGE,
};

/// The microversion that this client reads: servers include their flavor.
const WANTED: Microversion = Microversion { major: 2, minor: 79 };
/// The first microversion with the header that all services share.
const SHARED_HEADER: Microversion = Microversion { major: 2, minor: 27 };
/// The interval of discovery while the result is in doubt.
const AGAIN: Duration = Duration::from_mins(1);
/// The wait after a failed discovery, unless Nova sends `Retry-After`.
const PAUSE: Duration = Duration::from_secs(1);
/// The operation's name in metrics.
const OPERATION: &str = "version_list";
/// The time limit of one discovery.
const LOOK: Duration = Duration::from_secs(30);

/// One of Nova's microversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Microversion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Where requests to a service go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Ends with a slash.
    pub(crate) base: Url,
    /// Nova's, if it has any.
    pub(crate) microversion: Option<Microversion>,
}

/// The known endpoint of Nova. One per configuration.
pub(crate) struct Discovery {
    wire: Arc<Wire>,
    known: Mutex<Option<Known>>,
    looks: SingleFlight<Option<Refused>>,
}

/// The token of this login was refused.
#[derive(Clone)]
struct Refused {
    generation: u64,
    failure: Failure,
}

struct Known {
    catalog_url: String,
    endpoint: Endpoint,
    at: Instant,
    doubtful: bool,
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

impl Discovery {
    /// Nothing is known yet.
    pub(crate) fn new(wire: Arc<Wire>) -> Arc<Self> {
        let looks = SingleFlight::new(format!("{} {OPERATION}", Service::Compute.name()));
        Arc::new(Self { wire, known: Mutex::default(), looks })
    }

    /// Where Nova is, by its URL in the catalog.
    pub(crate) async fn compute(
        self: &Arc<Self>,
        token: &Arc<Token>,
        catalog_url: &str,
        call: Call,
    ) -> Result<Endpoint, Failure> {
        loop {
            if let Some((endpoint, doubtful)) = self.known(catalog_url) {
                if doubtful {
                    // The call does not wait for it.
                    self.look(token, catalog_url).ok();
                }
                return Ok(endpoint);
            }
            let look = self.look(token, catalog_url)?;
            match self.looks.wait(look, call).await? {
                // The rejection of an older token says nothing about this one.
                Some(refused) if refused.generation >= token.generation => {
                    return Err(refused.failure);
                }
                // The catalog's URL may have changed since the discovery began.
                _ => {}
            }
        }
    }

    /// Starts a discovery, unless one is running.
    fn look(
        self: &Arc<Self>,
        token: &Arc<Token>,
        catalog_url: &str,
    ) -> Result<Pending<Option<Refused>>, Failure> {
        self.looks.join(|| {
            let (discovery, token) = (Arc::clone(self), Arc::clone(token));
            let catalog_url = catalog_url.to_owned();
            async move {
                match look(&discovery.wire, &token, &catalog_url).await {
                    // It says nothing about Nova, and the next token is there soon.
                    Err(failure) if failure.error.kind == ErrorKind::Unauthorized => {
                        Ok(Some(Refused { generation: token.generation, failure }))
                    }
                    found => discovery.keep(catalog_url, found).map(|()| None),
                }
            }
        })
    }

    fn keep(
        &self,
        catalog_url: String,
        found: Result<(Endpoint, bool), Failure>,
    ) -> Result<(), Failure> {
        let at = Instant::now();
        let is_vague = !matches!(found, Ok((_, false)));
        let mut known = self.known.lock();
        // The earlier result is better than a failure or the answer of a maintenance page.
        if let Some(before) = known.as_mut().filter(|known| known.catalog_url == catalog_url)
            && is_vague
        {
            before.at = at;
            return Ok(());
        }
        let (endpoint, doubtful) = found.map_err(|failure| {
            let holds = failure.error.retry_after.unwrap_or(PAUSE);
            Failure { holds, ..failure }
        })?;
        if doubtful {
            let url = &endpoint.base;
            tracing::warn!(%url, "Nova does not tell its versions; its lowest microversion is used");
        }
        *known = Some(Known { catalog_url, endpoint, at, doubtful });
        Ok(())
    }

    /// Cancels a running discovery: its result is not needed any more.
    pub(crate) fn retire(&self) {
        self.looks.abort();
    }

    /// The microversion in use, once it is known.
    pub(crate) fn microversion(&self) -> Option<Microversion> {
        self.known.lock().as_ref()?.endpoint.microversion
    }

    /// Nova could not be reached, or something else answered.
    pub(crate) fn doubt(&self) {
        if let Some(known) = &mut *self.known.lock() {
            known.doubtful = true;
        }
    }

    /// The last result, and whether to request it again.
    fn known(&self, catalog_url: &str) -> Option<(Endpoint, bool)> {
        let known = self.known.lock();
        let known = known.as_ref().filter(|known| known.catalog_url == catalog_url)?;
        Some((known.endpoint.clone(), known.doubtful && known.at.elapsed() >= AGAIN))
    }
}

/// Asks Nova for its versions. `true` says that it gave none: the lowest is spoken,
/// and it is asked again later.
async fn look(wire: &Wire, token: &Token, catalog_url: &str) -> Result<(Endpoint, bool), Failure> {
    let mut base = directory(Service::Compute, catalog_url)?;
    let versioned = up_to_version(&base);
    let url = versioned.as_ref().unwrap_or(&base).to_string();
    let mut outgoing = Outgoing::get(Service::Compute, OPERATION, url);
    outgoing.headers.insert(TOKEN, token.value.clone());
    let document = match wire.send(outgoing, Call::waiting(LOOK)).await {
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
        base = below(base, id)?;
    }
    let doubtful = version.is_none();
    let microversion = version.and_then(|version| version.chosen());
    Ok((Endpoint { base, microversion }, doubtful))
}

impl VersionDocument {
    /// The version with the highest microversion.
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
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The headers that ask for it.
    pub(crate) fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
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

/// Neutron's base: version 2.0 below its URL in the catalog, unless that has it.
pub(crate) fn network(catalog_url: &str) -> Result<Endpoint, CloudError> {
    let base = directory(Service::Network, catalog_url)?;
    let base = match up_to_version(&base) {
        Some(_) => base,
        None => below(base, "v2.0")?,
    };
    Ok(Endpoint { base, microversion: None })
}

/// Keystone's base: version 3 below `auth-url`, unless that has it.
pub(crate) fn identity(auth_url: &Url) -> Result<Url, CloudError> {
    let base = directory(Service::Identity, auth_url.as_str())?;
    match up_to_version(&base) {
        None => below(base, "v3"),
        Some(base) if base.path().ends_with("/v3/") => Ok(base),
        Some(_) => {
            let why = format!(
                "auth-url: {auth_url} is of a version that is not supported: name version 3, or none"
            );
            Err(CloudError::new(ErrorKind::Invalid, why))
        }
    }
}

/// The URL of the catalog, ending with a slash.
fn directory(service: Service, text: &str) -> Result<Url, CloudError> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && !text.contains("%(")
            && !text.contains("$(")
    });
    let Some(mut url) = url else {
        return Err(CloudError::new(
            ErrorKind::Malformed,
            format!(
                "the URL of {} is no http URL: {:?}",
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

/// The URL cut after its first version, if it has one.
fn up_to_version(url: &Url) -> Option<Url> {
    let segments: Vec<&str> = url.path().split('/').collect();
    let at = segments.iter().position(|segment| is_version(segment))?;
    let mut cut = url.clone();
    cut.set_path(&format!("{}/", segments.get(..=at)?.join("/")));
    Some(cut)
}

/// `v3`, `v2.1` and such.
fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v').unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.len() <= 8
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn below(base: Url, version: &str) -> Result<Url, CloudError> {
    base.join(&format!("{version}/")).map_err(|error| {
        CloudError::new(ErrorKind::Malformed, format!("{base} and {version}: {error}"))
    })
}

#[cfg(test)]
mod tests;
