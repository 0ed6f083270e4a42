//! The settings: `cloud.conf`, and `clouds.yaml` where that is wanted.
//!
//! ```text
//! cloud.conf -> ini -> sections (by the declared settings) -+-> raw settings -> Config
//! clouds.yaml, secure.yaml, clouds-public.yaml -> clouds ---+   credentials: one way to log in
//! ```
//!
//! Each setting is declared once, with [`settings!`]; what clouds.yaml gives is a layer below
//! `[Global]`. Everything that is wrong is reported at once, in one line that holds no secret;
//! what is merely odd is a warning. Nothing here asks the cloud.

mod balancer;
mod clouds;
mod credentials;
mod environment;
mod foreign_words;
mod ini;
mod secret;
mod sections;
pub(crate) mod unmanaged;
mod values;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use ccm_base::{Files, is_loopback};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_settings::{Problems, RawSettings, Schema as _, one_of, quoted, settings};
use ipnet::IpNet;
use strum::IntoStaticStr;
use url::Url;
use zeroize::Zeroizing;

pub use self::sections::reference;
pub(crate) use self::{
    balancer::{LoadBalancer, LoadBalancerClass, LocalMonitor},
    credentials::{ApplicationCredential, Credentials, Domain, Scope, User},
    environment::Environment,
    secret::Secret,
};
use self::{
    clouds::Wanted,
    credentials::Login,
    sections::{CLASSES, GLOBAL, Given, Sections, merged},
    values::{duration, flag, networks, patterns, repeated, search_order, url},
};

/// True if what is sent to this URL crosses a network without encryption.
pub(crate) fn is_in_clear(url: &Url) -> bool {
    url.scheme() == "http" && !url.host_str().is_some_and(is_loopback)
}

/// How the cloud is reached and what nodes show of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Keystone, with or without `/v3`.
    pub auth_url: Url,
    /// Which of a service's endpoints are used.
    pub interface: Interface,
    /// The region whose endpoints are used; without one, the first in the catalog.
    pub region: Option<String>,
    /// Whether provider IDs name the region.
    pub regional_ids: bool,
    /// Who we are.
    pub credentials: Credentials,
    /// Certificates.
    pub tls: Tls,
    /// True if tokens of a Keystone with TLS may be sent to endpoints without TLS.
    pub http_endpoints: bool,
    /// The longest time for one request; zero for no limit but the caller's.
    pub request_timeout: Duration,
    /// Which addresses nodes show.
    pub networking: Networking,
    /// Which labels nodes get.
    pub labels: Labels,
    /// Routes to pods.
    pub route: Route,
    /// Load balancers.
    pub load_balancer: LoadBalancer,
    /// Networks and subnets of load balancers, unless a Service chooses a class.
    pub networks: LoadBalancerClass,
    /// Those that Services may choose by name.
    pub classes: BTreeMap<String, LoadBalancerClass>,
    /// What is asked of load balancers and makes Services be refused, a line each.
    pub unmanaged: Vec<String>,
}

/// The audience of an endpoint; its name is the word in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Interface {
    /// For all clients.
    Public,
    /// For the cloud's own networks.
    Internal,
    /// For administrators.
    Admin,
}

/// The words for them.
const INTERFACES: [(&str, Interface); 3] =
    [("public", Interface::Public), ("internal", Interface::Internal), ("admin", Interface::Admin)];

settings! {
    /// How the services are reached.
    struct Access {
        /// Which of a service's endpoints in the catalog are used. One of `public`, `internal`, `admin`.
        interface: Interface = fixed(Text, "os-endpoint-type", "public"), one_of(&INTERFACES);
        /// The region whose endpoints are used, and the region label of the nodes. Without one Nova's first endpoint is
        /// used and Neutron's in its region, and the provider IDs that name that region are ours.
        region: Option<String> = fixed(Text, "region", "");
        /// Send tokens also to endpoints whose URL in the catalog begins with http://, although auth-url begins with
        /// https://: everybody on the way can read and use them. Without it such an endpoint is refused.
        http_endpoints: bool = fixed(Switch, "http-endpoints", "false"), flag;
        /// How long one request to OpenStack may take; 0 leaves only the limit of the whole call. Goes before
        /// [Metadata] request-timeout.
        request_timeout: Duration = fixed(Duration, "request-timeout", "60s"), duration;
    }
}

/// Certificates. The files are not read here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Replaces the roots of the system.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is accepted.
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

settings! {
    /// Which addresses nodes show.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Networking {
        /// Leave IPv6 out of the nodes' addresses.
        pub ipv6_disabled: bool = fixed(Switch, "ipv6-support-disabled", "false"), flag;
        /// Name or ID of a network whose addresses count as ExternalIP. May be given several times.
        pub public_networks: Vec<String> = fixed(Repeated, "public-network-name", ""), |text: &str, _: &str| Ok(repeated(text));
        /// Name or ID of a network whose addresses count as InternalIP; then no others do. May be given several times.
        pub internal_networks: Vec<String> = fixed(Repeated, "internal-network-name", ""), |text: &str, _: &str| Ok(repeated(text));
        /// Prefixes, separated by commas: addresses in the first come first. What is no prefix is left out with a
        /// warning.
        pub sort_order: Vec<IpNet> = fixed(List, "address-sort-order", ""), |text: &str, _: &str| Ok(networks(text).0);
    } => |this, raw, problems| {
        let text = raw.value("address-sort-order").map_or("", |value| &value.text);
        for wrong in networks(text).1 {
            let what = format!("left out {}: no network prefix such as 10.0.0.0/8", quoted(wrong));
            raw.warn("address-sort-order", what, problems);
        }
        this
    }
}

settings! {
    /// Which labels nodes get.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Labels {
        /// Keys of the server's metadata that become labels of the node, under openstack.quartet.dev/. Separated by
        /// commas; team-* stands for every key that begins with team-.
        pub metadata: Vec<String> = fixed(List, "metadata", ""), patterns;
        /// Label nodes with the ID of the hypervisor, as this project sees it.
        pub host_id: bool = fixed(Switch, "host-id", "false"), flag;
        /// Label nodes with the ID of the server's flavor.
        pub flavor_id: bool = fixed(Switch, "flavor-id", "false"), flag;
    }
}

settings! {
    /// Routes to pods.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Route {
        /// ID of the router that carries the routes to pods; without one there are none.
        pub router_id: Option<String> = fixed(Text, "router-id", "");
    }
}

settings! {
    /// What servers can be told about themselves.
    struct Metadata {
        /// Checked and not used: the controllers read no metadata service. One or two of `configDrive`,
        /// `metadataService`.
        search_order: () = fixed(List, "search-order", "configDrive,metadataService"), search_order;
        /// The older place of [Global] request-timeout.
        request_timeout: Duration = fixed(Duration, "request-timeout", "60s"), duration;
    }
}

/// The settings, and what the files that they come from give rise to.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub config: Config,
    /// What is odd, a line each; they name file, line, section and key.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the file of `--cloud-config` and those that it leads to. Blocks while it reads.
    /// `files` gets every file that counts: also those that are only named, certificates for
    /// example, and those that are not there but would be read if they were.
    pub(crate) fn load(
        path: &Path,
        env: &Environment,
        files: &mut Files,
    ) -> Result<Loaded, CloudError> {
        let text = files.text(path).map_err(|why| format!("{}: {why}", path.display()));
        text.map(Zeroizing::new)
            .and_then(|text| Self::parse(path, &text, env, files))
            .map_err(|why| CloudError::new(ErrorKind::Invalid, format!("--cloud-config {why}")))
    }

    /// The settings besides credentials and certificates that differ, by their keys or sections.
    pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let balancer = |config: &Self| {
            let Self { load_balancer, networks, classes, .. } = config.clone();
            (load_balancer, networks, classes)
        };
        [
            (self.auth_url != other.auth_url, "auth-url"),
            (self.interface != other.interface, "os-endpoint-type"),
            (self.region != other.region, "region"),
            (self.regional_ids != other.regional_ids, "OS_CCM_REGIONAL"),
            (self.http_endpoints != other.http_endpoints, "http-endpoints"),
            (self.request_timeout != other.request_timeout, "request-timeout"),
            (self.networking != other.networking, "[Networking]"),
            (self.labels != other.labels, "[Labels]"),
            (self.route != other.route, "[Route]"),
            (balancer(self) != balancer(other), "[LoadBalancer]"),
        ]
        .into_iter()
        .filter_map(|(differs, name)| differs.then_some(name))
        .collect()
    }

    /// Reads the text of the file at `path`, and the files that it leads to.
    pub(crate) fn parse(
        path: &Path,
        text: &str,
        env: &Environment,
        files: &mut Files,
    ) -> Result<Loaded, String> {
        let mut problems = Problems::new();
        let folder = path.parent().unwrap_or(Path::new(""));
        let resolve = |text: &str| env.resolved(text, folder);
        let sections = Sections::read(text, &resolve, &mut problems);
        let config = Self::convert(&sections, env, files, &mut problems);
        let path = path.display();
        match config {
            Some(mut config) if problems.is_empty() => {
                let with_path = |what: &String| format!("{path}: {what}");
                config.unmanaged = config.unmanaged.iter().map(with_path).collect();
                let warnings = problems.warnings().iter().map(with_path).collect();
                Ok(Loaded { config, warnings })
            }
            _ => Err(format!("{path}: {}", problems.in_one_line())),
        }
    }

    /// Every problem is reported; without the entry of clouds.yaml nothing can be said about what
    /// it would give.
    fn convert(
        sections: &Sections,
        env: &Environment,
        files: &mut Files,
        problems: &mut Problems,
    ) -> Option<Self> {
        let own = sections.given(GLOBAL);
        let global = global(&own, env, files, problems)?;
        let auth_url = global.read("auth-url", url, problems);
        if auth_url.as_ref().is_some_and(is_in_clear) {
            let what = "the credentials and all tokens cross the network in clear; use https://";
            global.warn("auth-url", what, problems);
        }
        let access = Access::read(&global, problems);
        let credentials = Login::read(&global, problems)?.decide(problems);
        let tls = Tls::read(&global, problems);
        let networking = sections.typed("Networking", problems);
        let labels = sections.typed("Labels", problems);
        let route = sections.typed("Route", problems);
        let metadata: Option<Metadata> = sections.typed("Metadata", problems);
        let load_balancer = sections.typed("LoadBalancer", problems);
        let networks = sections.typed("LoadBalancer", problems);
        let mut class = |(name, given): (&str, &Given)| {
            let raw = merged(CLASSES, given, problems);
            Some((name.to_owned(), LoadBalancerClass::read(&raw, problems)?))
        };
        let classes = sections.classes().filter_map(&mut class).collect();
        let regional_ids = env.variable("OS_CCM_REGIONAL") == Some("true");
        if let Some(tls) = &tls {
            let pair = tls.client.iter().flat_map(|(cert, key)| [cert, key]);
            tls.ca_file.iter().chain(pair).for_each(|path| files.notice(path));
        }
        let access = access?;
        if regional_ids && access.region.is_none() {
            let what = "not set, so provider IDs have none although OS_CCM_REGIONAL is true";
            global.warn("region", what, problems);
        }
        let request_timeout = match own.contains_key("request-timeout") {
            true => access.request_timeout,
            false => metadata?.request_timeout,
        };
        Some(Self {
            auth_url: auth_url?,
            interface: access.interface,
            region: access.region,
            regional_ids,
            credentials: credentials?,
            tls: tls?,
            http_endpoints: access.http_endpoints,
            request_timeout,
            networking: networking?,
            labels: labels?,
            route: route?,
            load_balancer: load_balancer?,
            networks: networks?,
            classes,
            unmanaged: unmanaged::warn(sections, problems),
        })
    }
}

/// `[Global]` with the entry of `clouds.yaml` below it. None if the entry cannot be had.
fn global(
    own: &Given,
    env: &Environment,
    files: &mut Files,
    problems: &mut Problems,
) -> Option<RawSettings> {
    let global = merged(GLOBAL, own, problems);
    let wanted = Wanted::read(&global, problems).unwrap_or_default();
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
    Some(merged(GLOBAL, &given, problems))
}

#[cfg(test)]
mod tests;
