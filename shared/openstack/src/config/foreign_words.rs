//! Explains words that `cloud.conf` does not have: their name here, or why they have no effect.
//!
//! Some come from earlier versions of openstack-cloud-controller-manager, others from clouds.yaml,
//! from the environment variables `OS_*` and from Terraform.

use ccm_openstack_client::config::{GLOBAL, flag};

use super::{CLASSES, ini::KeyLine};

/// Other names of sections.
const SECTIONS: [(&str, &str); 12] = [
    ("auth", GLOBAL),
    ("cloud", GLOBAL),
    ("keystone", GLOBAL),
    ("openstack", GLOBAL),
    ("network", "Networking"),
    ("networks", "Networking"),
    ("octavia", "LoadBalancer"),
    ("lb", "LoadBalancer"),
    ("loadbalancing", "LoadBalancer"),
    ("router", "Route"),
    ("routes", "Route"),
    ("routing", "Route"),
];

/// Other names of keys, in lower case and with dashes, by their section. The keys of load
/// balancers' networks also apply to classes.
const KEYS: [(&str, &[(&str, &str)]); 4] = [
    (
        GLOBAL,
        &[
            ("project-id", "tenant-id"),
            ("project-name", "tenant-name"),
            ("project", "tenant-name"),
            ("tenant", "tenant-name"),
            ("project-domain-id", "tenant-domain-id"),
            ("project-domain-name", "tenant-domain-name"),
            ("region-name", "region"),
            ("user", "username"),
            ("user-name", "username"),
            ("api-key", "password"),
            ("interface", "os-endpoint-type"),
            ("endpoint-type", "os-endpoint-type"),
            ("cacert", "ca-file"),
            ("ca-cert", "ca-file"),
            ("cert", "cert-file"),
            ("key", "key-file"),
            ("insecure", "tls-insecure"),
            ("verify", "tls-insecure"),
            ("timeout", "request-timeout"),
            ("app-cred-id", "application-credential-id"),
            ("app-cred-secret", "application-credential-secret"),
        ],
    ),
    (
        "Networking",
        &[
            ("public-network", "public-network-name"),
            ("external-network-name", "public-network-name"),
            ("internal-network", "internal-network-name"),
            ("private-network-name", "internal-network-name"),
        ],
    ),
    ("Route", &[("router", "router-id")]),
    (
        "LoadBalancer",
        &[
            ("provider", "lb-provider"),
            ("algorithm", "lb-method"),
            ("internal", "internal-lb"),
            ("flavor", "flavor-id"),
            ("subnet", "subnet-id"),
            ("vip-subnet-id", "subnet-id"),
            ("network", "network-id"),
            ("vip-network-id", "network-id"),
            ("floating-network", "floating-network-id"),
            ("floating-ip-network-id", "floating-network-id"),
            ("external-network-id", "floating-network-id"),
        ],
    ),
];

const NO_SECRET: &str =
    "has no effect: credentials are read from this file or clouds.yaml, never from a Secret";

/// Returns the name of this section here.
pub fn section(name: &str) -> Option<&'static str> {
    let found = SECTIONS.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, section)| *section)
}

/// Returns the name of this key in its section.
pub fn key(section: &str, name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let plain = plain.strip_prefix("os-").unwrap_or(&plain);
    let section = if section == CLASSES { "LoadBalancer" } else { section };
    let (_, keys) = KEYS.iter().find(|(of, _)| *of == section)?;
    keys.iter().find(|(other, _)| *other == plain).map(|(_, key)| *key)
}

/// Returns why an entry has no effect that had one in earlier versions.
pub fn retired(section: &str, KeyLine { key, value, .. }: &KeyLine) -> Option<&'static str> {
    let is_off = || value.as_deref().is_some_and(|text| flag(text, "") == Ok(false));
    let is = |of: &str, name: &str| section == of && name.eq_ignore_ascii_case(key);
    match () {
        () if is("LoadBalancer", "use-octavia") && is_off() => {
            Some("has no effect: the only load balancers are Octavia's")
        }
        () if is("LoadBalancer", "use-octavia") => {
            Some("has no effect: Octavia is always used; remove it")
        }
        () if is("LoadBalancer", "node-security-group") => {
            Some("has no effect: security groups are not managed yet")
        }
        () if is(GLOBAL, "secret-name") || is(GLOBAL, "secret-namespace") => Some(NO_SECRET),
        () if is(GLOBAL, "kubeconfig-path") => Some("has no effect: use the flag --kubeconfig"),
        () => None,
    }
}
