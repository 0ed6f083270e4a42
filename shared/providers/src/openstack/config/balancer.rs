//! The settings of load balancers. No program of this build manages any; the settings
//! are read so that one file serves all programs, and a mistake in it shows early.

use std::{collections::BTreeMap, time::Duration};

use super::{notes::Notes, settings::Settings};

const BALANCER: &str = "LoadBalancer";

/// `[LoadBalancer]`. What is empty in the file is none here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadBalancer {
    /// Whether load balancers are managed.
    pub enabled: bool,
    /// Octavia's provider.
    pub provider: String,
    /// How a pool chooses its member.
    pub method: String,
    /// Networks and subnets, unless a Service chooses a class.
    pub networks: LoadBalancerClass,
    /// Those that Services may choose by name.
    pub classes: BTreeMap<String, LoadBalancerClass>,
    /// Health monitors.
    pub monitor: Monitor,
    /// Whether the nodes' security groups are opened.
    pub manage_security_groups: bool,
    /// Whether every load balancer is internal.
    pub internal: bool,
    /// Nodes that become members.
    pub node_selector: Option<String>,
    /// Whether a load balancer is deleted with its children at once.
    pub cascade_delete: bool,
    /// Octavia's flavor.
    pub flavor_id: Option<String>,
    /// Octavia's availability zone.
    pub availability_zone: Option<String>,
    /// What follows the address in a host name, where host names are shown.
    pub ingress_hostname_suffix: Option<String>,
    /// How many Services may share one load balancer.
    pub max_shared: u32,
    /// Where TLS certificates are kept.
    pub container_store: String,
    /// TLS certificate for Services that name none.
    pub default_tls_container: Option<String>,
    /// Whether children are changed one at a time.
    pub serial_calls: bool,
}

/// The networks of a load balancer, by `[LoadBalancerClass "name"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadBalancerClass {
    /// External network of the floating IP.
    pub floating_network_id: Option<String>,
    /// Subnet of the external network.
    pub floating_subnet_id: Option<String>,
    /// Pattern for the name of that subnet.
    pub floating_subnet: Option<String>,
    /// Tags of that subnet.
    pub floating_subnet_tags: Option<String>,
    /// Network of the virtual address.
    pub network_id: Option<String>,
    /// Subnet of the virtual address.
    pub subnet_id: Option<String>,
    /// Subnet of the members.
    pub member_subnet_id: Option<String>,
}

/// The health monitor of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    /// Whether there is one unless the Service says otherwise.
    pub create: bool,
    /// Time between two checks.
    pub delay: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// Good checks until ONLINE.
    pub max_retries: u32,
    /// Failed checks until ERROR.
    pub max_retries_down: u32,
}

impl LoadBalancer {
    pub(super) fn of(settings: &Settings, notes: &mut Notes) -> Self {
        let flag = |key| settings.flag(BALANCER, key);
        let given = |key| settings.given(BALANCER, key);
        let provider = settings.text(BALANCER, "lb-provider");
        let method = settings.text(BALANCER, "lb-method");
        if provider == "ovn" && method != "SOURCE_IP_PORT" {
            notes.warning(format!(
                "[{BALANCER}] lb-method: {method:?} is not what ovn offers; must be SOURCE_IP_PORT"
            ));
        }
        let classes = settings
            .classes()
            .iter()
            .map(|name| (name.clone(), LoadBalancerClass::of(|key| settings.of_class(name, key))));
        Self {
            enabled: flag("enabled"),
            provider,
            method,
            networks: LoadBalancerClass::of(given),
            classes: classes.collect(),
            monitor: Monitor::of(settings, notes),
            manage_security_groups: flag("manage-security-groups"),
            internal: flag("internal-lb"),
            node_selector: given("node-selector"),
            cascade_delete: flag("cascade-delete"),
            flavor_id: given("flavor-id"),
            availability_zone: given("availability-zone"),
            ingress_hostname_suffix: flag("enable-ingress-hostname")
                .then(|| settings.text(BALANCER, "ingress-hostname-suffix")),
            max_shared: settings.count(BALANCER, "max-shared-lb"),
            container_store: settings.text(BALANCER, "container-store"),
            default_tls_container: given("default-tls-container-ref"),
            serial_calls: flag("provider-requires-serial-api-calls"),
        }
    }
}

impl LoadBalancerClass {
    fn of(given: impl Fn(&'static str) -> Option<String>) -> Self {
        Self {
            floating_network_id: given("floating-network-id"),
            floating_subnet_id: given("floating-subnet-id"),
            floating_subnet: given("floating-subnet"),
            floating_subnet_tags: given("floating-subnet-tags"),
            network_id: given("network-id"),
            subnet_id: given("subnet-id"),
            member_subnet_id: given("member-subnet-id"),
        }
    }
}

impl Monitor {
    fn of(settings: &Settings, notes: &mut Notes) -> Self {
        let mut retries = |key| {
            let count = settings.count(BALANCER, key);
            if !(1..=10).contains(&count) {
                notes.warning(format!(
                    "[{BALANCER}] {key}: {count} is not what Octavia takes; must be from 1 to 10"
                ));
            }
            count
        };
        Self {
            max_retries: retries("monitor-max-retries"),
            max_retries_down: retries("monitor-max-retries-down"),
            create: settings.flag(BALANCER, "create-monitor"),
            delay: settings.duration(BALANCER, "monitor-delay"),
            timeout: settings.duration(BALANCER, "monitor-timeout"),
        }
    }
}
