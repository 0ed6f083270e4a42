//! The room for load balancers in each namespace.

use std::sync::Arc;

use ccm_controller::queue::Priority;
use ccm_objects::{Service, Shared as Name};

use super::{
    Machine,
    effect::{Effect, Lane, Turn},
};
use crate::plan::{
    List,
    room::{RoomTurn, full, stands},
};

impl Machine {
    /// Returns true if this Service needs room, so that the plan depends on the other Services of its namespace.
    pub(crate) fn needs_room(&self, service: &Service) -> bool {
        let has_room = self.balancers.get(&service.key).is_some_and(|entry| entry.is_admitted);
        let is_limited = self.parameters.most_per_namespace > 0;
        is_limited && !has_room && !service.deleting && self.parameters.classes.cover(service)
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
        let turn = RoomTurn::new(service);
        let why = if stands || !is_right || list == List::Awaited {
            None
        } else {
            full(most, neighbours.iter().filter(|one| self.takes_room(&turn, one, list)).count())
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
    fn takes_room(&mut self, turn: &RoomTurn, service: &Service, list: List) -> bool {
        let entry = self.balancers.entry(service);
        if entry.state.is_elsewhere() {
            return false;
        }
        let stands = stands(service, &entry.state, list) || entry.is_admitted;
        let asks = self.parameters.classes.cover(service) && !service.deleting && !entry.is_wrong;
        stands || asks && RoomTurn::new(service) < *turn
    }

    /// Queues the first of the Services that wait in this namespace: there may be room for it. When it
    /// gets its room, the next one follows.
    pub(super) fn let_next_in(&self, namespace: &str) -> Option<Effect> {
        if self.parameters.most_per_namespace == 0 {
            return None;
        }
        let is_there = |name: &Name| name.split_once('/').is_some_and(|(it, _)| it == namespace);
        let all = self.balancers.all().filter_map(|(name, one)| Some((one.waits.as_ref()?, name)));
        let (_, next) = all.filter(|(_, name)| is_there(name)).min()?;
        Some(Effect::Queue(Name::clone(next), Lane::Normal, Turn::Now(Priority::Urgent)))
    }
}
