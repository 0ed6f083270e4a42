//! The entries of the page `/plan`, so that route-ccm can remove those that are done.

use std::collections::BTreeSet;

use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

use super::effect::{Blocked, Effect, Page};
use crate::routes::plan::{Planned, condition::NewCondition};

/// The entries that are shown, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Shown {
    routes: BTreeSet<String>,
    conditions: BTreeSet<String>,
    blocked: BTreeSet<String>,
}

impl Shown {
    /// Shows the changes of a plan.
    pub(super) fn routes(&mut self, changes: &[Planned], effects: &mut Vec<Effect>) {
        let show = |planned: &Planned| {
            (planned.change.destination().to_string(), Effect::ShowRoute(planned.clone()))
        };
        publish(Page::Routes, &mut self.routes, changes.iter().map(show), effects);
    }

    /// Shows the conditions that route-ccm will write.
    pub(super) fn conditions(
        &mut self,
        due: impl Iterator<Item = (Name, NewCondition)>,
        effects: &mut Vec<Effect>,
    ) {
        let show = |(name, condition): (Name, _)| {
            (name.to_string(), Effect::ShowCondition(name, condition))
        };
        publish(Page::Conditions, &mut self.conditions, due.map(show), effects);
    }

    /// Shows why nodes get no route.
    pub(super) fn blocked(
        &mut self,
        nodes: impl Iterator<Item = (Name, Blocked)>,
        effects: &mut Vec<Effect>,
    ) {
        let show = |(name, why): (Name, _)| (name.to_string(), Effect::ShowBlocked(name, why));
        publish(Page::Blocked, &mut self.blocked, nodes.map(show), effects);
    }
}

fn publish(
    page: Page,
    before: &mut BTreeSet<String>,
    shown: impl Iterator<Item = (String, Effect)>,
    effects: &mut Vec<Effect>,
) {
    let (names, entries): (BTreeSet<_>, Vec<_>) = shown.unzip();
    effects.extend(entries);
    effects.extend(before.difference(&names).map(|done| Effect::Hide(page, done.clone())));
    *before = names;
}
