//! Computes the members of one pool after a change. Pure.
//!
//! Octavia knows a member by address and port, and takes all members of a pool by one request. So
//! the request also names the members that stay.

use std::{collections::BTreeMap, net::IpAddr};

use ccm_cloud::{IpFamily, Member, Members};
use ccm_openstack_client::lbaas::{MemberRow, TreeMember};
use serde_json::{Value, json};

use super::{annotations::Selector, names};

/// A member as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenMember {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    /// Its other fields, where they have been read.
    pub details: Option<Box<MemberRow>>,
}

impl SeenMember {
    pub fn of_tree(member: &TreeMember) -> Self {
        let TreeMember { name, address, protocol_port, .. } = member;
        Self { name: name.clone(), address: *address, port: *protocol_port, details: None }
    }

    pub fn of_row(row: MemberRow) -> Self {
        let (name, address, port) = (row.name.clone(), row.address, row.protocol_port);
        Self { name, address, port, details: Some(Box::new(row)) }
    }
}

/// The common properties of the members of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    pub port: u16,
    pub family: IpFamily,
    pub selector: &'a Selector,
    /// The subnet that new members are in; `None` leaves it to Octavia.
    pub subnet: Option<&'a str>,
    /// The port of the health check, `None` for the member's own. It is compared if it was read.
    pub monitor_port: Option<u16>,
}

/// Returns the port of most members.
pub fn usual_port(members: &[SeenMember]) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for member in members {
        *counts.entry(member.port).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(port, _)| port)
}

/// Returns true if there is a member that the change does not name: its unknown fields must be read
/// before the members are written.
pub fn has_foreign(current: &[SeenMember], members: &Members) -> bool {
    let named = |seen: &SeenMember| {
        [&members.present, &members.absent]
            .iter()
            .any(|list| list.iter().any(|member| member.node == names::node(&seen.name)))
    };
    !current.iter().all(named)
}

/// The wanted member of a pool.
struct WantedMember<'a> {
    name: &'a str,
    address: IpAddr,
    port: u16,
    seen: Option<&'a SeenMember>,
}

/// Returns the members to write; `None` if nothing must change. The last member never leaves.
pub fn changed(current: &[SeenMember], members: &Members, shape: Shape<'_>) -> Option<Vec<Value>> {
    let entries = entries(current, members, shape);
    let is_same = entries.len() == current.len() && entries.iter().all(|entry| entry.stays(shape));
    (!is_same).then(|| entries.iter().map(|entry| entry.body(shape)).collect())
}

fn entries<'a>(
    current: &'a [SeenMember],
    members: &'a Members,
    shape: Shape<'_>,
) -> Vec<WantedMember<'a>> {
    let present: BTreeMap<&str, &Member> =
        members.present.iter().map(|member| (member.node.as_str(), member)).collect();
    let is_absent = |node: &str| members.absent.iter().any(|member| member.node == node);
    let mut entries: Vec<WantedMember<'a>> = Vec::new();
    let mut add = |entry: WantedMember<'a>| {
        let is_new =
            |other: &WantedMember<'_>| (other.address, other.port) != (entry.address, entry.port);
        if entries.iter().all(is_new) {
            entries.push(entry);
        }
    };
    for member in &*members.present {
        let address =
            member.address(shape.family).filter(|_| shape.selector.matches(&member.labels));
        let Some(address) = address else { continue };
        let at = |seen: &&SeenMember| (seen.address, seen.port) == (address, shape.port);
        let seen = current.iter().find(at);
        add(WantedMember { name: &member.node, address, port: shape.port, seen });
    }
    let is_node = |seen: &SeenMember| {
        let node = names::node(&seen.name);
        present.contains_key(node) || is_absent(node)
    };
    let nodes: Vec<SeenMember> = current.iter().filter(|seen| is_node(seen)).cloned().collect();
    let old_port = usual_port(&nodes);
    for seen in current {
        let node = names::node(&seen.name);
        let stays = match present.get(node) {
            // A member without an address stays as it is, as long as its node may be a member.
            Some(member) => {
                member.address(shape.family).is_none() && shape.selector.matches(&member.labels)
            }
            None => !is_absent(node),
        };
        if stays {
            // The port of the nodes has changed, and the foreign member follows it.
            let moves = Some(seen.port) == old_port;
            let port = if moves { shape.port } else { seen.port };
            add(WantedMember { name: &seen.name, address: seen.address, port, seen: Some(seen) });
        }
    }
    if entries.is_empty()
        && let Some(last) = current.iter().min_by_key(|seen| (seen.address, seen.port))
    {
        let SeenMember { name, address, port, .. } = last;
        entries.push(WantedMember { name, address: *address, port: *port, seen: Some(last) });
    }
    entries
}

impl WantedMember<'_> {
    /// Returns true if the pool has this member as it is.
    fn stays(&self, shape: Shape<'_>) -> bool {
        let Some(seen) = self.seen else { return false };
        let same_check = || {
            let details = seen.details.as_ref();
            let is_ours = self.port == shape.port;
            details.is_none_or(|row| !is_ours || row.monitor_port == shape.monitor_port)
        };
        let is_named = seen.name == self.name || names::node(&seen.name) == self.name;
        seen.port == self.port && is_named && same_check()
    }

    fn body(&self, shape: Shape<'_>) -> Value {
        let mut body = json!({
            "name": names::cut(self.name.to_owned()),
            "address": self.address,
            "protocol_port": self.port,
        });
        let details = self.seen.and_then(|seen| seen.details.as_deref());
        if let Some(row) = details {
            // Octavia sets fields that are not named to their defaults.
            for field in ["weight", "backup", "admin_state_up", "monitor_address"] {
                if let Some(value) = row.others.get(field) {
                    body[field] = value.clone();
                }
            }
        }
        let own_subnet = details.and_then(|row| row.subnet_id.as_deref());
        if let Some(subnet) = own_subnet.or(shape.subnet.filter(|_| self.seen.is_none())) {
            body["subnet_id"] = subnet.into();
        }
        let is_ours = self.port == shape.port;
        if is_ours && (details.is_some() || shape.monitor_port.is_some()) {
            body["monitor_port"] = json!(shape.monitor_port);
        } else if let Some(port) = details.and_then(|row| row.monitor_port) {
            body["monitor_port"] = port.into();
        }
        body
    }
}

/// Returns members of a load balancer that is still to be created.
pub fn first(members: &Members, shape: Shape<'_>) -> Vec<Value> {
    entries(&[], members, shape).iter().map(|entry| entry.body(shape)).collect()
}

#[cfg(test)]
mod tests;
