//! Names the node that an event or an effect is about. Node IPAM assigns blocks in the order of all
//! nodes. So each record has the memory of all nodes and all events that can change which block is
//! free.

use std::borrow::Cow;

use ccm_controller::record::Recorded;

use super::{Effect, Event, Machine};

impl Recorded for Machine {
    const NAME: &'static str = "route-ccm/node-ipam";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        match event {
            Event::NotOurs(node) => Some(Cow::Borrowed(&node.name)),
            _ => None,
        }
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        let name = match effect {
            Effect::Write { node, .. }
            | Effect::Show { node, .. }
            | Effect::Assigned(node)
            | Effect::Given(node)
            | Effect::HasNone { node, .. }
            | Effect::HasCidrs(node)
            | Effect::NotStored { node, .. }
            | Effect::Foreign(node, _)
            | Effect::Rival(node, _) => &node.name,
            Effect::Queue(name, _)
            | Effect::Forget(name)
            | Effect::Remove(name)
            | Effect::RetryEvery(name, _)
            | Effect::RetryAs(name, _)
            | Effect::RetryRefused { name, .. }
            | Effect::Condition(name, _)
            | Effect::Clear(name)
            | Effect::Strange(name, _) => name,
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn only(self, _: &str) -> Self {
        self
    }
}
