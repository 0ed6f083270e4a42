//! Names the node that an event or an effect is about. Breaker and budget are about the fleet, so
//! each record contains the memory of all nodes and their changes.

use std::borrow::Cow;

use ccm_controller::record::Recorded;

use super::{Effect, Event, Machine};

impl Recorded for Machine {
    const NAME: &'static str = "lifecycle-ccm";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        let name = match event {
            Event::Seen { node, .. } => &node.name,
            Event::Gone { name, .. } | Event::LookedUp { name, .. } | Event::Beat { name, .. } => {
                name
            }
            Event::Written { action, .. } => &action.node.name,
            Event::Parameters(_)
            | Event::TermBegins(_)
            | Event::Approved(_)
            | Event::Pass(_)
            | Event::Due { .. }
            | Event::Listed(_)
            | Event::Answered
            | Event::Decide { .. }
            | Event::Ended => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        let name = match effect {
            Effect::Forget(name) | Effect::Clear(name) | Effect::Unmarked(name, _) => name,
            Effect::Page(node, _) | Effect::Repeated(node, _) => &node.name,
            Effect::Write(action) => &action.node.name,
            Effect::Told(told) => &told.action.node.name,
            Effect::Decided(decided) => &decided.decision.name,
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn only(self, _: &str) -> Self {
        self
    }

    fn only_event(event: Event, name: &str) -> Option<Event> {
        let is_about_one = match &event {
            Event::LookedUp { is_witness, .. } => !is_witness,
            event => matches!(event, Event::Beat { .. }),
        };
        let is_others = is_about_one && Self::about(&event).is_some_and(|node| node != name);
        (!is_others).then_some(event)
    }
}
