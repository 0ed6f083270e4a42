//! Names the node that an event, an effect or a part of the memory is about.

use std::borrow::Cow;

use ccm_controller::record::Recorded;

use super::{Effect, Event, Machine, Request};

impl Recorded for Machine {
    const NAME: &'static str = "node-ccm";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        let name = match event {
            Event::Listed(seen)
            | Event::Added(seen)
            | Event::Look(seen)
            | Event::Updated { new: seen, .. }
            | Event::Compare { seen, .. } => &seen.node.name,
            Event::Deleted(node) | Event::Conflicts { node, .. } => &node.name,
            Event::Gone(name) | Event::AskedAgain(name) | Event::Written { name, .. } => name,
            Event::Work(work) => &work.asked.name,
            Event::TermBegins { .. }
            | Event::Set(_)
            | Event::StoreIsNew
            | Event::Approved(_)
            | Event::Answered { .. }
            | Event::Refresh(_)
            | Event::Found { .. }
            | Event::Compared { .. } => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        let name = match effect {
            Effect::Queue(name, _) | Effect::Clear(name) | Effect::Forget(name) => name,
            Effect::Retry(node, ..)
            | Effect::Publish(node, ..)
            | Effect::LeftOut { node, .. }
            | Effect::Report(node, _)
            | Effect::Request(Request::Write { node, .. } | Request::Conflict { node, .. }) => {
                &node.name
            }
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn only(mut self, name: &str) -> Self {
        self.entries.retain(|node, _| **node == *name);
        self.writing.retain(|node, _| **node == *name);
        self.differing.retain(|(node, _)| *node.name == *name);
        self
    }

    fn only_event(event: Event, name: &str) -> Option<Event> {
        let event = match event {
            Event::Answered { ago, mut answers } => {
                answers.retain(|(node, _)| *node.name == *name);
                Event::Answered { ago, answers }
            }
            Event::Refresh(mut nodes) => {
                nodes.retain(|seen| *seen.node.name == *name);
                Event::Refresh(nodes)
            }
            event if Self::about(&event).is_some_and(|node| node != name) => return None,
            event => event,
        };
        Some(event)
    }
}
