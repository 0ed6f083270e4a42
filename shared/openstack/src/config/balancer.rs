//! The settings of load balancers, with the names and defaults of
//! openstack-cloud-controller-manager.

use std::time::Duration;

use ccm_openstack_client::config::{duration, flag};
use ccm_settings::{one_of, quoted, settings};

const PROVIDERS: [&str; 5] = ["amphora", "octavia", "ovn", "f5", "amphorav2"];
/// Octavia's algorithms.
pub const METHODS: [&str; 4] = ["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"];
const STORES: [&str; 2] = ["barbican", "external"];

const LOCAL: [(&str, LocalMonitor); 3] =
    [("changed", LocalMonitor::Changed), ("all", LocalMonitor::All), ("none", LocalMonitor::None)];

/// The Services with local traffic to which the provider adds health monitors on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalMonitor {
    /// New Services, and Services that change.
    Changed,
    /// All Services. Existing load balancers get monitors a few at a time.
    All,
    /// No Services.
    None,
}

settings! {
    /// `[LoadBalancer]`. An empty value in the file counts as absent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LoadBalancer {
        /// Manage load balancers.
        pub enabled: bool = fixed(Switch, "enabled", "true"), flag;
        /// Version of the load balancer API. Only `v2`.
        pub version: () = fixed(Text, "lb-version", ""), one_of(&[("", ()), ("v2", ())]);
        /// Octavia's provider. Known are `amphora`, `octavia`, `ovn`, `f5`, `amphorav2`.
        pub provider: String = fixed(Text, "lb-provider", "amphora");
        /// How a pool chooses its member; ovn needs SOURCE_IP_PORT, which amphora does not have.
        /// Known are `ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP`, `SOURCE_IP_PORT`.
        pub method: String = fixed(Text, "lb-method", "ROUND_ROBIN");
        /// Give pools health monitors unless their Service says otherwise.
        pub create_monitor: bool = fixed(Switch, "create-monitor", "false"), flag;
        /// The Services with externalTrafficPolicy Local that get health monitors at their health
        /// check port unless they or create-monitor say otherwise: new or `changed` ones, `all`
        /// (existing ones a few at a time), or `none`.
        pub local_monitor: LocalMonitor = fixed(Text, "local-monitor", "changed"), one_of(&LOCAL);
        /// Time between two checks of a member, in whole seconds.
        pub monitor_delay: Duration = fixed(Duration, "monitor-delay", "5s"), duration;
        /// How long one check may take, in whole seconds.
        pub monitor_timeout: Duration = fixed(Duration, "monitor-timeout", "3s"), duration;
        /// Number of good checks after which a member is ONLINE, 1 to 10.
        pub monitor_max_retries: u32 = fixed(Count, "monitor-max-retries", "1");
        /// Number of failed checks after which a member is in ERROR, 1 to 10.
        pub monitor_max_retries_down: u32 = fixed(Count, "monitor-max-retries-down", "3");
        /// Open the nodes' security groups for load balancers. Not managed yet: new load balancers
        /// are refused while it is true.
        pub manage_security_groups: bool = fixed(Switch, "manage-security-groups", "false"), flag;
        /// Refuse a new load balancer if its Service has source ranges and the driver, or this
        /// version of Octavia, cannot restrict clients; if false, it is open to all, with a remark.
        pub require_source_ranges: bool = fixed(Switch, "require-source-ranges", "false"), flag;
        /// Make every load balancer internal, whatever its Service says.
        pub internal: bool = fixed(Switch, "internal-lb", "false"), flag;
        /// Nodes that become members: key=value,key2; a key alone means that the label exists.
        pub node_selector: Option<String> = fixed(Text, "node-selector", "");
        /// Delete a load balancer with its children by one request.
        pub cascade_delete: bool = fixed(Switch, "cascade-delete", "true"), flag;
        /// Octavia's flavor.
        pub flavor_id: Option<String> = fixed(Text, "flavor-id", "");
        /// Octavia's availability zone.
        pub availability_zone: Option<String> = fixed(Text, "availability-zone", "");
        /// Show a host name instead of an address on Services with the PROXY protocol.
        pub enable_ingress_hostname: bool = fixed(Switch, "enable-ingress-hostname", "false"), flag;
        /// The suffix of the address in that host name.
        pub ingress_hostname_suffix: String = fixed(Text, "ingress-hostname-suffix", "nip.io");
        /// How many Services may share one load balancer. Not used: each Service has its own.
        pub max_shared: u32 = fixed(Count, "max-shared-lb", "2");
        /// Where TLS certificates are kept. Known are `barbican`, `external`.
        pub container_store: String = fixed(Text, "container-store", "barbican");
        /// TLS certificate for Services that do not name one. Not managed yet: new load balancers
        /// with one are refused.
        pub default_tls_container: Option<String> = fixed(Text, "default-tls-container-ref", "");
        /// Create the children of a load balancer one at a time. Not managed yet: new load
        /// balancers are refused while it is true.
        pub serial_calls: bool = fixed(Switch, "provider-requires-serial-api-calls", "false"), flag;
    } => |this, raw, problems| {
        for (key, value, known) in [
            ("lb-provider", &this.provider, &PROVIDERS[..]),
            ("lb-method", &this.method, &METHODS),
            ("container-store", &this.container_store, &STORES),
        ] {
            if !known.contains(&value.as_str()) {
                let what = format!("not known here; known are {}", known.join(", "));
                raw.warn(key, what, problems);
            }
        }
        if this.provider == "ovn" && this.method != "SOURCE_IP_PORT" {
            let what = format!("{} is not what ovn offers; must be SOURCE_IP_PORT", quoted(&this.method));
            raw.warn("lb-method", what, problems);
        }
        if ["amphora", "octavia", "amphorav2"].contains(&this.provider.as_str())
            && this.method == "SOURCE_IP_PORT"
        {
            let what = "not what amphora offers, which gets ROUND_ROBIN instead";
            raw.warn("lb-method", what, problems);
        }
        for (key, count) in [
            ("monitor-max-retries", this.monitor_max_retries),
            ("monitor-max-retries-down", this.monitor_max_retries_down),
        ] {
            if !(1..=10).contains(&count) {
                raw.warn(key, "not what Octavia takes; must be from 1 to 10", problems);
            }
        }
        this
    }
}

settings! {
    /// The networks of a load balancer: from `[LoadBalancerClass "name"]`, or from
    /// `[LoadBalancer]`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct LoadBalancerClass {
        /// Subnet of the virtual address, and of the members unless member-subnet-id is set.
        pub subnet_id: Option<String> = fixed(Text, "subnet-id", "");
        /// Network of the virtual address, if no subnet is given.
        pub network_id: Option<String> = fixed(Text, "network-id", "");
        /// Subnet of the members.
        pub member_subnet_id: Option<String> = fixed(Text, "member-subnet-id", "");
        /// External network of floating IPs; if it is empty, the provider finds one.
        pub floating_network_id: Option<String> = fixed(Text, "floating-network-id", "");
        /// Subnet of the external network.
        pub floating_subnet_id: Option<String> = fixed(Text, "floating-subnet-id", "");
        /// Pattern for the name of the subnet of the external network. Not managed yet: set
        /// floating-subnet-id.
        pub floating_subnet: Option<String> = fixed(Text, "floating-subnet", "");
        /// Tags of the subnet of the external network. Not managed yet: set floating-subnet-id.
        pub floating_subnet_tags: Option<String> = fixed(Text, "floating-subnet-tags", "");
    }
}
