//! Reads the settings: `cloud.conf`, and `clouds.yaml` if that is requested.
//!
//! ```text
//! cloud.conf -> ini -> sections (by the declared settings) -+-> [Global] -> Access (the client reads it)
//!                                                           +-> raw settings ---> Config
//! ```
//!
//! Each setting is declared once, with [`settings!`]. All errors are reported at once, in one line
//! that holds no secret. An oddity is only a warning. Nothing here sends a request to the cloud.

mod balancer;
mod foreign_words;
mod ini;
mod sections;
pub mod unmanaged;
mod values;

use std::{collections::BTreeMap, path::Path, time::Duration};

use ccm_base::Files;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_openstack_client::config::{Access, Environment, GLOBAL, Given, duration, flag, global};
use ccm_settings::{Problems, Schema as _, quoted, settings};
use ipnet::IpNet;
use zeroize::Zeroizing;

pub use self::{
    balancer::{LoadBalancer, LoadBalancerClass, LocalMonitor, METHODS},
    sections::reference,
};
use self::{
    sections::{Sections, merged},
    values::{networks, patterns, repeated, search_order},
};

/// The section whose headings have names.
const CLASSES: &str = "LoadBalancerClass";

/// How the cloud is reached, and what nodes show of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the cloud is reached.
    pub access: Access,
    /// True if provider IDs name the region.
    pub regional_ids: bool,
    /// The addresses that nodes show.
    pub networking: Networking,
    /// Node labels to set.
    pub labels: Labels,
    /// Routes to pods.
    pub route: Route,
    /// Load balancers.
    pub load_balancer: LoadBalancer,
    /// Networks and subnets of load balancers, unless a Service chooses a class.
    pub networks: LoadBalancerClass,
    /// The classes that Services may choose by name.
    pub classes: BTreeMap<String, LoadBalancerClass>,
    /// Options about load balancers that cause Services to be refused, one line each.
    pub unmanaged: Vec<String>,
}

settings! {
    /// The addresses that nodes show.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Networking {
        /// Leave IPv6 out of the nodes' addresses.
        pub ipv6_disabled: bool = fixed(Switch, "ipv6-support-disabled", "false"), flag;
        /// Name or ID of a network whose addresses count as ExternalIP. May be given several times.
        pub public_networks: Vec<String> = fixed(Repeated, "public-network-name", ""), |text: &str, _: &str| Ok(repeated(text));
        /// Name or ID of a network whose addresses count as InternalIP; then no other addresses do.
        /// May be given several times.
        pub internal_networks: Vec<String> = fixed(Repeated, "internal-network-name", ""), |text: &str, _: &str| Ok(repeated(text));
        /// Prefixes, separated by commas: addresses in the first prefix come first. An invalid
        /// prefix is ignored with a warning.
        pub sort_order: Vec<IpNet> = fixed(List, "address-sort-order", ""), |text: &str, _: &str| Ok(networks(text).0);
    } => |this, raw, problems| {
        let text = raw.value("address-sort-order").map_or("", |value| &value.text);
        for wrong in networks(text).1 {
            let what = format!("ignored {}: not a network prefix such as 10.0.0.0/8", quoted(wrong));
            raw.warn("address-sort-order", what, problems);
        }
        this
    }
}

settings! {
    /// Node labels to set.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Labels {
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
    pub struct Route {
        /// ID of the router that carries the routes to pods; without it route-ccm does not make routes.
        pub router_id: Option<String> = fixed(Text, "router-id", "");
    }
}

settings! {
    /// The metadata that servers can read about themselves.
    struct Metadata {
        /// Checked but not used: the controllers do not read a metadata service. One or two of
        /// `configDrive`, `metadataService`.
        search_order: () = fixed(List, "search-order", "configDrive,metadataService"), search_order;
        /// The older place of [Global] request-timeout.
        request_timeout: Duration = fixed(Duration, "request-timeout", "60s"), duration;
    }
}

/// The settings, and what the files that they come from give rise to.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Oddities, one line each; they name file, line, section and key.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the file of `--cloud-config` and those that it leads to. Blocks while it reads.
    /// `files` gets every file that counts: also those that are only named, certificates for
    /// example, and those that are not there but would be read if they were.
    pub fn load(path: &Path, env: &Environment, files: &mut Files) -> Result<Loaded, CloudError> {
        let text = files.text(path).map_err(|why| format!("{}: {why}", path.display()));
        text.map(Zeroizing::new)
            .and_then(|text| Self::parse(path, &text, env, files))
            .map_err(|why| CloudError::new(ErrorKind::Invalid, format!("--cloud-config {why}")))
    }

    /// Returns the settings besides credentials and certificates that differ, by their keys or
    /// sections.
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let balancer = |config: &Self| {
            let Self { load_balancer, networks, classes, .. } = config.clone();
            (load_balancer, networks, classes)
        };
        let (own, others) = (&self.access, &other.access);
        [
            (own.auth_url != others.auth_url, "auth-url"),
            (own.interface != others.interface, "os-endpoint-type"),
            (own.region != others.region, "region"),
            (self.regional_ids != other.regional_ids, "OS_CCM_REGIONAL"),
            (own.http_endpoints != others.http_endpoints, "http-endpoints"),
            (own.request_timeout != others.request_timeout, "request-timeout"),
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
    pub fn parse(
        path: &Path,
        text: &str,
        env: &Environment,
        files: &mut Files,
    ) -> Result<Loaded, String> {
        let mut problems = Problems::default();
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

    /// Converts the settings. Every problem is reported; without the entry of clouds.yaml nothing
    /// can be said about what it would give.
    fn convert(
        sections: &Sections,
        env: &Environment,
        files: &mut Files,
        problems: &mut Problems,
    ) -> Option<Self> {
        let own = sections.given(GLOBAL);
        let global = global(&own, env, files, problems)?;
        let access = Access::read(&global, files, problems);
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
        let mut access = access?;
        if regional_ids && access.region.is_none() {
            let what =
                "not set, so provider IDs do not contain it although OS_CCM_REGIONAL is true";
            global.warn("region", what, problems);
        }
        if !own.contains_key("request-timeout") {
            access.request_timeout = metadata?.request_timeout;
        }
        Some(Self {
            access,
            regional_ids,
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

#[cfg(test)]
mod tests;
