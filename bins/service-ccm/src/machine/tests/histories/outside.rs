//! Changes by users and nodes, and the API server's answers to writes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_kube::ApiError;
use ccm_objects::{
    Address, Node, Service, ServiceCondition, ServiceDetails, ServicePort, Shared as Name, Taint,
};

use super::world::{Kind, World};
use crate::{
    machine::{
        effect::Write,
        event::{Changed, Event},
    },
    plan::{
        Step,
        reason::{PROVISIONING, Reason, SERVING},
        status::StatusPatch,
    },
};

/// The number of nodes.
const NODES: usize = 12;
/// The number of the node that comes last.
pub(super) const LATE: usize = 20;
/// The class of Services of another controller.
pub(super) const THEIRS: &str = "theirs";
/// The taint of an autoscaler.
pub(super) const MARK: &str = "ToBeDeletedByClusterAutoscaler";

/// Returns the number of names of Services.
pub(super) const fn services(kind: Kind) -> usize {
    if matches!(kind, Kind::Nodes | Kind::Lies) { 6 } else { 4 }
}

impl World {
    /// Lets something happen, and then time pass.
    pub(super) fn step(&mut self) {
        match self.random.below(12) {
            0 | 1 => self.edit_service(),
            2 => self.end_service(),
            3 | 4 if self.kind == Kind::Nodes => self.change_nodes(),
            3 => self.change_nodes(),
            5 | 6 => self.tell_some(),
            7 if self.kind == Kind::Others => self.spoil(),
            7 if self.kind == Kind::Nodes => self.crowd(),
            7 | 9 if self.kind == Kind::Labels => self.change_labels(),
            7 if self.kind == Kind::Settings => self.change_settings(),
            9 if self.kind == Kind::Settings => self.change_wish(),
            7 if self.kind == Kind::Refusals => self.change_trouble(),
            9 if self.kind == Kind::Refusals && self.random.one_in(3) => self.hurry(),
            // No question is answered by both clouds.
            7 | 9 if self.kind == Kind::Lies && self.flights.is_empty() => {
                self.change_lie();
            }
            10 if self.kind == Kind::Others => {
                let place = self.random.below(self.api.len() + 1);
                self.contested = self.api.keys().nth(place).cloned();
            }
            8 if self.random.one_in(4) => {
                // The new leader sees only the result of events between two leaders.
                if self.kind == Kind::Nodes {
                    self.change_nodes();
                }
                self.lead();
            }
            _ => {}
        }
        let wait = match self.random.below(8) {
            0 => Duration::from_mins(u64::try_from(self.random.below(20)).unwrap_or(0)),
            1 | 2 => Duration::from_secs(u64::try_from(self.random.below(90)).unwrap_or(0)),
            _ => Duration::from_millis(u64::try_from(self.random.below(3000)).unwrap_or(0)),
        };
        let until = self.now + wait;
        self.run(until);
        self.explain(&self.store);
    }

    /// Checks that each Service has an explanation.
    pub(super) fn explain(&self, services: &BTreeMap<Name, Arc<Service>>) {
        // A Service that has to be read again is not planned at once.
        if self.kind == Kind::Settings && !self.is_calm {
            return;
        }
        for service in services.values() {
            let told = self.machine.explain(&service.key, Some(service), self.now);
            self.rules.explained(service, &told);
        }
    }

    pub(super) fn store_as(&mut self, service: Service) -> Arc<Service> {
        self.versions += 1;
        let resource_version = self.versions.to_string().into();
        let service = Arc::new(Service { resource_version, ..service });
        let name = Name::clone(&service.key);
        if service.deleting && !service.has_finalizer {
            self.api.remove(&name);
            self.news.push_back((name, None));
        } else {
            self.api.insert(Name::clone(&name), Arc::clone(&service));
            self.news.push_back((name, Some(Arc::clone(&service))));
        }
        service
    }

    /// Lets a user create a Service.
    pub(super) fn add_service(&mut self, key: &Name) {
        let uid = format!("uid-{}", self.versions).into();
        let class = self.random.one_in(6).then(|| THEIRS.into());
        let class = class.or_else(|| self.gold()).filter(|_| key.starts_with("shop/"));
        let details = ServiceDetails {
            ports: vec![self.port()],
            allocates_node_ports: true,
            ip_families: vec!["IPv4".into()],
            class,
            created: self.now.to_string().parse().ok(),
            ..ServiceDetails::default()
        };
        let (key, details) = (Name::clone(key), Some(Box::new(details)));
        self.store_as(Service { key, uid, is_load_balancer: true, details, ..Service::default() });
    }

    fn port(&mut self) -> ServicePort {
        let port = u16::try_from(80 + self.random.below(3)).unwrap_or(80);
        ServicePort {
            protocol: "TCP".into(),
            port,
            node_port: Some(30000 + port),
            ..ServicePort::default()
        }
    }

    /// Lets a user create or change a Service.
    fn edit_service(&mut self) {
        let key: Name = format!("shop/web-{}", self.random.below(services(self.kind))).into();
        if !self.api.contains_key(&key) {
            return self.add_service(&key);
        }
        self.edit(&key);
    }

    /// Lets a user change this Service.
    pub(super) fn edit(&mut self, key: &Name) {
        let Some(known) = self.api.get(key).filter(|known| !known.deleting) else { return };
        let mut service = Service::clone(known);
        if self.random.one_in(6) {
            service.is_load_balancer = !service.is_load_balancer;
        }
        let port = self.port();
        if let Some(details) = &mut service.details {
            details.ports = vec![port];
        }
        self.store_as(service);
    }

    /// Lets a user delete a Service, or remove the finalizer as well.
    fn end_service(&mut self) {
        let place = self.random.below(self.api.len());
        let Some(key) = self.api.keys().nth(place).cloned() else { return };
        self.end(&key);
    }

    /// Does the same for this Service.
    pub(super) fn end(&mut self, key: &Name) {
        let Some(service) = self.api.get(key).cloned() else { return };
        let releases = self.kind == Kind::Others && self.random.one_in(4);
        let has_finalizer = service.has_finalizer && !releases;
        let service = Service { deleting: true, has_finalizer, ..Service::clone(&service) };
        self.store_as(service);
    }

    /// Tells the store of changes, in their order.
    fn tell_some(&mut self) {
        let count = self.random.below(self.news.len() + 1);
        (0..count).for_each(|_| self.tell_one());
    }

    pub(super) fn tell_all(&mut self) {
        while !self.news.is_empty() {
            self.tell_one();
        }
    }

    fn tell_one(&mut self) {
        let Some((name, new)) = self.news.pop_front() else { return };
        let version = |one: &Service| one.resource_version.parse::<u64>().unwrap_or_default();
        let old = self.store.get(&name).cloned();
        if let (Some(old), Some(new)) = (&old, &new)
            && version(new) <= version(old)
        {
            // An answer to a write came first.
            return;
        }
        match &new {
            Some(new) => drop(self.store.insert(name, Arc::clone(new))),
            None => drop(self.store.remove(&name)),
        }
        if let (Some(one), Some(other)) = (&old, &new)
            && one.uid != other.uid
        {
            self.service_changed(old, None);
            return self.service_changed(None, new);
        }
        if old.is_some() || new.is_some() {
            if let Some(new) = &new {
                self.rules.classes.told(new, &self.settings, self.now);
            }
            self.told(Changed { old, new });
        }
    }

    /// Returns the API server's answer to a write.
    pub(super) fn write(&mut self, write: &Write) -> Result<Arc<Service>, Option<ApiError>> {
        if !self.is_calm && self.kind == Kind::Faults && self.random.one_in(5) {
            let errors = [None, Some(ApiError::Conflict), Some(ApiError::Timeout)];
            return Err(errors[self.random.below(3)].clone());
        }
        let name = &write.service.key;
        let held = self.api.get(name).filter(|held| held.uid == write.service.uid);
        let Some(held) = held else { return Err(Some(ApiError::NotFound)) };
        if held.resource_version != write.service.resource_version {
            return Err(Some(ApiError::Conflict));
        }
        let mut new = Service::clone(held);
        self.rules.written(&new, write, &self.cloud);
        match &write.step {
            Step::Protect => {
                new.has_finalizer = true;
                set_condition(&mut new, Reason::Creating, "the load balancer is being created");
            }
            Step::Release => release(&mut new, write),
            Step::Write(change) => set_status(&mut new, change),
            other => panic!("{other:?}"),
        }
        let old = Service::clone(held);
        if write.step == Step::Protect {
            self.rules.waiting.enters(&new, self.now);
        }
        let new = self.store_as(new);
        if self.api.contains_key(name) {
            self.store.insert(Name::clone(name), Arc::clone(&new));
        }
        if self.contested.as_ref() == Some(name) && matches!(write.step, Step::Write(_)) {
            self.store_as(old);
        }
        Ok(new)
    }

    /// Adds a node with this number, or makes it as it should be. `is_marked`: an autoscaler says
    /// that it goes.
    pub(super) fn set_node(&mut self, number: usize, is_marked: bool) {
        let name: Name = format!("node-{number}").into();
        let taint = Taint { key: MARK.into(), ..Taint::default() };
        let node = Arc::new(Node {
            name: Name::clone(&name),
            uid: format!("uid-{number}").into(),
            addresses: vec![Address::new("InternalIP", format!("10.0.0.{number}"))],
            labels: self.labels(number),
            taints: if is_marked { vec![taint] } else { Vec::new() },
            ..Node::default()
        });
        let old = self.nodes.insert(name, Arc::clone(&node));
        if is_marked {
            self.rules.marked(&node.name);
        }
        self.hear(Event::Node(Changed { old, new: Some(node) }));
    }

    fn change_nodes(&mut self) {
        let number = self.random.below(NODES);
        let name: Name = format!("node-{number}").into();
        if !self.nodes.contains_key(&name) {
            return self.set_node(number, false);
        }
        if self.random.one_in(2) {
            return self.set_node(number, true);
        }
        // Many may be deleted at once by mistake.
        let many = matches!(self.kind, Kind::Nodes | Kind::Labels);
        let count = if many && self.random.one_in(3) { NODES } else { 1 };
        for number in number..(number + count).min(NODES) {
            let name: Name = format!("node-{number}").into();
            if let Some(old) = self.nodes.remove(&name) {
                self.hear(Event::Node(Changed { old: Some(old), new: None }));
            }
        }
    }
}

fn set_condition(service: &mut Service, reason: Reason, message: &str) {
    let Some(details) = &mut service.details else { return };
    details.conditions.retain(|one| *one.kind != *reason.condition());
    details.conditions.push(ServiceCondition {
        kind: reason.condition().into(),
        status: reason.status().into(),
        reason: reason.as_str().into(),
        message: message.into(),
        ..ServiceCondition::default()
    });
}

fn set_status(service: &mut Service, change: &StatusPatch) {
    for condition in &change.conditions {
        set_condition(service, condition.0, &condition.1);
    }
    let Some(details) = &mut service.details else { return };
    if let Some(ingress) = &change.ingress {
        details.ingress.clone_from(ingress);
    }
    for (key, value) in &change.annotations {
        match value {
            Some(value) => {
                drop(details.annotations.insert(key.as_str().into(), value.as_str().into()));
            }
            None => drop(details.annotations.remove(key.as_str())),
        }
    }
}

fn release(service: &mut Service, write: &Write) {
    service.has_finalizer = false;
    set_status(service, &write.change);
    let deleting = service.deleting;
    if let Some(details) = service.details.as_mut().filter(|_| !deleting) {
        details.conditions.retain(|one| ![PROVISIONING, SERVING].contains(&&*one.kind));
    }
}
