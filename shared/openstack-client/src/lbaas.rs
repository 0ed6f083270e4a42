//! Requests to Octavia: load balancers and their children, typed, without any decision.
//!
//! Octavia takes a write to a load balancer or to any of its children only while the load balancer
//! is `ACTIVE`, and answers 409 otherwise. So a caller makes one write at a time. Only
//! [`Octavia::create`] makes the whole tree with one request.

mod child;
mod requests;
#[cfg(test)]
mod tests;
mod tree;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use strum::{Display, EnumString};

pub use tree::{Tree, TreeMember, TreePool};

use crate::api::Api;
/// The version of Octavia's API, by which its features are known.
pub use crate::api::Microversion as ApiVersion;

/// The path of all requests except the one for the versions, below Octavia's base.
const LBAAS: &str = "/v2.0/lbaas";

/// Octavia.
pub struct Octavia {
    api: Arc<dyn Api>,
    /// The version of its API, and when it was read.
    version: tokio::sync::Mutex<Option<(ApiVersion, tokio::time::Instant)>>,
}

/// Octavia's current work on an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Display, EnumString)]
#[serde(from = "String")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Provisioning {
    /// It can be changed.
    Active,
    /// The work on it has failed. A load balancer in this state can only be deleted.
    Error,
    /// It was deleted and is still shown.
    Deleted,
    /// It is being deleted.
    PendingDelete,
    /// Octavia works on it: `PENDING_CREATE`, `PENDING_UPDATE` or any other state.
    #[strum(default)]
    Pending(String),
}

/// A load balancer as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct BalancerRow {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    pub description: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    pub provisioning_status: Provisioning,
    /// Octavia's driver: `amphora`, `ovn`.
    pub provider: Option<String>,
    pub vip_address: Option<IpAddr>,
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub vip_port_id: Option<String>,
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub vip_subnet_id: Option<String>,
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub vip_network_id: Option<String>,
    /// The addresses of other subnets, since version 2.26.
    #[serde(default, deserialize_with = "or_default")]
    pub additional_vips: Vec<AdditionalVip>,
    pub flavor_id: Option<String>,
    pub availability_zone: Option<String>,
    pub created_at: Option<String>,
    /// The time of the last write to the load balancer or to one of its children, in whole seconds:
    /// two writes within a second may have the same time. `None` until the first write.
    pub updated_at: Option<String>,
}

/// An additional address of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct AdditionalVip {
    pub subnet_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<IpAddr>,
}

/// A listener as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct ListenerRow {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "crate::text::word")]
    pub protocol: String,
    pub protocol_port: u16,
    pub connection_limit: Option<i64>,
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub default_pool_id: Option<String>,
    pub insert_headers: Option<BTreeMap<String, String>>,
    pub allowed_cidrs: Option<Vec<String>>,
    pub timeout_client_data: Option<i64>,
    pub timeout_member_connect: Option<i64>,
    pub timeout_member_data: Option<i64>,
    pub timeout_tcp_inspect: Option<i64>,
    #[serde(skip_serializing)]
    pub provisioning_status: Provisioning,
}

/// A pool as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct PoolRow {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    #[serde(deserialize_with = "crate::text::word")]
    pub protocol: String,
    pub lb_algorithm: Option<String>,
    pub session_persistence: Option<Value>,
    /// The listeners whose default pool it is.
    #[serde(default, deserialize_with = "or_default")]
    pub listeners: Vec<Reference>,
    #[serde(default, deserialize_with = "crate::text::id_or_none")]
    pub healthmonitor_id: Option<String>,
    pub created_at: Option<String>,
    pub provisioning_status: Provisioning,
}

/// Another object, by its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct Reference {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
}

/// A member as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct MemberRow {
    /// The ID may be empty: no request names a member by its ID.
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    pub address: IpAddr,
    pub protocol_port: u16,
    pub subnet_id: Option<String>,
    pub monitor_port: Option<u16>,
    /// The other fields, so that a member that stays is written as it is.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// A health monitor as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct MonitorRow {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(rename = "type", deserialize_with = "crate::text::word")]
    pub kind: String,
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u32,
    pub max_retries_down: Option<u32>,
    pub url_path: Option<String>,
    pub http_method: Option<String>,
    pub expected_codes: Option<String>,
    pub created_at: Option<String>,
}

/// The kinds of a load balancer's children that are written separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Child {
    /// A port of it.
    Listener,
    /// A pool of members.
    Pool,
    /// The checks of a pool's members.
    Monitor,
}

/// The load balancers to list.
#[derive(Clone, Copy, Debug)]
pub enum Filter<'a> {
    /// All load balancers of the project.
    All,
    /// Load balancers with all of these tags.
    Tags(&'a [&'a str]),
    /// Load balancers with the first tag and any of the others.
    AnyTag(&'a str, &'a [&'a str]),
    /// Load balancers with one of these IDs.
    Ids(&'a [String]),
}

/// Reads a member. A null counts like a missing member.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl From<String> for Provisioning {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}
