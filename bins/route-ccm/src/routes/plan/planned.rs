//! One change of the route table.

use std::net::IpAddr;

use ccm_cloud::{
    AddressKind, IpFamily, NodeAddress, ProviderId, Route, RouteChange, RouteTarget, WantedRoute,
};
use ccm_objects::Shared;
use serde::{Deserialize, Serialize};

use super::{Held, wanted::NodeView};

/// One change of the table, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The change.
    pub change: RouteChange,
    /// The node that gets the route.
    pub node: Option<Shared>,
    /// The reason.
    pub why: String,
    /// The reason why it is held, or `None` if it is due.
    pub held: Option<Held>,
}

impl Planned {
    /// Returns the change in words: `create 10.244.1.0/24 to node-1`.
    pub fn words(&self) -> String {
        let destination = self.change.destination();
        match &self.change {
            RouteChange::Create(new) => format!("create {destination} to {}", new.node.name),
            RouteChange::Replace { old, new } => {
                let (from, to) = (target_of(old), target_like(old, new));
                format!("replace {destination} of {}: {from} -> {to}", new.node.name)
            }
            RouteChange::Delete(old) => format!("delete {destination} to {}", target_of(old)),
        }
    }

    /// Returns true if the answer says something of this node: no other one has registered under the name since the
    /// change was planned, and a change that has failed would be the same now.
    pub fn concerns(&self, view: &NodeView, has_failed: bool) -> bool {
        let is_same = self.wanted().is_some_and(|new| *new.owner.uid == *view.node.uid);
        is_same && (!has_failed || self.suits(view))
    }

    /// Returns true if the change gives the node, as it is now, its route. Names and other addresses do not matter.
    pub fn suits(&self, view: &NodeView) -> bool {
        let id = view.id.as_ref().map(ProviderId::as_str);
        let addresses = view.addresses();
        self.wanted().is_some_and(|new| {
            *new.owner.uid == *view.node.uid
                && new.node.provider_id.as_deref() == id
                && internal(&new.addresses).eq(internal(&addresses))
        })
    }

    /// Returns the route that the change makes.
    fn wanted(&self) -> Option<&WantedRoute> {
        match &self.change {
            RouteChange::Create(new) | RouteChange::Replace { new, .. } => Some(new),
            RouteChange::Delete(_) => None,
        }
    }

    /// Returns the route that the change removes.
    pub fn old(&self) -> Option<&Route> {
        match &self.change {
            RouteChange::Replace { old, .. } | RouteChange::Delete(old) => Some(old),
            RouteChange::Create(_) => None,
        }
    }

    /// Returns the kind of change.
    pub fn kind(&self) -> &'static str {
        match &self.change {
            RouteChange::Create(_) => "create",
            RouteChange::Replace { .. } => "replace",
            RouteChange::Delete(_) => "delete",
        }
    }
}

/// Returns the addresses that can be a target.
fn internal(addresses: &[NodeAddress]) -> impl Iterator<Item = &str> {
    let is_internal = |one: &&NodeAddress| one.kind == AddressKind::InternalIp;
    addresses.iter().filter(is_internal).map(|one| one.address.as_str())
}

/// Returns the target of a route in words.
pub(super) fn target_of(route: &Route) -> String {
    route.target.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

/// Returns the target that the cloud will give the new route, in the form of the old route's
/// target.
fn target_like(old: &Route, new: &WantedRoute) -> String {
    let family = IpFamily::from_address(new.destination.addr());
    let mut ips = internal(&new.addresses).filter_map(|one| one.parse().ok());
    let like = match &old.target {
        Some(RouteTarget::Address(_)) => {
            ips.find(|ip: &IpAddr| IpFamily::from_address(*ip) == family).map(|ip| ip.to_string())
        }
        Some(RouteTarget::Instance(_)) => new.node.provider_id.clone(),
        Some(RouteTarget::Node(_) | RouteTarget::Blackhole(_)) | None => None,
    };
    like.unwrap_or_else(|| new.node.name.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ccm_cloud::{ClusterId, NodeIdentity, Owner};
    use ccm_objects::{Address, Node};

    use super::*;

    fn view(uid: &str, id: &str, addresses: &[(&'static str, &'static str)]) -> NodeView {
        let addresses = addresses.iter().map(|(kind, address)| Address::new(*kind, *address));
        let node = Node { uid: uid.into(), addresses: addresses.collect(), ..Node::default() };
        NodeView { node: Arc::new(node), id: ProviderId::parse(id).ok(), left_out: None }
    }

    #[test]
    fn an_answer_concerns_the_node_that_it_was_asked_for() {
        let asked = view("u", "sim://a", &[("InternalIP", "10.0.0.1"), ("Hostname", "n")]);
        let new = WantedRoute {
            destination: "10.244.1.0/24".parse().expect("a network"),
            owner: Owner {
                cluster: ClusterId { name: String::new(), uid: String::new() },
                uid: asked.node.uid.to_string(),
                namespace: String::new(),
                name: String::new(),
            },
            node: NodeIdentity {
                provider_id: asked.id.as_ref().map(ToString::to_string),
                ..NodeIdentity::default()
            },
            addresses: asked.addresses(),
        };
        let change = RouteChange::Create(Arc::new(new));
        let planned = Planned { change, node: None, why: String::new(), held: None };
        let moved = view("u", "sim://a", &[("InternalIP", "10.0.0.2"), ("Hostname", "n")]);
        let renamed = view("u", "sim://a", &[("Hostname", "x"), ("InternalIP", "10.0.0.1")]);
        let again = view("v", "sim://a", &[("InternalIP", "10.0.0.1"), ("Hostname", "n")]);
        let rebuilt = view("u", "sim://b", &[("InternalIP", "10.0.0.1"), ("Hostname", "n")]);
        for (now, success, failure) in [
            (&asked, true, true),
            (&renamed, true, true),
            (&moved, true, false),
            (&rebuilt, true, false),
            (&again, false, false),
        ] {
            let concerns = (planned.concerns(now, false), planned.concerns(now, true));
            assert_eq!(concerns, (success, failure), "{now:?}");
        }
    }
}
