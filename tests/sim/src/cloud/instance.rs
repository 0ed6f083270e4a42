//! A simulated machine.

use std::collections::BTreeMap;

use ccm_cloud::{AddressKind, Instance, NodeAddress, PowerState, ProviderId};
use ipnet::IpNet;

use super::SCHEME;

/// A machine of the simulated cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimInstance {
    /// Its ID: the part of the provider ID after `sim://`.
    pub id: String,
    /// Its name. Several machines may have the same name.
    pub name: String,
    /// Its type.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Further labels for its node.
    pub labels: BTreeMap<String, String>,
    /// Its power state.
    pub power: PowerState,
    /// Its SMBIOS system UUID.
    pub system_uuid: Option<String>,
    /// Other spellings of its provider ID.
    pub other_ids: Vec<ProviderId>,
    /// The networks of its pods, if the cloud assigns them.
    pub pod_cidrs: Vec<IpNet>,
}

impl SimInstance {
    /// Creates a running machine with only ID and name.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: BTreeMap::new(),
            power: PowerState::Running,
            system_uuid: None,
            other_ids: Vec::new(),
            pod_cidrs: Vec::new(),
        }
    }

    /// Returns the machine with this number, which is always the same, with all properties set.
    /// Name `node-00042`, ID `i-00042`, zones a to c.
    pub fn numbered(number: usize) -> Self {
        let zone = ["a", "b", "c"].get(number % 3).copied().unwrap_or("a");
        let (high, middle, low) = (number / 62_500 % 256, number / 250 % 250, number % 250 + 1);
        let internal = format!("10.{high}.{middle}.{low}");
        let mut instance = Self::new(format!("i-{number:05}"), format!("node-{number:05}"));
        instance.instance_type = Some("sim.medium".to_owned());
        instance.region = Some("sim-1".to_owned());
        instance.zone = Some(format!("sim-1{zone}"));
        instance.system_uuid = Some(format!("00000000-0000-4000-8000-{number:012x}"));
        instance.addresses = vec![
            NodeAddress::new(AddressKind::InternalIp, internal),
            NodeAddress::new(
                AddressKind::ExternalIp,
                format!("198.{}.{middle}.{low}", 18 + high % 2),
            ),
            NodeAddress::new(AddressKind::Hostname, instance.name.clone()),
        ];
        instance
    }

    /// Returns its provider ID: `sim://<id>`. An empty ID becomes `unnamed`, because a provider ID
    /// needs a text after the scheme.
    pub fn provider_id(&self) -> ProviderId {
        let id = if self.id.is_empty() { "unnamed" } else { &self.id };
        ProviderId::parse(&format!("{SCHEME}://{id}"))
            .unwrap_or_else(|error| unreachable!("scheme and ID are not empty: {error}"))
    }

    /// Returns the machine as the cloud describes it.
    pub fn describe(&self) -> Instance {
        Instance {
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            region: self.region.clone(),
            addresses: self.addresses.clone(),
            labels: self.labels.clone(),
            power: self.power,
            other_ids: self.other_ids.clone(),
            pod_cidrs: self.pod_cidrs.clone(),
            ..Instance::new(self.provider_id(), &self.name)
        }
    }
}
