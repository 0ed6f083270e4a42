//! What is behind the ports of a load balancer.

use serde::{Deserialize, Serialize};

use crate::Protocol;

/// The members behind one port of a load balancer, as the cloud has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The protocol of the port.
    pub protocol: Protocol,
    /// The port of the load balancer.
    pub port: u16,
    /// How many members it has.
    pub members: usize,
    /// Why it has none although the controller has named some, in one line: the provider's own rules
    /// leave them out (`node-selector "env=production" matches none of 2 nodes`). None if nothing
    /// explains it: such a pool is to be filled.
    pub why_empty: Option<String>,
}

/// The answer to a change of members: they are as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembersSet {
    /// `LoadBalancer::version` after this write, or the present one if nothing was to change. None
    /// if the cloud has no such value.
    pub version: Option<String>,
    /// Whether this call has changed something. If not, nothing differed.
    pub changed: bool,
    /// As `LoadBalancer::pools`, after this write.
    pub pools: Option<Vec<Pool>>,
}
