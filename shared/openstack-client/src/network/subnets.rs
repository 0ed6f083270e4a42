//! Requests about possible places of virtual addresses: subnets, external networks, and ports.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_cloud::{Call, CloudError};
use serde::Deserialize;

use super::{Neutron, readable};
use crate::{
    api::{Request, Service},
    text::query,
};

const SUBNET_FIELDS: &str = "fields=id&fields=network_id&fields=ip_version\
                             &fields=cidr";
/// The ID is the marker of the next page.
const PORT_FIELDS: &str = "fields=id&fields=device_owner&fields=fixed_ips";

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Neutron")]
pub struct Subnet {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    pub network_id: String,
    /// 4 or 6.
    pub ip_version: u8,
    /// Its addresses, as Neutron spells them.
    pub cidr: String,
}

/// A network with floating IPs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalNetwork {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    /// The IDs of all its subnets, including subnets that the project may not see.
    #[serde(default)]
    pub subnets: Vec<String>,
}

/// A port and the subnets of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PlacedPort {
    /// The kind of the port's owner: `compute:zone-1`, `Octavia`; may be empty.
    #[serde(default)]
    pub device_owner: String,
    #[serde(default)]
    pub fixed_ips: Vec<PlacedAddress>,
}

/// An address in its subnet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PlacedAddress {
    pub ip_address: IpAddr,
    pub subnet_id: String,
}

impl Neutron {
    /// Returns the subnet of this ID; `None` if Neutron itself says that the project does not have
    /// it.
    pub async fn subnet(&self, id: &str, call: Call) -> Result<Option<Subnet>, CloudError> {
        let path = format!("/subnets/{}?{SUBNET_FIELDS}", query(id));
        let request = Request::get(Service::Network, "subnet_get", &path);
        self.api.send(request, call).await?.object_or_none("subnet")
    }

    /// Returns the subnets of these IDs that the project sees.
    pub async fn subnets(
        &self,
        ids: &BTreeSet<String>,
        call: Call,
    ) -> Result<Vec<Subnet>, CloudError> {
        let ids = ids.iter().map(String::as_str);
        readable("subnet", &self.entries("subnets", SUBNET_FIELDS, "id", ids, call).await?)
    }

    /// Returns the subnets of a network, as far as the project may see them.
    pub async fn subnets_of(&self, network: &str, call: Call) -> Result<Vec<Subnet>, CloudError> {
        let ids = std::iter::once(network);
        let entries = self.entries("subnets", SUBNET_FIELDS, "network_id", ids, call).await?;
        readable("subnet", &entries)
    }

    /// Returns the external networks that the project may use, in Neutron's order.
    pub async fn external_networks(&self, call: Call) -> Result<Vec<ExternalNetwork>, CloudError> {
        let path = "/networks?fields=id&fields=subnets&router%3Aexternal=true";
        readable("network", &self.entries_of("networks", vec![path.to_owned()], call).await?)
    }

    /// Lists the project's ports with one of these addresses, in any network. Neutron shows an
    /// administrator other projects too, whose networks may have the same addresses.
    pub async fn ports_of_addresses(
        &self,
        addresses: &BTreeSet<IpAddr>,
        call: Call,
    ) -> Result<Vec<PlacedPort>, CloudError> {
        let values: Vec<_> = addresses.iter().map(|ip| format!("ip_address={ip}")).collect();
        let values = values.iter().map(String::as_str);
        let fields =
            format!("{PORT_FIELDS}&project_id={}", query(&self.api.project_id(call).await?));
        let entries = self.entries("ports", &fields, "fixed_ips", values, call).await?;
        readable("port", &entries)
    }
}
