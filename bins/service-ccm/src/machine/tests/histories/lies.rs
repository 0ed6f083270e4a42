//! A cloud that does not show what it has: another one, or the same one after a restore.

use ccm_objects::{Service, Shared as Name};

use super::{
    driver::Flight,
    world::{Kind, World},
};
use crate::{
    machine::{
        effect::Ask,
        event::{Due, Event},
    },
    plan::RELEASE_APPROVED,
};

impl World {
    /// Lets the cloud begin to be another one, or end it.
    pub(super) fn change_lie(&mut self) {
        if !self.is_lying && self.random.one_in(3) {
            self.is_lying = true;
            self.is_same = self.random.one_in(2);
            self.cloud.hide();
        } else {
            self.end_lie();
        }
    }

    pub(super) fn end_lie(&mut self) {
        let is_double = self.is_lying && self.cloud.bring_back(self.offer.traits.lists);
        self.is_lying = false;
        if is_double {
            self.rules.spoilt();
        }
    }

    /// Returns true if the cloud is provably another one.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_lying && !self.is_same
    }

    /// Returns true if clients have learnt the address of its load balancer.
    pub(super) fn shows_address(&self, uid: &str) -> bool {
        let service = self.api.values().find(|one| *one.uid == *uid);
        let details = service.and_then(|service| service.details.as_deref());
        details.is_some_and(|details| !details.ingress.is_empty())
    }

    /// Lists, if the provider has a list.
    pub(super) fn list_all(&mut self) {
        if self.offer.traits.lists {
            return self.fly(Flight::List(self.now));
        }
        let concerned = |service: &&std::sync::Arc<Service>| service.concerns_load_balancers();
        let services = self.store.values().filter(concerned).cloned().collect();
        for request in self.hear(Event::NoList(services)) {
            self.request(request);
        }
    }

    /// Returns true if the Service was read as the settings need it; else it is seen without its annotations, or
    /// before the settings have changed.
    pub(super) fn is_read(&mut self, due: &mut Due) -> bool {
        let may_lack = self.kind == Kind::Settings && !self.is_calm && due.service.is_some();
        if !may_lack || !self.random.one_in(8) {
            return true;
        }
        if self.random.one_in(2) {
            due.changes = due.changes.wrapping_sub(1);
            return false;
        }
        due.is_read = false;
        let mut service = due.service.as_deref().cloned().unwrap_or_default();
        service.details.iter_mut().for_each(|details| details.annotations.clear());
        due.service = Some(service.into());
        false
    }

    /// Checks a call that is made: the settings allow it.
    pub(super) fn asks(&mut self, ask: &Ask) {
        let name: &Name = &ask.name;
        let is_marked = |service: Option<&std::sync::Arc<Service>>| {
            service.is_some_and(|service| service.annotation(RELEASE_APPROVED).is_some())
        };
        let is_approved = is_marked(self.store.get(name)) || is_marked(self.api.get(name));
        let service = self.store.get(name).cloned();
        self.rules.classes.asked(ask, service.as_deref(), &self.settings, is_approved);
    }
}
