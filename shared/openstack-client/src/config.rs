//! Decides how OpenStack is reached and with which credentials.
//!
//! ```text
//! clouds.yaml, secure.yaml, clouds-public.yaml -> clouds -+
//! section [Global] of a cloud.conf -----------------------+-> raw settings -> credentials -> Access
//! ```
//!
//! Each setting is declared once, with [`settings!`]. The values of clouds.yaml are a layer below
//! `[Global]`. Nothing here sends a request to the cloud.

mod clouds;
mod credentials;
mod environment;
mod secret;
mod values;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use ccm_base::{Files, is_loopback};
#[cfg(test)]
use ccm_settings::ValueKind;
use ccm_settings::{Problems, RawSettings, RawValue, Schema as _, Setting, one_of, settings};
use strum::IntoStaticStr;
use url::Url;

use self::{clouds::CloudsFile, credentials::Login, values::url};
pub use self::{
    credentials::{ApplicationCredential, Credentials, Domain, Scope, User},
    environment::Environment,
    secret::Secret,
    values::{duration, flag, is_run_together},
};

/// The section of a `cloud.conf` that is about access.
pub const GLOBAL: &str = "Global";

/// The settings of that section.
pub const TABLES: [&[Setting]; 4] = [Reach::TABLE, Tls::TABLE, Login::TABLE, CloudsFile::TABLE];

/// The values of a section, by key.
pub type Given = BTreeMap<&'static str, RawValue>;

/// How the cloud is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The URL of Keystone, with or without `/v3`.
    pub auth_url: Url,
    /// The interface of the services' endpoints to use.
    pub interface: Interface,
    /// The region whose endpoints are used; without one, the first in the catalog.
    pub region: Option<String>,
    /// Our credentials.
    pub credentials: Credentials,
    /// Certificates.
    pub tls: Tls,
    /// True if tokens of a Keystone with TLS may be sent to endpoints without TLS.
    pub http_endpoints: bool,
    /// The longest time for one request; zero for no limit but the caller's.
    pub request_timeout: Duration,
}

/// Returns true if what is sent to this URL crosses a network without encryption.
pub fn is_in_clear(url: &Url) -> bool {
    url.scheme() == "http" && !url.host_str().is_some_and(is_loopback)
}

/// The audience of an endpoint; its name is the word in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Interface {
    /// The interface for all clients.
    Public,
    /// The interface for the cloud's own networks.
    Internal,
    /// The interface for administrators.
    Admin,
}

/// The words for them.
const INTERFACES: [(&str, Interface); 3] =
    [("public", Interface::Public), ("internal", Interface::Internal), ("admin", Interface::Admin)];

settings! {
    /// How the services are reached.
    struct Reach {
        /// The interface of the services' endpoints in the catalog to use. One of `public`,
        /// `internal`, `admin`.
        interface: Interface = fixed(Text, "os-endpoint-type", "public"), one_of(&INTERFACES);
        /// The region whose endpoints are used, and the region label of the nodes. Without a
        /// region, Nova's first endpoint and Neutron's endpoint in the same region are used, and
        /// provider IDs that name this region are ours.
        region: Option<String> = fixed(Text, "region", "");
        /// Send tokens also to endpoints whose URL in the catalog begins with http://, although
        /// auth-url begins with https://: everybody on the network path can read and use them.
        /// Without this setting, such an endpoint is refused.
        http_endpoints: bool = fixed(Switch, "http-endpoints", "false"), flag;
        /// How long one request to OpenStack may take; 0 leaves only the limit of the whole call.
        /// Takes precedence over [Metadata] request-timeout.
        request_timeout: Duration = fixed(Duration, "request-timeout", "60s"), duration;
    }
}

/// The certificates. The files are not read here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Replaces the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// True if any certificate is accepted.
    pub insecure: bool,
}

settings! {
    impl Tls {
        /// PEM file of the authorities that may sign the services' certificates, instead of the system's.
        ca_file: Option<PathBuf> = fixed(Path, "ca-file", "");
        /// Exactly true: accept any certificate. For tests only.
        insecure: String = fixed(Text, "tls-insecure", "");
        /// PEM file of our own certificate, for services that ask for one. Needs key-file.
        cert: Option<PathBuf> = fixed(Path, "cert-file", "");
        /// PEM file of the private key of cert-file.
        key: Option<PathBuf> = fixed(Path, "key-file", "");
    } => |raw, problems| {
        if !["", "true", "false"].contains(&insecure.as_str()) {
            raw.warn("tls-insecure", "only exactly true counts", problems);
        }
        if cert.is_some() != key.is_some() {
            let alone = if cert.is_some() { "cert-file" } else { "key-file" };
            raw.warn(alone, "not used: cert-file and key-file must both be set", problems);
        }
        Some(Self { ca_file, client: cert.zip(key), insecure: insecure == "true" })
    }
}

/// Returns the values of `[Global]`, merged over the defaults.
fn merged(given: &Given, problems: &mut Problems) -> RawSettings {
    let find = |setting: &Setting| Ok(given.get(setting.flag).cloned());
    let settings = TABLES.iter().copied().flatten();
    RawSettings::of_file(&format!("[{GLOBAL}] "), settings, find, problems)
}

/// Returns `[Global]` with the entry of `clouds.yaml` below it. `None` if the entry cannot be had.
pub fn global(
    own: &Given,
    env: &Environment,
    files: &mut Files,
    problems: &mut Problems,
) -> Option<RawSettings> {
    let global = merged(own, problems);
    let wanted = CloudsFile::read(&global, problems).unwrap_or_default();
    if !wanted.use_clouds {
        if wanted.file.is_some() || wanted.cloud.is_some() {
            problems.warn("[Global] cloud and clouds-file: not used without use-clouds = true");
        }
        return Some(global);
    }
    let is_insecure = own.get("tls-insecure").is_some_and(|value| *value.text == "true");
    let mut given = clouds::read(&wanted, is_insecure, env, files, problems)?;
    Login::read(&global, problems)?.keep_fitting(own, &mut given);
    given.extend(own.clone());
    Some(merged(&given, problems))
}

impl Access {
    /// Reads [`global`]. Every problem is recorded. `files` gets the certificates, which are not read.
    pub fn read(global: &RawSettings, files: &mut Files, problems: &mut Problems) -> Option<Self> {
        let auth_url = global.read("auth-url", url, problems);
        if auth_url.as_ref().is_some_and(is_in_clear) {
            let what = "the credentials and all tokens cross the network in clear; use https://";
            global.warn("auth-url", what, problems);
        }
        let reach = Reach::read(global, problems);
        let credentials = Login::read(global, problems)?.decide(problems);
        let tls = Tls::read(global, problems);
        if let Some(tls) = &tls {
            let pair = tls.client.iter().flat_map(|(cert, key)| [cert, key]);
            tls.ca_file.iter().chain(pair).for_each(|path| files.notice(path));
        }
        let reach = reach?;
        Some(Self {
            auth_url: auth_url?,
            interface: reach.interface,
            region: reach.region,
            credentials: credentials?,
            tls: tls?,
            http_endpoints: reach.http_endpoints,
            request_timeout: reach.request_timeout,
        })
    }
}

/// Access by which nothing is reached.
#[cfg(test)]
pub fn access() -> Access {
    let id = |flag, text| (flag, RawValue::at(flag, ValueKind::Text, text));
    let own = Given::from([
        id("auth-url", "http://keystone"),
        id("user-id", "u1"),
        id("tenant-id", "p1"),
        id("password", "p"),
    ]);
    let mut problems = Problems::default();
    let global = merged(&own, &mut problems);
    Access::read(&global, &mut Files::default(), &mut problems).expect("it is whole")
}
