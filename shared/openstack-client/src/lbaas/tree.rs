//! A load balancer with everything below it, by the one request that shows it all.

use std::net::IpAddr;

use serde::Deserialize;

use super::{Provisioning, or_default};

/// A load balancer's status tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in super::super) struct Tree {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(in super::super) id: String,
    pub(in super::super) provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) listeners: Vec<TreeListener>,
    /// All pools, where Octavia shows them apart from the listeners.
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) pools: Vec<TreePool>,
}

/// A listener in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in super::super) struct TreeListener {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(in super::super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) name: String,
    pub(in super::super) provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) pools: Vec<TreePool>,
}

/// A pool in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in super::super) struct TreePool {
    #[serde(deserialize_with = "crate::openstack::text::id")]
    pub(in super::super) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) name: String,
    /// After the creation of a whole tree, version 2.26 leaves it `PENDING_CREATE` for good though
    /// the load balancer is `ACTIVE` (version 2.30 does not). The members and the monitor of such
    /// a pool cannot be changed, Octavia says 409, until the pool itself was changed: so change
    /// it first, to what it is.
    pub(in super::super) provisioning_status: Provisioning,
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) members: Vec<TreeMember>,
    #[serde(default)]
    pub(in super::super) health_monitor: Option<TreeMonitor>,
}

/// A health monitor in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in super::super) struct TreeMonitor {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub(in super::super) kind: String,
}

/// A member in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(in super::super) struct TreeMember {
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) name: String,
    pub(in super::super) address: IpAddr,
    pub(in super::super) protocol_port: u16,
    pub(in super::super) provisioning_status: Provisioning,
    /// The result of the monitor's checks: `ONLINE`, `ERROR`, or `NO_MONITOR` without a monitor.
    #[serde(default, deserialize_with = "or_default")]
    pub(in super::super) operating_status: String,
}
