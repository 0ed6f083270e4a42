//! Names the node that an event or an effect is about. A plan is about all nodes and all routes, so each record has the
//! memory of them.

use std::borrow::Cow;

use ccm_controller::record::Recorded;

use super::{Effect, Event, Machine};

impl Recorded for Machine {
    const NAME: &'static str = "route-ccm/routes";

    fn about(event: &Event) -> Option<Cow<'_, str>> {
        let name = match event {
            Event::Changed { after: view, .. }
            | Event::Gone { view, .. }
            | Event::Assigned(view) => &view.node.name,
            Event::Condition { name, .. } => name,
            Event::Written(written) => &written.asked.name,
            // An answer changes the known table, whichever node the route is for.
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn effect_about(effect: &Effect) -> Option<Cow<'_, str>> {
        let name = match effect {
            Effect::Write { node, .. }
            | Effect::ConditionRefused { node, .. }
            | Effect::Completed(node)
            | Effect::ConditionRepeated { node, .. }
            | Effect::Bare(node)
            | Effect::Problems(node, _)
            | Effect::WaitsForAPerson(node, _) => &node.name,
            Effect::Condition(name, _)
            | Effect::ForgetCondition(name)
            | Effect::ConditionEvery(name, _)
            | Effect::ConditionAgain(name)
            | Effect::Forget(name)
            | Effect::ConditionShown(name, _) => name,
            Effect::Withdrawn(planned) => planned.node.as_ref()?,
            Effect::Answered { planned, .. } | Effect::RouteRepeated { planned, .. } => {
                planned.node.as_ref()?
            }
            _ => return None,
        };
        Some(Cow::Borrowed(name))
    }

    fn only(self, _: &str) -> Self {
        self
    }

    /// Returns the words that differ between messages of conditions. A message with other words is
    /// written again.
    fn words() -> &'static [&'static str] {
        &[
            "RouteController",
            "created",
            "create",
            "CIDRNotAvailable",
            "CIDRAssigned",
            "CIDRs",
            "pod",
            "made",
            "configure",
            "shows",
            "such",
            "being",
            "waits",
            "those",
            "other",
        ]
    }
}
