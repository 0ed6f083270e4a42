//! Reports options of `cloud.conf` about load balancers that are not managed yet. The program
//! reports them at its start, because the refusal of a Service reaches people who cannot change the
//! file.

use ccm_settings::{Problems, RawSettings, Schema as _};

use super::{
    CLASSES,
    balancer::{LoadBalancer, LoadBalancerClass},
    sections::{Sections, merged},
};

/// The right value instead, by option.
pub const SECURITY_GROUPS: &str = "security groups are not managed yet: set it to false, and open the node ports to the load \
     balancers yourself";
pub const SERIAL_CALLS: &str = "each load balancer is created by one request: set it to false";
pub const TLS: &str =
    "TLS is not terminated by the load balancer yet: remove it, or set it to the empty text";
pub const PATTERNS: &str =
    "patterns and tags do not choose the floating subnet yet: set floating-subnet-id instead";
const SHARED: &str = "several Services do not share a load balancer yet: each gets its own";

const ALL: &str = "service-ccm will refuse new load balancers: ";
const FLOATING: &str = "service-ccm will refuse new floating IPs: ";

/// Warns of each option, and returns the lines about those because of which Services are refused.
pub fn warn(sections: &Sections, problems: &mut Problems) -> Vec<String> {
    const SECTION: &str = "LoadBalancer";
    let raw = merged(SECTION, &sections.given(SECTION), problems);
    let Some(options) = LoadBalancer::read(&raw, &mut Problems::default()) else {
        return Vec::new();
    };
    if !options.enabled {
        return Vec::new();
    }
    // With 1 each Service has its own load balancer, and files that do not mean to share have the
    // default.
    if ![1, 2].contains(&options.max_shared) {
        raw.warn("max-shared-lb", SHARED, problems);
    }
    let mut lines = Vec::new();
    for (key, is_set, what) in [
        ("manage-security-groups", options.manage_security_groups, SECURITY_GROUPS),
        ("provider-requires-serial-api-calls", options.serial_calls, SERIAL_CALLS),
        ("default-tls-container-ref", options.default_tls_container.is_some(), TLS),
    ] {
        if is_set {
            lines.push(format!("{}: {ALL}{what}", raw.describe(key)));
        }
    }
    // Without floating IPs, nothing is refused for their sake.
    if !options.internal {
        lines.extend(patterns(&raw));
        for (_, given) in sections.classes() {
            lines.extend(patterns(&merged(CLASSES, given, problems)));
        }
    }
    for line in &lines {
        problems.warn(line);
    }
    lines
}

/// Returns the lines about how a section chooses the subnet of floating IPs. The ID takes
/// precedence.
fn patterns(raw: &RawSettings) -> Vec<String> {
    let read = LoadBalancerClass::read(raw, &mut Problems::default());
    let Some(networks) = read.filter(|it| it.floating_subnet_id.is_none()) else {
        return Vec::new();
    };
    [
        ("floating-subnet", networks.floating_subnet),
        ("floating-subnet-tags", networks.floating_subnet_tags),
    ]
    .into_iter()
    .filter(|(_, given)| given.is_some())
    .map(|(key, _)| format!("{}: {FLOATING}{PATTERNS}", raw.describe(key)))
    .collect()
}
