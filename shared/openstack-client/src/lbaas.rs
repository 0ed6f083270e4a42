//! Requests to Octavia: load balancers and their children, typed, without any decision.
//!
//! Octavia takes a write to a load balancer or to any of its children only while the load
//! balancer is `ACTIVE`, and answers 409 otherwise. So a caller makes one write at a time. Only
//! [`Octavia::create`] makes the whole tree by one request.

mod child;
mod requests;
#[cfg(test)]
mod tests;
mod tree;

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub(super) use tree::{Tree, TreeMember, TreePool};

use super::api::Api;
/// The version of Octavia's API, by which its features are known.
pub(super) use super::api::Microversion as ApiVersion;

/// The path of all requests but the one for the versions, below Octavia's base.
const LBAAS: &str = "/v2.0/lbaas";

/// Octavia.
pub(super) struct Octavia {
    api: Arc<dyn Api>,
    /// The version of its API, and when it was read.
    version: tokio::sync::Mutex<Option<(ApiVersion, tokio::time::Instant)>>,
}

/// What Octavia does with an object at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(super) enum Provisioning {
    /// It can be changed.
    Active,
    /// The work on it has failed. A load balancer in this state can only be deleted.
    Error,
    /// It was deleted and is still shown.
    Deleted,
    /// It is being deleted.
    PendingDelete,
    /// Octavia works on it: `PENDING_CREATE`, `PENDING_UPDATE` and whatever else there may be.
    Pending(String),
}

/// A load balancer as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct BalancerRow {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    pub(super) provisioning_status: Provisioning,
    /// Octavia's driver: `amphora`, `ovn`.
    #[serde(default)]
    pub(super) provider: Option<String>,
    pub(super) vip_address: Option<IpAddr>,
    #[serde(default, deserialize_with = "crate::openstack::text::id_or_none")]
    pub(super) vip_port_id: Option<String>,
    #[serde(default, deserialize_with = "crate::openstack::text::id_or_none")]
    pub(super) vip_subnet_id: Option<String>,
    #[serde(default, deserialize_with = "crate::openstack::text::id_or_none")]
    pub(super) vip_network_id: Option<String>,
    /// The addresses of other subnets, since version 2.26.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) additional_vips: Vec<AdditionalVip>,
    #[serde(default)]
    pub(super) flavor_id: Option<String>,
    #[serde(default)]
    pub(super) availability_zone: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
    /// When the last write to the load balancer or to one of its children was, in whole seconds:
    /// two writes within a second may show the same. None until the first one.
    #[serde(default)]
    pub(super) updated_at: Option<String>,
}

/// One of the other addresses of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AdditionalVip {
    pub(super) subnet_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ip_address: Option<IpAddr>,
}

/// A listener as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ListenerRow {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    #[serde(deserialize_with = "crate::openstack::text::word")]
    pub(super) protocol: String,
    pub(super) protocol_port: u16,
    #[serde(default)]
    pub(super) connection_limit: Option<i64>,
    #[serde(default, deserialize_with = "crate::openstack::text::id_or_none")]
    pub(super) default_pool_id: Option<String>,
    #[serde(default)]
    pub(super) insert_headers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) allowed_cidrs: Option<Vec<String>>,
    #[serde(default)]
    pub(super) timeout_client_data: Option<i64>,
    #[serde(default)]
    pub(super) timeout_member_connect: Option<i64>,
    #[serde(default)]
    pub(super) timeout_member_data: Option<i64>,
    #[serde(default)]
    pub(super) timeout_tcp_inspect: Option<i64>,
    pub(super) provisioning_status: Provisioning,
}

/// A pool as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct PoolRow {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    #[serde(deserialize_with = "crate::openstack::text::word")]
    pub(super) protocol: String,
    #[serde(default)]
    pub(super) lb_algorithm: Option<String>,
    #[serde(default)]
    pub(super) session_persistence: Option<Value>,
    /// The listeners whose default pool it is.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) listeners: Vec<Reference>,
    #[serde(default, deserialize_with = "crate::openstack::text::id_or_none")]
    pub(super) healthmonitor_id: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
    pub(super) provisioning_status: Provisioning,
}

/// Another object, by its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(super) id: String,
}

/// A member as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct MemberRow {
    /// May be empty: no request names a member by it.
    pub(super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) protocol_port: u16,
    #[serde(default)]
    pub(super) subnet_id: Option<String>,
    #[serde(default)]
    pub(super) monitor_port: Option<u16>,
    /// The other fields, so that a member that stays is written as it is.
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

/// A health monitor as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct MonitorRow {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(super) id: String,
    #[serde(rename = "type", deserialize_with = "crate::openstack::text::word")]
    pub(super) kind: String,
    pub(super) delay: u32,
    pub(super) timeout: u32,
    pub(super) max_retries: u32,
    #[serde(default)]
    pub(super) max_retries_down: Option<u32>,
    #[serde(default)]
    pub(super) url_path: Option<String>,
    #[serde(default)]
    pub(super) http_method: Option<String>,
    #[serde(default)]
    pub(super) expected_codes: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
}

/// The kinds of a load balancer's children that are written by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Child {
    Listener,
    Pool,
    Monitor,
}

/// Which load balancers to list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Filter<'a> {
    /// All that the project has.
    All,
    /// Those with all of these tags.
    Tags(&'a [&'a str]),
    /// Those with the first tag and any of the others.
    AnyTag(&'a str, &'a [&'a str]),
    /// Those with one of these IDs.
    Ids(&'a [String]),
}

/// A null is as good as a member that is not there.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl From<String> for Provisioning {
    fn from(text: String) -> Self {
        match text.as_str() {
            "ACTIVE" => Self::Active,
            "ERROR" => Self::Error,
            "DELETED" => Self::Deleted,
            "PENDING_DELETE" => Self::PendingDelete,
            _ => Self::Pending(text),
        }
    }
}

impl fmt::Display for Provisioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "ACTIVE",
            Self::Error => "ERROR",
            Self::Deleted => "DELETED",
            Self::PendingDelete => "PENDING_DELETE",
            Self::Pending(text) => text,
        })
    }
}
