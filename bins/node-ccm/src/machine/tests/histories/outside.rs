//! The cloud, the API server, and what happens there by itself.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{
    AbsenceProof, AddressKind, CloudError, ErrorKind, Lookup, LookupResult, NodeAddress,
    ProofMethod,
};
use ccm_kube::ApiError;
use ccm_objects::{Address, Condition, Node, NodeChange, Shared as Name, node_keys::ZONE};
use ccm_runtime::explain::Fares;

use super::{
    super::{super::*, instance, tainted},
    world::{Kind, World},
};
use crate::plan::{APPROVED, Step, addresses, is_approved};

/// The number of names of nodes.
const NODES: usize = 6;

/// Sets these keys, or removes them.
fn edit<V: for<'a> From<&'a str>>(
    map: &mut BTreeMap<Name, V>,
    changes: &BTreeMap<String, Option<String>>,
) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key.as_str().into(), value.as_str().into())),
            None => drop(map.remove(key.as_str())),
        }
    }
}

fn change_node(node: &mut Node, change: &NodeChange) {
    edit(&mut node.labels, &change.labels);
    edit(&mut node.annotations, &change.annotations);
    if let Some(taints) = &change.taints {
        node.taints.clone_from(taints);
    }
    if let Some(id) = &change.provider_id {
        assert_eq!(node.provider_id, None, "an ID was replaced");
        assert_eq!(**id, *format!("sim://{}", node.name));
        node.provider_id = Some(id.as_str().into());
    }
}

impl World {
    pub(super) fn answer(&mut self, node: &Node) -> LookupResult {
        if !self.is_calm && self.kind == Kind::Faults && self.random.one_in(4) {
            let kinds = [ErrorKind::Unavailable, ErrorKind::Throttled, ErrorKind::Forbidden];
            return Err(CloudError::new(kinds[self.random.below(3)], "no"));
        }
        match self.instances.get(&node.name) {
            Some(instance) => Ok(Lookup::Found(Box::new(instance.clone()))),
            None => Ok(Lookup::Gone(AbsenceProof {
                method: ProofMethod::ById,
                evidence: "no such server".to_owned(),
                request_id: None,
            })),
        }
    }

    pub(super) fn write(
        &mut self,
        node: &Arc<Node>,
        step: &Step,
    ) -> Result<Arc<Node>, Option<ApiError>> {
        if !self.is_calm && self.kind == Kind::Faults && self.random.one_in(4) {
            let errors = [None, Some(ApiError::Conflict), Some(ApiError::Unauthorized)];
            return Err(errors[self.random.below(3)].clone());
        }
        let held = self.objects.get(&node.name).cloned().filter(|held| held.uid == node.uid);
        let Some(held) = held else { return Err(Some(ApiError::NotFound)) };
        if held.resource_version != node.resource_version {
            return Err(Some(ApiError::Conflict));
        }
        let is_dropped = !self.is_calm && self.kind == Kind::Others && self.random.one_in(5);
        let mut new = Node::clone(&held);
        match step {
            _ if is_dropped => {}
            Step::SetAddresses { addresses, ends_approval, .. } => {
                new.addresses.clone_from(addresses);
                if *ends_approval {
                    new.annotations.remove(APPROVED);
                }
            }
            Step::ChangeNode(change) => change_node(&mut new, change),
        }
        let is_approved = is_approved(&held) || self.approval.is_some();
        self.rules.written(&held, &new, step, is_approved, self.now);
        if self.kind == Kind::Budget {
            self.rules.check_budget(self.now);
        }
        let new = self.set(new);
        self.store.insert(Name::clone(&new.name), Arc::clone(&new));
        Ok(new)
    }

    fn name(&mut self) -> Name {
        format!("node-{}", self.random.below(NODES)).into()
    }

    pub(super) fn register(&mut self) {
        let name = self.name();
        if !self.instances.contains_key(&name) {
            let number = self.instances.len() + 1;
            let mut instance = instance(&name);
            instance.zone = Some("a".to_owned());
            instance.addresses = vec![
                NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}")),
                NodeAddress::new(AddressKind::Hostname, &*name),
            ];
            self.instances.insert(Name::clone(&name), instance);
        }
        if self.objects.contains_key(&name) {
            return;
        }
        let ready =
            Condition { kind: "Ready".into(), status: "True".into(), ..Condition::default() };
        let provider_id = match self.random.below(8) {
            0 => Some(format!("other://{name}").into()),
            1 | 2 => Some(format!("sim://{name}").into()),
            _ => None,
        };
        let uid = format!("{name}-{}", self.versions).into();
        let edge = (Name::from("edge"), Name::from(""));
        let labels = self.random.one_in(8).then_some(edge).into_iter().collect();
        let conditions = vec![ready];
        self.set(Node { uid, provider_id, conditions, labels, ..tainted(&name) });
    }

    pub(super) fn change_node(&mut self) {
        let name = self.name();
        let Some(mut node) = self.objects.get(&name).map(|held| Node::clone(held)) else { return };
        let others = self.kind == Kind::Others && !self.is_calm;
        match self.random.below(8) {
            0 if self.random.one_in(3) => {
                self.objects.remove(&name);
                return self.news.push_back((name, None));
            }
            1 => node.conditions[0].status = "False".into(),
            2 | 3 => node.conditions[0].status = "True".into(),
            4 => drop(node.labels.insert("edited".into(), self.versions.to_string().into())),
            5 if others => drop(node.labels.insert(ZONE.1.into(), "edited".into())),
            6 if others => {
                node.addresses =
                    vec![Address { kind: "InternalIP".into(), address: "10.9.9.9".into() }];
            }
            7 if others && !node.is_uninitialised() => node.taints = tainted(&name).taints,
            7 if self.random.one_in(4) => {
                drop(node.annotations.insert(APPROVED.into(), "yes".into()));
            }
            _ => {}
        }
        self.set(node);
    }

    pub(super) fn change_cloud(&mut self) {
        let names: Vec<Name> = self.instances.keys().map(Name::clone).collect();
        let is_mass = self.kind == Kind::Budget && self.random.one_in(2);
        let one = self.name();
        for name in names.into_iter().filter(|name| is_mass || *name == one) {
            let Some(instance) = self.instances.get_mut(&name) else { continue };
            match self.random.below(4) {
                0 => instance.zone = Some(["a", "b"][self.random.below(2)].to_owned()),
                1 | 2 => {
                    let last = self.random.below(200) + 1;
                    instance.addresses[0] =
                        NodeAddress::new(AddressKind::InternalIp, format!("10.1.0.{last}"));
                }
                _ if self.kind == Kind::Faults => drop(self.instances.remove(&name)),
                _ => {}
            }
        }
    }

    pub(super) fn change_settings(&mut self) {
        if !self.random.one_in(4) {
            return;
        }
        let selectors = ["!edge", "", "!edge,!edited"];
        self.params.selector = selectors[self.random.below(3)].parse().unwrap();
        self.params.per_second = [Some(1.0), Some(0.5)][self.random.below(2)];
        self.hear(Event::Set(self.params.clone()));
    }

    /// All nodes of instances that exist are initialised and as the cloud says; the others are as they were.
    pub(super) fn is_right(&self) {
        for node in self.objects.values() {
            let Some(instance) = self.instances.get(&node.name) else { continue };
            let is_ours = node.provider_id.as_deref().is_none_or(|id| id.starts_with("sim://"));
            if !is_ours || node.labels.contains_key("edge") {
                continue;
            }
            let state = || (self.machine.entries.get(&node.name), node);
            // Only its name says that the instance is its: a node that lost its address before it got an ID.
            if !node.is_uninitialised() && node.provider_id.is_none() {
                continue;
            }
            assert!(!node.is_uninitialised(), "{:?}", state());
            let ip = &instance.addresses[0].address;
            assert_eq!(addresses::primary(&node.addresses), Some(&**ip), "{:?}", state());
            let zone = node.labels.get(ZONE.1).map(|zone| &**zone);
            assert_eq!(zone, instance.zone.as_deref(), "{:?}", state());
            let told = self.told(node);
            assert_eq!(told.fares, Fares::Fine, "{told:?} {:?}", state());
        }
        assert!(self.machine.writing.is_empty(), "nothing is written any more");
        assert!(self.machine.entries.keys().all(|name| self.store.contains_key(name)));
    }
}
