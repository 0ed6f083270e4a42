//! Changes of Services and of what they depend on.

use std::sync::Arc;

use ccm_cloud::CloudError;
use ccm_controller::queue::Priority;
use ccm_objects::{Service, ServiceDetails};

use super::{
    Machine,
    effect::{Effect, Lane, Task, Turn},
    event::{Changed, Offer, Parameters},
};

impl Machine {
    /// Handles a changed Service.
    pub(super) fn service_changed(&mut self, changed: &Changed<Service>) -> Vec<Effect> {
        let (old, new) = (changed.old.as_deref(), changed.new.as_deref());
        self.in_use.service_changed(old, new);
        if !self.leads {
            return Vec::new();
        }
        let service = new.or(old);
        let next = service.and_then(|service| self.let_next_in(service.names().0));
        let mut effects: Vec<Effect> = next.into_iter().collect();
        let has_details = |service: &Service| service.details.is_some();
        match (old, new) {
            (None, Some(new)) if has_details(new) => {
                effects.push(Self::due_soon(new, priority(new)));
            }
            (Some(old), Some(new)) if has_details(old) || has_details(new) => {
                // Our own write of status and conditions does not change what the Service asks for.
                let same = old.is_load_balancer == new.is_load_balancer
                    && old.deleting == new.deleting
                    && old.uid == new.uid
                    && configuration(old) == configuration(new);
                effects.push(match same {
                    true => Effect::queue(Lane::Normal, new, Turn::Now(Priority::Routine)),
                    false => Self::due_soon(new, Priority::Urgent),
                });
            }
            (Some(gone), None) if has_details(gone) => {
                // A Service that is created again does not wait because of its predecessor.
                let turn = |lane, turn| Effect::queue(lane, gone, turn);
                effects.push(turn(Lane::Normal, Turn::Gone));
                effects.push(turn(Lane::Slow, Turn::Gone));
                effects.push(turn(Lane::Normal, Turn::Now(Priority::Routine)));
            }
            // The record of writes ends with the Service.
            (Some(gone), None) => self.balancers.remove(&gone.key),
            _ => {}
        }
        effects
    }

    /// Queues a Service that its user has changed. One that changes all the time waits, but its
    /// deletion does not.
    fn due_soon(service: &Service, priority: Priority) -> Effect {
        let is_paced = service.is_load_balancer && !service.deleting;
        let turn = if is_paced { Turn::Paced(priority) } else { Turn::Now(priority) };
        Effect::queue(Lane::Normal, service, turn)
    }

    /// Queues these Services if they may need work.
    pub(super) fn services_are(services: &[Arc<Service>]) -> Vec<Effect> {
        let concerned = services.iter().filter(|service| service.details.is_some());
        concerned.map(|one| Effect::queue(Lane::Normal, one, Turn::Now(priority(one)))).collect()
    }

    /// Handles changed settings: classes, adoption and limits of members apply from now on. The
    /// Services that are not served any more are reported.
    pub(super) fn settings_changed(
        &mut self,
        settings: Parameters,
        services: &[Arc<Service>],
    ) -> Vec<Effect> {
        self.parameters = settings;
        self.changes += 1;
        if !self.leads {
            return Vec::new();
        }
        let mut effects = self.revised();
        effects.push(Effect::Wake(Task::Nodes));
        let concerned = services.iter().filter(|service| {
            let is_left = service.is_load_balancer && service.has_finalizer;
            self.parameters.classes.cover(service) || is_left
        });
        effects.extend(
            concerned.map(|one| Effect::queue(Lane::Normal, one, Turn::Now(priority(one)))),
        );
        effects
    }

    /// Records the present offer of the provider.
    pub(super) fn offered(
        &mut self,
        offer: Result<Offer, CloudError>,
        has_changed: bool,
    ) -> Vec<Effect> {
        let selector =
            |offer: &Result<Arc<Offer>, _>| offer.as_ref().ok().map(|offer| offer.selector.clone());
        let before = selector(&self.offer);
        self.traits = Arc::new(offer.as_ref().map(|one| one.traits.clone()).unwrap_or_default());
        self.offer = offer.map(Arc::new);
        self.changes += 1;
        let has_other_selector = before != selector(&self.offer);
        let mut effects = if has_changed { self.revised() } else { Vec::new() };
        if has_other_selector && self.leads {
            let all = self.balancers.all().map(|(name, _)| Effect::routine(name));
            effects.extend(all);
        }
        effects
    }

    /// Handles changed settings, or a changed provider: calls that have failed may succeed.
    fn revised(&mut self) -> Vec<Effect> {
        self.revision += 1;
        let failed = self.balancers.all().filter(|(_, entry)| !entry.state.failed.is_empty());
        failed.map(|(name, _)| Effect::routine(name)).collect()
    }

    /// Handles another approval: held steps may be done now.
    pub(super) fn approved(&self) -> Vec<Effect> {
        let held = self
            .balancers
            .all()
            .filter(|(_, entry)| entry.held > 0 || entry.last_plan.held_replacement.is_some());
        held.map(|(name, _)| Effect::routine(name)).collect()
    }
}

/// Returns how soon a Service is synced that this process has not seen before. A Service without
/// finalizer is new: its user waits.
fn priority(service: &Service) -> Priority {
    if service.has_finalizer && !service.deleting { Priority::Routine } else { Priority::Urgent }
}

/// Returns the part of a Service that its user writes.
fn configuration(service: &Service) -> Option<ServiceDetails> {
    let details = service.details.as_deref()?;
    Some(ServiceDetails { ingress: Vec::new(), conditions: Vec::new(), ..details.clone() })
}
