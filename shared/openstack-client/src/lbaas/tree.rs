//! A load balancer with everything below it, from the one request that shows it all.

use std::net::IpAddr;

use serde::Deserialize;

use super::{Provisioning, or_default};

/// A load balancer's status tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct Tree {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub listeners: Vec<TreeListener>,
    /// All pools, if Octavia shows them apart from the listeners.
    #[serde(default, deserialize_with = "or_default")]
    pub pools: Vec<TreePool>,
}

/// A listener in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TreeListener {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub pools: Vec<TreePool>,
}

/// A pool in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct TreePool {
    #[serde(deserialize_with = "crate::text::id")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// After the creation of a whole tree, version 2.26 leaves it `PENDING_CREATE` for good though
    /// the load balancer is `ACTIVE` (version 2.30 does not). Octavia answers 409 to changes of the
    /// members and the monitor of such a pool until the pool itself was changed: so change the pool
    /// first, to the values that it has.
    pub provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub members: Vec<TreeMember>,
    pub health_monitor: Option<TreeMonitor>,
}

/// A health monitor in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TreeMonitor {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: String,
}

/// A member in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "fields are named as in the API of Octavia")]
pub struct TreeMember {
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    pub address: IpAddr,
    pub protocol_port: u16,
    pub provisioning_status: Provisioning,
    /// The result of the monitor's checks: `ONLINE`, `ERROR`, or `NO_MONITOR` without a monitor.
    #[serde(default, deserialize_with = "or_default")]
    pub operating_status: String,
}
