//! Services that come from a queue.

use std::collections::BTreeMap;

use ccm_cloud::NodeSelector;
use ccm_objects::{Service, Shared as Name};

use super::{Translator, provider::selector};
use crate::machine::{
    effect::Lane,
    event::{Due, Event},
};

impl Translator {
    /// Returns the event that a Service is due on this lane. `may_call`: a call to the cloud may
    /// follow.
    pub(crate) fn due(&self, lane: Lane, name: &Name, may_call: bool) -> Event {
        let (door, offered) = (&self.performer.door, self.load_balancers());
        let service = self.services.get(name);
        let mut due = Due {
            lane,
            name: Name::clone(name),
            selector: NodeSelector::default(),
            is_default: true,
            is_read: false,
            changes: 0,
            is_same_cloud: self.same_cloud.is_proven(),
            neighbours: Vec::new(),
            may_call,
            service,
        };
        if let (Some(service), Ok(load_balancers)) = (&due.service, &offered) {
            due.selector = selector(service, &**load_balancers);
            due.is_default = due.selector == load_balancers.selector(&BTreeMap::new());
            if door.read(|machine, _| machine.lacks_labels(&due.selector)) {
                let (selector, nodes) = (due.selector.clone(), self.nodes.list());
                self.performer.apply(Event::Labels { selector, nodes });
            }
            let (reading, changes) = door.read(|machine, _| (machine.reading(), machine.changes()));
            due.changes = changes;
            due.is_read = self.services.keep(Some(reading)) == service.rule;
            if door.read(|machine, _| machine.needs_room(service)) {
                let is_neighbour = |one: &Service| {
                    one.details.is_some()
                        && one.key != service.key
                        && one.names().0 == service.names().0
                };
                due.neighbours = self.services.matching(is_neighbour);
            }
        }
        Event::Due(due)
    }
}
