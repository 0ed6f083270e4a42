//! The room for load balancers in each namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_controller::queue::Priority;
use ccm_objects::{Service, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    effect::{Effect, Lane, Turn},
    event::Changed,
};
use crate::plan::{
    List,
    room::{self, full, stands},
};

/// The Services of each namespace that may have a load balancer, by their names.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Rooms(BTreeMap<Box<str>, BTreeSet<Name>>);

impl Rooms {
    fn changed(&mut self, changed: &Changed<Service>) {
        let is_there = changed.new.as_ref().is_some_and(|new| new.details.is_some());
        let Some(service) = changed.new.as_ref().or(changed.old.as_ref()) else { return };
        let (namespace, _) = service.names();
        if is_there {
            self.0.entry(namespace.into()).or_default().insert(Name::clone(&service.key));
        } else if let Some(names) = self.0.get_mut(namespace) {
            names.remove(&service.key);
            if names.is_empty() {
                self.0.remove(namespace);
            }
        }
    }
}

impl Machine {
    /// The Services with which this one shares the room of its namespace, if that has a limit.
    pub(crate) fn neighbours(&self, service: &Service) -> Vec<Name> {
        let has_room = self.balancers.get(&service.key).is_some_and(|entry| entry.is_admitted);
        if self.parameters.most_per_namespace == 0
            || has_room
            || service.deleting
            || !self.parameters.classes.cover(service)
        {
            return Vec::new();
        }
        let names = self.rooms.0.get(service.names().0).into_iter().flatten();
        names.filter(|name| **name != service.key).cloned().collect()
    }

    /// Records that a Service has changed, and lets the next one of its namespace in if there is room.
    pub(super) fn room_changed(&mut self, changed: &Changed<Service>) -> Option<Effect> {
        self.rooms.changed(changed);
        let service = changed.new.as_ref().or(changed.old.as_ref()).filter(|_| self.leads)?;
        self.let_next_in(service.names().0)
    }

    /// Returns why the Service waits: its namespace has as many load balancers as it may have.
    /// Otherwise, it has its room from now on. `is_right`: it asks for a load balancer that can be made.
    pub(super) fn full(
        &mut self,
        service: &Service,
        neighbours: &[Arc<Service>],
        is_right: bool,
        list: List,
    ) -> (Option<String>, Option<Effect>) {
        let most = self.parameters.most_per_namespace;
        if most == 0 || !self.parameters.classes.cover(service) || service.deleting {
            let entry = self.balancers.entry(service);
            (entry.waits, entry.is_admitted) = (None, false);
            return (None, None);
        }
        let entry = self.balancers.entry(service);
        let stands =
            stands(service, &entry.state, list) || entry.state.is_elsewhere() || entry.is_admitted;
        let (waited, was_wrong) = (entry.waits.is_some(), entry.is_wrong);
        let turn = room::Turn::of(service);
        let why = if stands || !is_right || list == List::Awaited {
            None
        } else {
            full(most, neighbours.iter().filter(|one| self.is_before(&turn, one, list)).count())
        };
        let is_admitted = why.is_none() && is_right && list != List::Awaited;
        let waits = why.is_some().then_some(turn);
        let entry = self.balancers.entry(service);
        (entry.waits, entry.is_admitted) = (waits, is_admitted);
        let makes_room = waited && why.is_none() || !is_right && !was_wrong;
        let next = if makes_room { self.let_next_in(service.names().0) } else { None };
        (why, next)
    }

    /// Returns true if this Service has a load balancer, may get one, or asks for one before this turn.
    fn is_before(&mut self, turn: &room::Turn, service: &Service, list: List) -> bool {
        let entry = self.balancers.entry(service);
        if entry.state.is_elsewhere() {
            return false;
        }
        let stands = stands(service, &entry.state, list) || entry.is_admitted;
        let asks = self.parameters.classes.cover(service) && !service.deleting && !entry.is_wrong;
        stands || asks && room::Turn::of(service) < *turn
    }

    /// Queues the first of the Services that wait in this namespace: there may be room for it. When it
    /// gets its room, the next one follows.
    pub(super) fn let_next_in(&self, namespace: &str) -> Option<Effect> {
        if self.parameters.most_per_namespace == 0 {
            return None;
        }
        let names = self.rooms.0.get(namespace)?.iter();
        let waiting = names.filter_map(|name| {
            let turn = self.balancers.get(name)?.waits.as_ref()?;
            Some((turn, name))
        });
        let (_, next) = waiting.min()?;
        Some(Effect::Queue(Name::clone(next), Lane::Normal, Turn::Now(Priority::Urgent)))
    }
}
