//! The kubelets that register nodes.

use ccm_objects::{Address, Condition, Node, Shared as Name, Taint, node_keys::PROVIDED_NODE_IP};

use super::{
    super::tainted,
    Kind,
    cloud::{RACK, uuid},
    world::World,
};
use crate::plan::LABEL_POLICY;

/// The number of names of nodes. With budgets half of the nodes are not selected.
pub(super) const NODES: usize = 6;

/// Returns the addresses that the kubelet's `--node-ip` asks for.
pub(super) fn wanted(node: &Node) -> Vec<String> {
    node.annotation(PROVIDED_NODE_IP).map(|text| vec![text.to_owned()]).unwrap_or_default()
}

fn address(kind: &str, address: &str) -> Address {
    Address::new(kind, address)
}

impl World {
    pub(super) fn name(&mut self) -> Name {
        let most = if self.kind == Kind::Budget { 2 * NODES } else { NODES };
        format!("node-{}", self.random.below(most)).into()
    }

    pub(super) fn register(&mut self) {
        let name = self.name();
        self.create(&name);
        if self.objects.contains_key(&name) {
            return;
        }
        let node = self.kubelet(&name);
        self.set(node);
    }

    /// Registers the node again under its name, with another UID.
    pub(super) fn register_again(&mut self, name: &Name) {
        self.create(name);
        let node = self.kubelet(name);
        self.set(node);
    }

    fn kubelet(&mut self, name: &Name) -> Node {
        let ready =
            Condition { kind: "Ready".into(), status: "True".into(), ..Condition::default() };
        let uid = format!("{name}-{}", self.versions).into();
        let conditions = vec![ready];
        let mut node = Node { uid, provider_id: None, conditions, ..tainted(name) };
        let number: Option<usize> = name.rsplit('-').next().and_then(|text| text.parse().ok());
        let is_edge = match self.kind {
            Kind::Budget => number.is_some_and(|number| number >= NODES),
            _ => self.random.one_in(8),
        };
        if is_edge {
            node.labels.insert("edge".into(), "".into());
        }
        if is_edge && self.kind == Kind::Budget {
            // Another controller has initialised it.
            node.taints.clear();
        }
        let own = self.instances.get(name).map(|one| one.provider_id.as_str().to_owned());
        let own = own.unwrap_or_else(|| format!("sim://{}", uuid(name)));
        match self.random.below(16) {
            0 => node.provider_id = Some(format!("other://{name}").into()),
            1..=3 => node.provider_id = Some(own.as_str().into()),
            4 => node.taints.clear(),
            5 => {
                node.taints.clear();
                node.provider_id = Some(own.as_str().into());
            }
            6 | 7 => node.taints.insert(0, Taint { key: "team".into(), ..Taint::default() }),
            _ => {}
        }
        if self.kind == Kind::Doubts && self.random.one_in(2) {
            self.is_doubtful(&mut node);
        }
        self.gives_addresses(&mut node);
        match self.random.below(12) {
            0 => drop(node.annotations.insert(LABEL_POLICY.into(), "once".into())),
            1 => drop(node.annotations.insert(LABEL_POLICY.into(), "off".into())),
            2 => drop(node.annotations.insert(LABEL_POLICY.into(), "never".into())),
            3 => drop(node.labels.insert(RACK.into(), "forged".into())),
            4 => drop(node.labels.insert("rack".into(), "own".into())),
            _ => {}
        }
        node
    }

    /// Gives the machine another name, a copy of another one's disk, or its kubelet another ID.
    fn is_doubtful(&mut self, node: &mut Node) {
        let other = self.name();
        let Some(id) = self.instances.get(&other).map(|one| one.provider_id.to_string()) else {
            return;
        };
        match self.random.below(6) {
            0 => node.provider_id = Some(id.as_str().into()),
            1..=3 => {
                node.provider_id = Some(id.as_str().into());
                node.system_uuid = Some(uuid(&other).as_str().into());
            }
            _ => {
                node.system_uuid = Some(uuid(&other).as_str().into());
                if self.random.one_in(2) {
                    node.taints.clear();
                }
            }
        }
    }

    fn gives_addresses(&mut self, node: &mut Node) {
        let ips = self.instances.get(&node.name).map(|one| {
            let all = one.addresses.iter().map(|one| one.address.clone());
            all.filter(|one| one.parse::<std::net::IpAddr>().is_ok()).collect::<Vec<_>>()
        });
        let mut ips = ips.unwrap_or_default();
        let first = ips.first().cloned();
        match self.random.below(6) {
            0..=3 if first.is_none() => node.addresses.push(address("InternalIP", "172.16.0.1")),
            0 => node.addresses.push(address("InternalIP", "172.16.0.1")),
            1 | 2 => node.addresses.extend(first.iter().map(|ip| address("InternalIP", ip))),
            _ => {}
        }
        if self.random.one_in(3) {
            node.addresses.push(address("Hostname", &node.name));
        }
        if self.random.one_in(6) {
            ips.push("172.16.0.2".to_owned());
            let ip = self.random.one_of(&ips);
            node.annotations.insert(PROVIDED_NODE_IP.into(), ip.as_str().into());
        }
    }
}
