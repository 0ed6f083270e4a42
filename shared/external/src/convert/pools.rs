//! Converts the pools of a load balancer.

use std::collections::BTreeSet;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{CloudError, Pool};

use super::{
    front_end::{port_from_wire, protocol_from_wire, protocol_to_wire},
    malformed,
};
use crate::proto;

/// The maximum number of pools of one load balancer.
const MAX_POOLS: usize = 256;

pub fn pools_to_wire(pools: &[Pool]) -> proto::PoolList {
    let pools = pools.iter().map(|Pool { protocol, port, members, why_empty }| proto::Pool {
        protocol: Some(protocol_to_wire(*protocol).into()),
        port: Some(u32::from(*port)),
        members: Some(u32::try_from(*members).unwrap_or(u32::MAX)),
        why_empty: why_empty.as_deref().map(|why| one_line(why, LONGEST_LINE)),
    });
    proto::PoolList { pools: pools.collect() }
}

pub fn pools_from_wire(wire: proto::PoolList) -> Result<Vec<Pool>, CloudError> {
    let proto::PoolList { pools } = wire;
    if pools.len() > MAX_POOLS {
        return Err(malformed(format!("{} pools, more than {MAX_POOLS}", pools.len())));
    }
    let mut seen = BTreeSet::new();
    let pool = |wire: proto::Pool| {
        let proto::Pool { protocol, port, members, why_empty } = wire;
        let protocol = protocol_from_wire(protocol.unwrap_or_default());
        let protocol = protocol.ok_or_else(|| malformed("a pool has no protocol"))?;
        let port = port_from_wire(port.unwrap_or_default())?;
        let about = |what: &str| malformed(format!("{protocol} port {port} {what}"));
        // An unset count is not 0: the controller would fill a pool with 0 members.
        let members = members.ok_or_else(|| about("does not say how many members it has"))?;
        if !seen.insert((protocol, port)) {
            return Err(about("has two pools"));
        }
        let why_empty = why_empty.map(|why| one_line(&why, LONGEST_LINE));
        let why_empty = why_empty.filter(|why| members == 0 && !why.is_empty());
        let members = usize::try_from(members).unwrap_or(usize::MAX);
        Ok(Pool { protocol, port, members, why_empty })
    };
    pools.into_iter().map(pool).collect()
}
