//! The properties of a node that node-ccm keeps in sync.

use ccm_cloud::Instance;
use ccm_objects::node_keys::{INSTANCE_TYPE, REGION, ZONE};
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantNames};

use super::Step;

/// A property of a node that node-ccm keeps in sync: the value of a metric's label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr, VariantNames,
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

/// A label that the brake protects: its two keys, its field, and its value in the cloud.
type ProtectedLabel = ((&'static str, &'static str), Field, fn(&Instance) -> Option<&str>);

/// The labels of nodes that the brake protects.
pub(super) const PROTECTED_LABELS: [ProtectedLabel; 3] = [
    (INSTANCE_TYPE, Field::InstanceType, |instance| instance.instance_type.as_deref()),
    (ZONE, Field::Zone, |instance| instance.zone.as_deref()),
    (REGION, Field::Region, |instance| instance.region.as_deref()),
];

impl Field {
    /// Returns its name in sentences.
    pub fn words(self) -> String {
        match self {
            Self::InternalIp => "first InternalIP".to_owned(),
            other => other.to_string().replace('_', " "),
        }
    }

    /// Returns true if it is one of the addresses, which are part of the node's status.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Addresses | Self::InternalIp | Self::AddressFamily)
    }

    /// Returns true if this step changes it.
    pub fn is_written_by(self, step: &Step) -> bool {
        self.is_address() == matches!(step, Step::SetAddresses { .. })
    }

    /// Returns the field with this name in [`Plan::fields`](super::Plan::fields).
    pub fn named(name: &str) -> Self {
        let is_meant = |(beta, ga): (&str, &str)| name == beta || name == ga;
        match PROTECTED_LABELS.into_iter().find(|(keys, ..)| is_meant(*keys)) {
            Some((_, field, _)) => field,
            None if name == <&str>::from(Self::Addresses) => Self::Addresses,
            None => Self::Labels,
        }
    }
}
