//! The features of this Octavia and of a driver.

use ccm_cloud::{LoadBalancerTraits, Protocol};
use ccm_openstack_client::lbaas::ApiVersion;

use super::annotations::{ADDRESS, ID, INTERNAL, OLD_PREFIX, PREFIX};

/// The largest number of load balancers in one call.
const MAX_BATCH: usize = 100;
/// The first version with tags, without which nothing can be owned.
pub const TAGS: ApiVersion = ApiVersion { major: 2, minor: 5 };

/// The features of an Octavia of this version with a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    version: ApiVersion,
    /// The driver `ovn`, which balances packets and ends no connection.
    pub ovn: bool,
    /// Octavia's own driver.
    pub amphora: bool,
}

/// Returns the driver of this name: Octavia has three names for its own.
pub fn driver(name: &str) -> &str {
    match name {
        "octavia" | "amphorav2" => "amphora",
        other => other,
    }
}

impl Features {
    pub fn new(version: ApiVersion, name: &str) -> Self {
        let driver = driver(name);
        Self { version, ovn: driver == "ovn", amphora: driver == "amphora" }
    }

    /// Returns the features with the driver of a load balancer.
    pub fn with(self, driver: Option<&str>) -> Self {
        driver.map_or(self, |driver| Self::new(self.version, driver))
    }

    fn since(self, minor: u32) -> bool {
        self.version >= ApiVersion { major: 2, minor }
    }

    /// Returns true if listeners have time limits.
    pub fn timeouts(self) -> bool {
        self.since(1) && !self.ovn
    }

    pub fn flavors(self) -> bool {
        self.since(6) && !self.ovn
    }

    /// Returns true if listeners have source ranges.
    pub fn allowed_cidrs(self) -> bool {
        self.since(12) && !self.ovn
    }

    /// Returns true if source ranges may be of the family of any address of a load balancer, not
    /// just of the first one's.
    pub fn cidrs_of_all_vips(self) -> bool {
        self.since(27)
    }

    pub fn zones(self) -> bool {
        self.since(14) && !self.ovn
    }

    /// Returns true if the members of a pool of this protocol can have HTTP checks.
    pub fn http_checks(self, protocol: Protocol) -> bool {
        !self.ovn && (protocol == Protocol::Tcp || self.since(16))
    }

    /// Returns true if the members of a pool of this protocol can have health monitors.
    pub fn checks(self, protocol: Protocol) -> bool {
        !self.ovn || protocol != Protocol::Sctp
    }

    /// Returns true if pools have version 2 of the PROXY protocol.
    pub fn proxy_v2(self) -> bool {
        self.since(22)
    }

    fn sctp(self) -> bool {
        self.since(23)
    }

    /// Returns true if a load balancer can have addresses of several subnets.
    pub fn additional_vips(self) -> bool {
        self.since(26) && !self.ovn
    }

    /// Returns the provider's traits.
    pub fn traits(self) -> LoadBalancerTraits {
        let mut protocols = vec![Protocol::Tcp, Protocol::Udp];
        protocols.extend(self.sctp().then_some(Protocol::Sctp));
        LoadBalancerTraits {
            annotations: vec![PREFIX.to_owned(), INTERNAL.to_owned()],
            // All annotations with this prefix except INTERNAL are unknown and only get remarks.
            remarked: vec![OLD_PREFIX.to_owned()],
            own_annotations: vec![ID.to_owned(), ADDRESS.to_owned()],
            is_built_in: true,
            id_annotation: Some(ID.to_owned()),
            protocols,
            dual_stack: self.additional_vips(),
            member_labels: true,
            max_batch: MAX_BATCH,
            ..LoadBalancerTraits::default()
        }
    }
}
