use serde::Serialize;
use strum::{Display, IntoStaticStr, VariantNames};

use super::Step;

/// Beta and GA key of the label.
pub const INSTANCE_TYPE: (&str, &str) =
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type");
/// See [`INSTANCE_TYPE`].
pub const ZONE: (&str, &str) =
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
/// See [`INSTANCE_TYPE`].
pub const REGION: (&str, &str) =
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");

/// A property of a node that node-ccm keeps in sync: the value of a metric's label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Display, IntoStaticStr, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum Field {
    /// All addresses.
    Addresses,
    /// The first InternalIP.
    InternalIp,
    /// The InternalIPs of one family.
    AddressFamily,
    /// The instance type.
    InstanceType,
    /// The zone.
    Zone,
    /// The region.
    Region,
    /// Any other label.
    Labels,
}

impl Field {
    /// Its name in sentences.
    pub fn words(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::InternalIp => "first InternalIP",
            Self::AddressFamily => "address family",
            Self::InstanceType => "instance type",
            Self::Zone => "zone",
            Self::Region => "region",
            Self::Labels => "labels",
        }
    }

    /// Whether it is one of the addresses, which are part of the node's status.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Addresses | Self::InternalIp | Self::AddressFamily)
    }

    /// Whether this step changes it.
    pub fn is_written_by(self, step: &Step) -> bool {
        self.is_address() == matches!(step, Step::SetAddresses { .. })
    }

    /// The field with this name in [`Plan::fields`](super::Plan::fields).
    pub fn named(name: &str) -> Self {
        let pairs =
            [(INSTANCE_TYPE, Self::InstanceType), (ZONE, Self::Zone), (REGION, Self::Region)];
        let is_meant = |(beta, ga): (&str, &str)| name == beta || name == ga;
        match pairs.into_iter().find(|(keys, _)| is_meant(*keys)) {
            Some((_, field)) => field,
            None if name == <&str>::from(Self::Addresses) => Self::Addresses,
            None => Self::Labels,
        }
    }
}
