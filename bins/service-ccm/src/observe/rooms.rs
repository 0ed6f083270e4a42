//! The room for load balancers in each namespace.

use std::collections::{BTreeSet, HashMap};

use ccm_controller::queue::Priority;
use ccm_kube::store::Change;
use ccm_objects::{Service, Shared as Name};
use parking_lot::Mutex;

use super::Handles;
use crate::plan::{
    Classes, Known, List,
    room::{Neighbour, Turn, full, stands},
};

/// The Services of each namespace that may have a load balancer, by their names.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<HashMap<Box<str>, BTreeSet<Name>>>);

impl Rooms {
    fn changed(&self, change: &Change<Service>) {
        let (service, is_there) = match change {
            Change::Added(new) | Change::Updated { new, .. } => (new, new.details.is_some()),
            Change::Deleted(gone) => (gone, false),
        };
        let (namespace, _) = service.names();
        let mut all = self.0.lock();
        if is_there {
            all.entry(namespace.into()).or_default().insert(Name::clone(&service.key));
        } else if let Some(names) = all.get_mut(namespace) {
            names.remove(&service.key);
            if names.is_empty() {
                all.remove(namespace);
            }
        }
    }
}

impl Handles {
    /// Records that a Service has changed, and lets the next one of its namespace in if there is room.
    pub(crate) fn room_changed(&self, change: &Change<Service>, leads: bool) {
        self.rooms.changed(change);
        if leads {
            let (Change::Added(one) | Change::Updated { new: one, .. } | Change::Deleted(one)) =
                change;
            self.let_next_in(one.names().0);
        }
    }

    /// Returns why the Service waits: its namespace has as many load balancers as it may have.
    /// Otherwise, it has its room from now on. `is_right`: it asks for a load balancer that can be made.
    pub(super) fn full(
        &self,
        service: &Service,
        classes: &Classes,
        is_right: bool,
        list: List,
    ) -> Option<String> {
        let most = self.settings.borrow().max_load_balancers_per_namespace;
        if most == 0 || !classes.cover(service) || service.deleting {
            self.balancers.with(service, |entry| entry.set_room(false, false));
            return None;
        }
        let all = self.rooms.0.lock();
        let (stands_now, is_admitted, waited, was_wrong) = self.balancers.with(service, |entry| {
            let is_elsewhere = matches!(entry.state().known, Known::Elsewhere(_));
            let stands = stands(service, entry.state(), list) || is_elsewhere;
            (stands, entry.is_admitted(), entry.waits(), entry.is_wrong())
        });
        let why = if stands_now || is_admitted || !is_right || list == List::Awaited {
            None
        } else {
            let names = all.get(service.names().0).into_iter().flatten();
            let others = names.filter(|name| **name != service.key);
            full(
                most,
                &Turn::of(service),
                others.filter_map(|name| self.neighbour(name, classes, list)),
            )
        };
        let is_admitted = why.is_none() && is_right && list != List::Awaited;
        self.balancers.with(service, |entry| entry.set_room(why.is_some(), is_admitted));
        drop(all);
        if waited && why.is_none() || !is_right && !was_wrong {
            self.let_next_in(service.names().0);
        }
        why
    }

    fn neighbour(&self, name: &Name, classes: &Classes, list: List) -> Option<Neighbour> {
        let service = self.services.get(name)?;
        let (stands, is_wrong) = self.balancers.with(&service, |entry| {
            let is_elsewhere = matches!(entry.state().known, Known::Elsewhere(_));
            let stands = stands(&service, entry.state(), list) || entry.is_admitted();
            (stands && !is_elsewhere, entry.is_wrong() || is_elsewhere)
        });
        let asks = classes.cover(&service) && !service.deleting && !is_wrong;
        Some(Neighbour { stands, turn: asks.then(|| Turn::of(&service)) })
    }

    /// Queues the first of the Services that wait in this namespace: there may be room for it. When it
    /// gets its room, the next one follows.
    pub(crate) fn let_next_in(&self, namespace: &str) {
        if self.settings.borrow().max_load_balancers_per_namespace == 0 {
            return;
        }
        let names = self.rooms.0.lock().get(namespace).cloned().unwrap_or_default();
        let waits =
            |name: &Name| self.balancers.with_name(name, |entry| entry.waits()) == Some(true);
        let waiting = names.into_iter().filter(waits).filter_map(|name| self.services.get(&name));
        if let Some(next) = waiting.min_by_key(|service| Turn::of(service)) {
            self.queue.add(Name::clone(&next.key), Priority::Urgent);
        }
    }
}
