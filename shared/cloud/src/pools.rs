//! The members behind the ports of a load balancer.

use serde::{Deserialize, Serialize};

use crate::Protocol;

/// The members behind one port of a load balancer, as the cloud has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The protocol of the port.
    pub protocol: Protocol,
    /// The port of the load balancer.
    pub port: u16,
    /// The number of members.
    pub members: usize,
    /// The reason why the pool is empty although the controller has named members, in one line: the
    /// provider's own rules exclude them (`node-selector "env=production" matches none of 2
    /// nodes`). `None` if the provider does not know a reason: then the pool should have members.
    pub why_empty: Option<String>,
}

/// The answer to a change of members: the members are as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersSet {
    /// The `LoadBalancer::version` after this write, or the current one if nothing had to be
    /// changed. `None` if the cloud has no such value.
    pub version: Option<String>,
    /// True if this call has changed something.
    pub changed: bool,
    /// The `LoadBalancer::pools` after this write.
    pub pools: Option<Vec<Pool>>,
}
