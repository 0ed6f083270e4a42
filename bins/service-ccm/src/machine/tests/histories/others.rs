//! Other clients, which change the cloud and undo the writes to a Service.

use std::time::Duration;

use super::{
    variants::Without,
    world::{Kind, World},
};

/// The maximum number of writes in an hour to a Service if another client undoes all of them: each
/// part is repeated every five minutes, and each condition with and without the addresses.
const REPEATED: usize = 120;

impl World {
    /// Changes, deletes or doubles a load balancer as another client does.
    pub(super) fn spoil(&mut self) {
        let place = self.random.below(self.cloud.balancers.len());
        let Some((id, one)) = self.cloud.balancers.iter().nth(place) else { return };
        let id = id.clone();
        if one.is_foreign {
            return;
        }
        match self.random.below(5) {
            0 => self.cloud.spoil(&id),
            1 => return self.cloud.abandon(&id, self.now),
            2 => drop(self.cloud.balancers.remove(&id)),
            3 => return self.cloud.take_ports(&id),
            _ => self.cloud.duplicate(&id, self.now),
        }
        self.rules.spoilt();
    }

    /// Clears the status of a Service as another client, which undoes each write to it: the writes
    /// become rare.
    pub(super) fn contest(&mut self) {
        let is_shown = |service: &ccm_objects::Service| {
            service.details.as_ref().is_some_and(|details| !details.ingress.is_empty())
        };
        let served = self.api.values().find(|service| !service.deleting && is_shown(service));
        let Some(service) = served.cloned().filter(|_| self.kind == Kind::Others) else { return };
        let mut bare = ccm_objects::Service::clone(&service);
        if let Some(details) = &mut bare.details {
            details.ingress.clear();
            details.conditions.clear();
        }
        self.contested = Some(service.key.clone());
        self.store_as(bare);
        let mut before = 0;
        for _ in 0..2 {
            before = self.rules.written_in_all(&service.uid);
            let end = self.now + Duration::from_hours(1);
            while self.now < end {
                self.tell_all();
                self.run(self.now + Duration::from_secs(5));
                if self.without == Some(Without::Repeats) {
                    self.lead();
                }
            }
        }
        let count = self.rules.written_in_all(&service.uid) - before;
        assert!(count <= REPEATED, "Writes: {count} writes to {} in an hour", service.key);
        self.contested = None;
        self.tell_all();
    }
}
