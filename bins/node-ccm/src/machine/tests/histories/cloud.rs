//! The cloud: its instances, and what it answers.

use ccm_cloud::{
    AbsenceProof, AddressKind, CloudError, ErrorKind, Instance, Lookup, LookupResult, NodeAddress,
    ProofMethod, ProviderId,
};
use ccm_objects::{Node, Shared as Name};

use super::{super::instance, Kind, world::World};

/// The scheme of the nodes that are another provider's one day.
pub(super) const FOREIGN: &str = "split://";
/// A label in the provider's own domain.
pub(super) const RACK: &str = "sim.quartet.dev/rack";
/// A label that all machines have.
pub(super) const WAVE: &str = "wave";
/// A value that no label may have.
pub(super) const ILLEGAL: &str = "not legal";

/// Returns the system UUID of the machine of this name. The cloud's own part of the ID of its
/// instance is the same.
pub(super) fn uuid(name: &str) -> String {
    format!("i-{name}")
}

fn internal(address: &str) -> NodeAddress {
    NodeAddress::new(AddressKind::InternalIp, address)
}

/// Returns true if the instance has the name and the addresses of the node.
pub(super) fn agrees(node: &Node, instance: &Instance) -> bool {
    let names = |name: &str| name == &*node.name;
    let is_host = |one: &NodeAddress| one.kind == AddressKind::Hostname && names(&one.address);
    let shares = |one: &NodeAddress| {
        let is_ip = one.address.parse::<std::net::IpAddr>().is_ok();
        is_ip && node.addresses.iter().any(|own| *own.address == *one.address)
    };
    let is_own = |one: &NodeAddress| is_host(one) || shares(one);
    let addresses = || instance.addresses.iter();
    let is_asked_for = |one: &NodeAddress| super::kubelets::wanted(node).contains(&one.address);
    names(&instance.name)
        || is_same_machine(node, instance)
        || addresses().any(|one| is_own(one) || is_asked_for(one))
}

/// Returns true if the system UUID of the node is the cloud's own part of the instance's ID.
pub(super) fn is_same_machine(node: &Node, instance: &Instance) -> bool {
    let own = instance.provider_id.as_str().rsplit('/').next();
    node.system_uuid.as_deref() == own
}

/// Returns true if the name shows which node the instance belongs to.
pub(super) fn is_of_name(node: &Node, instance: &Instance) -> bool {
    let hosts = instance.addresses.iter().filter(|one| one.kind == AddressKind::Hostname);
    *instance.name == *node.name || hosts.into_iter().any(|one| *one.address == *node.name)
}

impl World {
    /// Returns the instance by ID, by system UUID, or by name.
    pub(super) fn find(&self, node: &Node) -> Option<&Instance> {
        let by_name = || self.instances.get(&node.name);
        match (node.provider_id.as_deref(), node.system_uuid.as_deref()) {
            (Some(id), _) => self.instances.values().find(|one| one.provider_id.as_str() == id),
            (None, Some(_)) => {
                let mut all = self.instances.values();
                all.find(|one| is_same_machine(node, one)).or_else(by_name)
            }
            (None, None) => by_name(),
        }
    }

    pub(super) fn answer(&mut self, node: &Node) -> LookupResult {
        if !self.is_calm && self.kind == Kind::Faults && self.random.one_in(4) {
            if self.random.one_in(8) {
                return Ok(Lookup::NotOurs("another controller does it".to_owned()));
            }
            let kinds = [ErrorKind::Unavailable, ErrorKind::Throttled, ErrorKind::Forbidden];
            return Err(CloudError::new(kinds[self.random.below(3)], "no"));
        }
        match self.find(node) {
            Some(instance) => Ok(Lookup::Found(Box::new(instance.clone()))),
            None => Ok(Lookup::Gone(AbsenceProof {
                method: ProofMethod::ById,
                evidence: "no such server".to_owned(),
                request_id: None,
                kept: None,
            })),
        }
    }

    /// Makes the machine of this name, unless there is one.
    pub(super) fn create(&mut self, name: &Name) {
        if self.instances.contains_key(name) {
            return;
        }
        let number = self.versions % 200 + 1;
        let mut one = instance(name);
        let scheme = if self.random.one_in(12) { FOREIGN } else { "sim://" };
        one.provider_id = ProviderId::parse(&format!("{scheme}{}", uuid(name))).unwrap();
        one.zone = Some("a".to_owned());
        one.addresses = vec![internal(&format!("10.{}.0.{number}", self.instances.len()))];
        let host = || NodeAddress::new(AddressKind::Hostname, &**name);
        match self.random.below(10) {
            0 => one.addresses.push(internal("not-an-address")),
            1 => one.addresses.push(internal(&format!("fd00::{number}"))),
            2 | 3 => one.addresses.push(host()),
            4 => one.addresses.insert(0, NodeAddress::new(AddressKind::ExternalIp, "192.0.2.1")),
            // The provider finds it by other means than its name.
            5 => one.name = format!("vm-{name}"),
            6..=8 if self.kind == Kind::Doubts => {
                one.name.clear();
                one.addresses.clear();
            }
            _ => {}
        }
        match self.random.below(6) {
            0 => drop(one.labels.insert("rack".to_owned(), ILLEGAL.to_owned())),
            1 => drop(one.labels.insert("node.kubernetes.io/pool".to_owned(), "a".to_owned())),
            2 => drop(one.labels.insert(RACK.to_owned(), "r1".to_owned())),
            3 => drop(one.labels.insert("rack".to_owned(), "r1".to_owned())),
            _ => {}
        }
        self.instances.insert(Name::clone(name), one);
    }

    pub(super) fn change_cloud(&mut self) {
        let names: Vec<Name> = self.instances.keys().map(Name::clone).collect();
        let is_mass = self.kind == Kind::Budget && self.random.one_in(6);
        let one = self.name();
        for name in names.into_iter().filter(|name| is_mass || *name == one) {
            let what = self.random.below(8);
            let last = self.random.below(200) + 1;
            let zone = ["a", "b", ILLEGAL][self.random.below(3)];
            let may_go = self.kind != Kind::Others && (!is_mass || self.random.one_in(4));
            let Some(instance) = self.instances.get_mut(&name) else { continue };
            match what {
                0..=2 => instance.zone = Some(zone.to_owned()),
                3 | 4 => {
                    let mut own = instance.addresses.iter_mut();
                    let first = own.find(|one| one.kind == AddressKind::InternalIp);
                    if let Some(first) = first {
                        *first = internal(&format!("10.100.0.{last}"));
                    }
                }
                5 if instance.labels.contains_key(RACK) => {
                    instance.labels.insert(RACK.to_owned(), format!("r{last}"));
                }
                6 if may_go => drop(self.instances.remove(&name)),
                _ => {}
            }
        }
    }
}
