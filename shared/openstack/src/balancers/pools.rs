//! Finds the pool of each port, and its number of members. Pure.
//!
//! A status tree does not show the ports of listeners, and it shows the port of members only if there
//! are some. The process therefore remembers the ports from a creation or a full comparison.

use ccm_base::message::one_line;
use ccm_cloud::{IpFamily, Member, Members, Pool, Protocol};
use ccm_openstack_client::text::MAX_VALUE;

use super::{
    annotations::Selector,
    current::Seen,
    merge::{Shape, first},
    spec::{self, Tree, key},
};

/// The pool of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPool {
    /// Its ID, or its name if it was created with its load balancer.
    pool: String,
    protocol: Protocol,
    port: u16,
    /// The ports of its members and of their checks. `None` if the pool must have no members.
    pub to: Option<Targets>,
}

/// The ports at which members take connections and are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    pub port: u16,
    pub monitor_port: Option<u16>,
}

impl PortPool {
    fn new(listener: &spec::Listener, pool: &str) -> Self {
        let spec::Listener { transport: protocol, port, pool: own, .. } = listener;
        let to = own.member_port.map(|port| Targets { port, monitor_port: own.monitor_port });
        Self { pool: pool.to_owned(), protocol: *protocol, port: *port, to }
    }

    /// Returns true if this ID or this name is the pool's.
    pub fn is(&self, id: &str, name: &str) -> bool {
        self.pool == id || self.pool == name
    }

    /// Returns the port, for messages.
    pub fn shown(&self) -> String {
        format!("{} port {}", self.protocol, self.port)
    }
}

/// Returns the pools that a creation makes.
pub fn of_creation(tree: &Tree) -> Vec<PortPool> {
    tree.listeners.iter().map(|listener| PortPool::new(listener, &listener.pool.name)).collect()
}

/// Returns the number of members that a creation gives to the pool of a port.
pub fn created(
    port: &PortPool,
    members: &Members,
    selector: &Selector,
    family: IpFamily,
) -> Option<usize> {
    let Targets { port, monitor_port } = port.to?;
    Some(first(members, Shape { port, family, selector, subnet: None, monitor_port }).len())
}

/// Returns the pools of a load balancer that is as wanted.
pub fn of_seen(seen: &Seen, tree: &Tree) -> Vec<PortPool> {
    let pool = |listener: &spec::Listener| {
        let mut there = seen.listeners.iter();
        let own = there.find(|row| key(row) == (listener.transport, listener.port))?;
        seen.pool_of(own).map(|pool| PortPool::new(listener, &pool.id))
    };
    tree.listeners.iter().filter_map(pool).collect()
}

/// Returns the number of members of the pool of a port that exists.
pub fn count(seen: &Seen, port: &PortPool) -> Option<usize> {
    let pool = seen.pools.iter().find(|pool| port.is(&pool.id, &pool.name))?;
    Some(seen.members_of(&pool.id).len())
}

/// Returns the pools of ports that must have members. `None` if no port is known. `count` returns the
/// number of members of a pool that exists.
pub fn shown(
    ports: &[PortPool],
    count: impl Fn(&PortPool) -> Option<usize>,
    why_empty: Option<&str>,
) -> Option<Vec<Pool>> {
    let pool = |port: &PortPool| {
        let members = count(port)?;
        let why_empty = why_empty.filter(|_| members == 0).map(str::to_owned);
        Some(Pool { protocol: port.protocol, port: port.port, members, why_empty })
    };
    let filled = ports.iter().filter(|port| port.to.is_some());
    (!ports.is_empty()).then(|| filled.filter_map(pool).collect())
}

/// Explains why none of the named nodes can be a member. `None` if one can, or if no node is named.
pub fn why_none(members: &Members, selector: &Selector, family: IpFamily) -> Option<String> {
    let count = members.present.len();
    let selected: Vec<&Member> =
        members.present.iter().filter(|member| selector.matches(&member.labels)).collect();
    if count == 0 || selected.iter().any(|member| member.address(family).is_some()) {
        return None;
    }
    let selects = !selector.is_empty();
    let selector = one_line(&selector.to_string(), MAX_VALUE);
    Some(match selected.len() {
        0 => format!("node-selector \"{selector}\" matches none of {count} nodes"),
        matching if selects => format!(
            "node-selector \"{selector}\" matches {matching} of {count} nodes, 0 with an \
             {family} address"
        ),
        _ => format!("none of {count} nodes has an {family} address"),
    })
}
