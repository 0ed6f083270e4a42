//! The requests, one function each.

use ccm_cloud::{Call, CloudError};
use serde_json::Value;

use super::{
    ApiVersion, BalancerRow, Child, Filter, ListenerRow, MemberRow, MonitorRow, Octavia, PoolRow,
    Tree,
};

/// What a list of load balancers shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct BalancerRows {
    pub(in super::super) rows: Vec<BalancerRow>,
    /// A line for each entry that cannot be parsed.
    pub(in super::super) malformed: Vec<String>,
    pub(in super::super) request_id: Option<String>,
}

/// What became of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Deletion {
    /// Octavia has accepted it.
    Accepted,
    /// Octavia itself says that the object does not exist.
    Gone {
        /// Octavia's ID of the request.
        request_id: Option<String>,
    },
}
