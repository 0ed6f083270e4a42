//! The page `/plan`: one entry per destination and per node whose condition changes.

use std::collections::BTreeSet;

use ccm_objects::{ObjectRef, Shared as Name};
use ccm_runtime::plans::{Plans, Step};

use crate::routes::plan::{
    Planned,
    condition::{NETWORK_UNAVAILABLE, NewCondition},
};

/// What was published last, so that what is done disappears.
#[derive(Debug, Default)]
pub(crate) struct Published {
    routes: BTreeSet<String>,
    conditions: BTreeSet<String>,
    blocked: BTreeSet<String>,
}

const ROUTE: &str = "Route";
/// Apart from the entry of the node itself, which shows the pod CIDRs that it gets.
const CONDITION: &str = "NodeCondition";
/// Likewise.
const ROUTES: &str = "NodeRoutes";

impl Published {
    /// Publishes the changes of a plan.
    pub(crate) fn routes(&mut self, plans: &Plans, changes: &[Planned]) {
        let step = |planned: &Planned| {
            let step = Step {
                step: planned.kind(),
                changes: vec![planned.words()],
                reason: planned.why.clone(),
                held: planned.held.as_ref().map(ToString::to_string),
            };
            (planned.change.destination().to_string(), Ok(step))
        };
        publish(plans, ROUTE, &mut self.routes, changes.iter().map(step));
    }

    /// Publishes the conditions that are to be written.
    pub(crate) fn conditions(
        &mut self,
        plans: &Plans,
        due: impl Iterator<Item = (Name, NewCondition)>,
    ) {
        let step = |(name, wanted): (Name, NewCondition)| {
            let step = Step {
                step: "condition",
                changes: vec![format!("{NETWORK_UNAVAILABLE}={}", wanted.status)],
                reason: wanted.message,
                held: None,
            };
            (name.to_string(), Ok(step))
        };
        publish(plans, CONDITION, &mut self.conditions, due.map(step));
    }

    /// Publishes why nodes get no route.
    pub(crate) fn blocked(&mut self, plans: &Plans, nodes: impl Iterator<Item = (Name, String)>) {
        let why = nodes.map(|(name, why)| (name.to_string(), Err(why)));
        publish(plans, ROUTES, &mut self.blocked, why);
    }
}

/// Publishes a step of each object, or why it has none.
fn publish(
    plans: &Plans,
    kind: &'static str,
    before: &mut BTreeSet<String>,
    steps: impl Iterator<Item = (String, Result<Step, String>)>,
) {
    let mut now = BTreeSet::new();
    for (name, step) in steps {
        let object = ObjectRef { kind, name: name.clone(), ..ObjectRef::default() };
        match step {
            Ok(step) => plans.set(&object, vec![step]),
            Err(why) => plans.block(&object, &why),
        }
        now.insert(name);
    }
    for done in before.difference(&now) {
        plans.clear(kind, done);
    }
    *before = now;
}
