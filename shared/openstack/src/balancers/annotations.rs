//! Reads, types and checks the annotations of a Service, with the options that replace missing
//! annotations. Names, meaning and defaults are the same as in openstack-cloud-controller-manager.
//! Pure.
//!
//! Some wrong values (numbers, yes and no) count as the default in
//! openstack-cloud-controller-manager. They do so here as well, with a remark, so that a load
//! balancer that works continues to work. A request that no load balancer can meet is an error.

mod reading;
pub mod selector;
mod unknown;

use std::{collections::BTreeMap, fmt};

use ccm_cloud::{CloudError, Note, Traffic};

use self::reading::Reading;
pub use self::selector::Selector;
use crate::config::{Config, LoadBalancer, unmanaged};

/// The prefix of the annotations.
pub const PREFIX: &str = "loadbalancer.openstack.org/";
/// The prefix of the annotations that are older than [`PREFIX`].
pub const OLD_PREFIX: &str = "service.beta.kubernetes.io/openstack-";
/// The annotation for an internal load balancer. No other annotation with [`OLD_PREFIX`] is known.
pub const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
/// The annotation with the ID, which the provider writes.
pub const ID: &str = "loadbalancer.openstack.org/load-balancer-id";
/// The annotation with the published address, which the provider writes.
pub const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

/// The annotations below the prefix that have a meaning.
pub const KNOWN: [&str; 33] = [
    "availability-zone",
    "class",
    "connection-limit",
    "default-tls-container-ref",
    "enable-health-monitor",
    "flavor-id",
    "floating-network-id",
    "floating-subnet",
    "floating-subnet-id",
    "floating-subnet-tags",
    "health-monitor-delay",
    "health-monitor-max-retries",
    "health-monitor-max-retries-down",
    "health-monitor-timeout",
    "hostname",
    "keep-floatingip",
    "lb-method",
    "listener-tags",
    "load-balancer-address",
    "load-balancer-id",
    "load-balancer-tags",
    "member-subnet-id",
    "network-id",
    "node-selector",
    "pool-tags",
    "port-id",
    "proxy-protocol",
    "subnet-id",
    "timeout-client-data",
    "timeout-member-connect",
    "timeout-member-data",
    "timeout-tcp-inspect",
    "x-forwarded-for",
];

/// Returns a remark that a user should act on.
pub fn remark(reason: &str, message: impl Into<String>) -> Note {
    Note { reason: reason.to_owned(), message: message.into(), warning: true }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The annotation of this key.
    Annotation(String),
    /// An option of the class that the Service chooses.
    Class(String, &'static str),
    /// An option of `[LoadBalancer]`.
    Option(&'static str),
    /// A field of the Service.
    Field(&'static str),
    /// The external network that was found.
    Found,
}

impl Source {
    /// Returns the annotation of this name.
    fn annotation(name: &str) -> Self {
        Self::Annotation(format!("{PREFIX}{name}"))
    }

    pub fn is_annotation(&self) -> bool {
        matches!(self, Self::Annotation(_))
    }

    /// Returns true if the Service asks for it, by an annotation or by its class: not a global
    /// option.
    pub fn is_of_service(&self) -> bool {
        !matches!(self, Self::Option(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Class(name, key) => write!(f, "[LoadBalancerClass {name:?}] {key}"),
            Self::Option(key) => write!(f, "[LoadBalancer] {key}"),
            Self::Field(path) => f.write_str(path),
            Self::Found => f.write_str("the external network that was found"),
        }
    }
}

/// A value, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The value; not empty.
    pub value: String,
    pub source: Source,
}

/// The PROXY protocol between load balancer and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    V1,
    V2,
}

/// The settings of the checks of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The delay in seconds. The time-out is in seconds, too.
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u32,
    pub max_retries_down: u32,
}

/// The settings of the checks of a Service with local traffic that does not set
/// `enable-health-monitor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalChecks {
    pub checks: Checks,
    /// True if existing load balancers get monitors too, a few at a time.
    pub for_all: bool,
}

/// Time limits of a listener, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub client_data: i64,
    pub member_connect: i64,
    pub member_data: i64,
    pub tcp_inspect: i64,
}

/// A floating network: a named one, or the one that should be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FloatingNetwork {
    /// This network.
    Named(Given),
    /// The first external one with room for IPv4.
    Found,
    /// No floating network, because this is set to an empty value.
    Refused(Source),
}

/// The networks of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks {
    pub port: Option<Given>,
    pub network: Option<Given>,
    pub subnet: Option<Given>,
    pub member_subnet: Option<Given>,
    pub floating: FloatingNetwork,
    pub floating_subnet: Option<Given>,
    /// The pattern or the tags that choose the floating subnet instead of an ID.
    pub floating_patterns: Vec<Given>,
}

/// Tags that a user adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    pub balancer: Vec<String>,
    pub listener: Vec<String>,
    pub pool: Vec<String>,
}

/// The configuration that annotations and options ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub internal: bool,
    /// The host name that the status should show instead of an address.
    pub hostname: Option<String>,
    pub networks: Networks,
    pub keep_floating: bool,
    pub connection_limit: i64,
    pub proxy: Option<Proxy>,
    pub forwarded_for: bool,
    /// A certificate for TLS.
    pub tls: Option<Given>,
    pub method: Given,
    pub timeouts: Timeouts,
    pub checks: Option<Checks>,
    /// Set only for Services with local traffic.
    pub local_checks: Option<LocalChecks>,
    pub flavor: Option<Given>,
    pub zone: Option<Given>,
    pub selector: Selector,
    pub tags: Tags,
    /// The settings that a new load balancer cannot have yet, one line each.
    pub unmanaged: Vec<Given>,
    /// An annotation that seems to ask for an internal load balancer and cannot be read, because its
    /// key or its value is misspelt, and what would be right.
    pub misspelt_internal: Option<Given>,
    pub notes: Vec<Note>,
}

/// Reads the annotations. Fails with [`ErrorKind::Invalid`](ccm_cloud::ErrorKind::Invalid), which
/// names all that is wrong.
pub fn read(
    annotations: &BTreeMap<String, String>,
    options: &Config,
    traffic: Traffic,
) -> Result<Settings, CloudError> {
    let mut reading = Reading::new(annotations, options);
    let config = &options.load_balancer;
    let internal = config.internal || reading.flag_of(INTERNAL, false);
    let networks = reading.networks(internal);
    let unmanaged = unmanaged(&reading, config, &networks);
    let settings = Settings {
        internal,
        hostname: reading.hostname(),
        networks,
        keep_floating: reading.flag("keep-floatingip", false),
        connection_limit: reading.number("connection-limit", -1, -1..=i64::from(i32::MAX), false),
        proxy: reading.proxy(),
        forwarded_for: reading.flag("x-forwarded-for", false),
        tls: reading.given("default-tls-container-ref", config.default_tls_container.as_ref()),
        method: reading.method(),
        timeouts: reading.timeouts(),
        checks: reading.checks(),
        local_checks: match traffic {
            Traffic::Local { .. } => reading.local_checks(),
            Traffic::Cluster => None,
        },
        flavor: reading.given("flavor-id", config.flavor_id.as_ref()),
        zone: reading.given("availability-zone", config.availability_zone.as_ref()),
        selector: selector(annotations, options),
        tags: Tags {
            balancer: reading.tags("load-balancer-tags"),
            listener: reading.tags("listener-tags"),
            pool: reading.tags("pool-tags"),
        },
        unmanaged,
        misspelt_internal: None,
        notes: Vec::new(),
    };
    reading.selector();
    if settings.proxy.is_some() && settings.forwarded_for {
        let what = "excludes x-forwarded-for: choose one of the two".to_owned();
        reading.problem("proxy-protocol", what);
    }
    let misspelt_internal = reading.unknown().or_else(|| reading.unreadable_internal());
    let misspelt_internal = misspelt_internal.filter(|_| !settings.internal);
    let notes = reading.done()?;
    Ok(Settings { misspelt_internal, notes, ..settings })
}

/// Returns the nodes that may be members; also read while other annotations are wrong. An
/// annotation that selects by no labels is ignored: it would leave no member.
pub fn selector(annotations: &BTreeMap<String, String>, options: &Config) -> Selector {
    let annotation = annotations.get(&format!("{PREFIX}node-selector"));
    let annotation = annotation.filter(|text| selector::is_valid(text));
    let text = annotation.or(options.load_balancer.node_selector.as_ref());
    Selector::parse(text.map_or("", String::as_str))
}

/// Returns the subnet that annotation or option gives to new members; also read while other
/// annotations are wrong.
pub fn member_subnet(annotations: &BTreeMap<String, String>, options: &Config) -> Option<Given> {
    Reading::new(annotations, options).networks(false).members(options)
}

/// Returns true if the floating IP outlives its load balancer.
pub fn keeps_floating(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(&format!("{PREFIX}keep-floatingip")).is_some_and(|text| text.trim() == "true")
}

impl Networks {
    /// Returns the subnet of the members, as far as it is given.
    pub fn members(&self, options: &Config) -> Option<Given> {
        let of_options = || {
            let value = options.networks.subnet_id.clone()?;
            Some(Given { value, source: Source::Option("subnet-id") })
        };
        self.member_subnet.clone().or_else(of_options).or_else(|| self.subnet.clone())
    }
}

/// Returns the requested settings that are not managed yet.
fn unmanaged(reading: &Reading<'_>, config: &LoadBalancer, networks: &Networks) -> Vec<Given> {
    let mut all = Vec::new();
    let mut add = |source: Source, what: &str| {
        all.push(Given { value: what.to_owned(), source });
    };
    if config.manage_security_groups {
        add(Source::Option("manage-security-groups"), unmanaged::SECURITY_GROUPS);
    }
    if config.serial_calls {
        add(Source::Option("provider-requires-serial-api-calls"), unmanaged::SERIAL_CALLS);
    }
    if let Some(tls) =
        reading.given("default-tls-container-ref", config.default_tls_container.as_ref())
    {
        add(tls.source, unmanaged::TLS);
    }
    for Given { source, .. } in &networks.floating_patterns {
        add(source.clone(), unmanaged::PATTERNS);
    }
    all
}

/// All lines about these annotations, for tests with random input.
#[cfg(any(test, feature = "fuzz"))]
pub fn lines_about(
    annotations: &BTreeMap<String, String>,
    options: &Config,
    traffic: Traffic,
) -> Result<Vec<String>, CloudError> {
    let others = (selector(annotations, options), keeps_floating(annotations));
    let subnet = member_subnet(annotations, options);
    let Settings { unmanaged, notes, .. } = read(annotations, options, traffic)?;
    drop(others);
    let given = unmanaged.into_iter().chain(subnet).map(|given| given.source.to_string());
    Ok(given.chain(notes.into_iter().map(|note| note.message)).collect())
}

#[cfg(test)]
mod tests;
