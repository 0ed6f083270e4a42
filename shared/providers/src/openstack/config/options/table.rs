//! The table itself.

use super::{
    CLASSES,
    Kind::{
        Count, Duration, ExactlyTrue, File, Flag, Networks, OneOf, Order, Patterns, Secret, Text,
        Texts, Url, Usually,
    },
    Setting,
};

/// Sections that belong to other programs and are passed over in silence.
pub const IGNORED_SECTIONS: [&str; 2] = ["BlockStorage", "KeyManager"];

/// The environment variables that count, and what for.
pub const ENVIRONMENT: [(&str, &str); 4] = [
    ("OS_CLIENT_CONFIG_FILE", "Path of clouds.yaml, where clouds-file is not set."),
    ("OS_CLOUD", "The entry of clouds.yaml, where cloud is not set."),
    (
        "OS_CCM_REGIONAL",
        "Exactly true: provider IDs carry the region (openstack://region/uuid). Both spellings are always understood.",
    ),
    (
        "HTTP_PROXY, HTTPS_PROXY, NO_PROXY",
        "Proxies for the requests to OpenStack, as curl understands them.",
    ),
];

const fn setting(
    section: &'static str,
    key: &'static str,
    kind: super::Kind,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { section, key, kind, default, meaning }
}

const GLOBAL: &str = "Global";
const BALANCER: &str = "LoadBalancer";
const NETWORKING: &str = "Networking";
const LABELS: &str = "Labels";
const METADATA: &str = "Metadata";

/// All keys, section by section.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting(GLOBAL, "auth-url", Url, "", "Keystone, with or without /v3. Required, here or in clouds.yaml."),
    setting(GLOBAL, "os-endpoint-type", OneOf(&["public", "internal", "admin"]), "public", "Which of a service's endpoints in the catalog are used."),
    setting(GLOBAL, "region", Text, "", "The region whose endpoints are used, and the region label of the nodes. Without one Nova's first endpoint is used and Neutron's in its region, and the provider IDs that name that region are ours."),
    setting(GLOBAL, "request-timeout", Duration, "60s", "How long one request to OpenStack may take; 0 leaves only the limit of the whole call. Goes before [Metadata] request-timeout."),
    setting(GLOBAL, "ca-file", File, "", "PEM file of the authorities that may sign the services' certificates, instead of the system's."),
    setting(GLOBAL, "tls-insecure", ExactlyTrue, "", "Exactly true: accept any certificate. For tests only."),
    setting(GLOBAL, "cert-file", File, "", "PEM file of our own certificate, for services that ask for one. Needs key-file."),
    setting(GLOBAL, "key-file", File, "", "PEM file of the private key of cert-file."),
    setting(GLOBAL, "username", Text, "", "Name of the user. Needs a domain: user-domain-* or domain-*."),
    setting(GLOBAL, "user-id", Text, "", "ID of the user; goes before username."),
    setting(GLOBAL, "password", Secret, "", "The user's password."),
    setting(GLOBAL, "tenant-id", Text, "", "ID of the project; goes before tenant-name."),
    setting(GLOBAL, "tenant-name", Text, "", "Name of the project. Needs a domain: tenant-domain-* or domain-*."),
    setting(GLOBAL, "domain-id", Text, "", "ID of the domain of user and project where they have none of their own. Without a project, the domain that is worked in."),
    setting(GLOBAL, "domain-name", Text, "", "The same by name."),
    setting(GLOBAL, "tenant-domain-id", Text, "", "ID of the project's domain; goes before the name."),
    setting(GLOBAL, "tenant-domain-name", Text, "", "Name of the project's domain."),
    setting(GLOBAL, "user-domain-id", Text, "", "ID of the user's domain; goes before the name."),
    setting(GLOBAL, "user-domain-name", Text, "", "Name of the user's domain."),
    setting(GLOBAL, "application-credential-id", Text, "", "ID of an application credential; goes before its name."),
    setting(GLOBAL, "application-credential-name", Text, "", "Name of an application credential. Needs its user, and the user's domain if the user is given by name."),
    setting(GLOBAL, "application-credential-secret", Secret, "", "The application credential's secret."),
    setting(GLOBAL, "trust-id", Text, "", "A trust that is used with a user's password."),
    setting(GLOBAL, "trustee-id", Text, "", "With trust-id: ID of the user, instead of user-id."),
    setting(GLOBAL, "trustee-password", Secret, "", "With trust-id: the password, instead of password."),
    setting(GLOBAL, "token", Secret, "", "A token of Keystone; needs a project or a domain. It cannot renew itself: use it for short runs only."),
    setting(GLOBAL, "use-clouds", Flag, "false", "Take what is not set here from clouds.yaml."),
    setting(GLOBAL, "clouds-file", File, "", "Path of clouds.yaml. Else OS_CLIENT_CONFIG_FILE, else clouds.yaml or clouds.yml in the working folder, ~/.config/openstack or /etc/openstack."),
    setting(GLOBAL, "cloud", Text, "", "The entry of clouds.yaml. Else OS_CLOUD, else the only entry."),

    setting(NETWORKING, "ipv6-support-disabled", Flag, "false", "Leave IPv6 out of the nodes' addresses."),
    setting(NETWORKING, "public-network-name", Texts, "", "Name or ID of a network whose addresses count as ExternalIP. May be given several times."),
    setting(NETWORKING, "internal-network-name", Texts, "", "Name or ID of a network whose addresses count as InternalIP; then no others do. May be given several times."),
    setting(NETWORKING, "address-sort-order", Networks, "", "Prefixes, separated by commas: addresses in the first come first. What is no prefix is left out with a warning."),

    setting(LABELS, "metadata", Patterns, "", "Keys of the server's metadata that become labels of the node, under openstack.quartet.dev/. Separated by commas; team-* stands for every key that begins with team-."),
    setting(LABELS, "host-id", Flag, "false", "Label nodes with the ID of the hypervisor, as this project sees it."),
    setting(LABELS, "flavor-id", Flag, "false", "Label nodes with the ID of the server's flavor."),

    setting("Route", "router-id", Text, "", "The router that carries the routes to pods. Not used by the programs of this build."),

    setting(METADATA, "search-order", Order(&["configDrive", "metadataService"]), "configDrive,metadataService", "Checked and not used: the controllers read no metadata service."),
    setting(METADATA, "request-timeout", Duration, "", "The older place of [Global] request-timeout."),

    setting(BALANCER, "enabled", Flag, "true", "Whether load balancers are managed."),
    setting(BALANCER, "lb-version", OneOf(&["", "v2"]), "", "Version of the load balancer API."),
    setting(BALANCER, "lb-provider", Usually(&["amphora", "octavia", "ovn", "f5", "amphorav2"]), "amphora", "Octavia's provider."),
    setting(BALANCER, "lb-method", Usually(&["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"]), "ROUND_ROBIN", "How a pool chooses its member; ovn needs SOURCE_IP_PORT."),
    setting(BALANCER, "subnet-id", Text, "", "Subnet of the virtual address, and of the members unless member-subnet-id is set."),
    setting(BALANCER, "network-id", Text, "", "Network of the virtual address, where no subnet is given."),
    setting(BALANCER, "member-subnet-id", Text, "", "Subnet of the members."),
    setting(BALANCER, "floating-network-id", Text, "", "External network of floating IPs; found out when empty."),
    setting(BALANCER, "floating-subnet-id", Text, "", "Subnet of the external network."),
    setting(BALANCER, "floating-subnet", Text, "", "Pattern for the name of the subnet of the external network."),
    setting(BALANCER, "floating-subnet-tags", Text, "", "Tags of the subnet of the external network."),
    setting(BALANCER, "create-monitor", Flag, "false", "Whether pools get health monitors unless their Service says otherwise."),
    setting(BALANCER, "monitor-delay", Duration, "5s", "Time between two checks of a member, in whole seconds."),
    setting(BALANCER, "monitor-timeout", Duration, "3s", "How long one check may take, in whole seconds."),
    setting(BALANCER, "monitor-max-retries", Count, "1", "Good checks after which a member is ONLINE, 1 to 10."),
    setting(BALANCER, "monitor-max-retries-down", Count, "3", "Failed checks after which a member is in ERROR, 1 to 10."),
    setting(BALANCER, "manage-security-groups", Flag, "false", "Whether the nodes' security groups are opened for load balancers."),
    setting(BALANCER, "internal-lb", Flag, "false", "Whether every load balancer is internal, whatever its Service says."),
    setting(BALANCER, "node-selector", Text, "", "Nodes that become members: key=value,key2; a key alone means that the label is there."),
    setting(BALANCER, "cascade-delete", Flag, "true", "Whether a load balancer is deleted with its children by one request."),
    setting(BALANCER, "flavor-id", Text, "", "Octavia's flavor."),
    setting(BALANCER, "availability-zone", Text, "", "Octavia's availability zone."),
    setting(BALANCER, "enable-ingress-hostname", Flag, "false", "Whether Services with the PROXY protocol show a host name instead of an address."),
    setting(BALANCER, "ingress-hostname-suffix", Text, "nip.io", "What follows the address in that host name."),
    setting(BALANCER, "max-shared-lb", Count, "2", "How many Services may share one load balancer."),
    setting(BALANCER, "container-store", Usually(&["barbican", "external"]), "barbican", "Where TLS certificates are kept."),
    setting(BALANCER, "default-tls-container-ref", Text, "", "TLS certificate for Services that name none."),
    setting(BALANCER, "provider-requires-serial-api-calls", Flag, "false", "Whether children of a load balancer are changed one at a time."),

    setting(CLASSES, "floating-network-id", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "floating-subnet-id", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "floating-subnet", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "floating-subnet-tags", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "network-id", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "subnet-id", Text, "", "As in [LoadBalancer]."),
    setting(CLASSES, "member-subnet-id", Text, "", "As in [LoadBalancer]."),
];
