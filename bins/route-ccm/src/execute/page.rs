//! The page `/plan`: one entry per destination and per node whose condition changes.

use std::collections::BTreeSet;

use ccm_objects::ObjectRef;
use ccm_runtime::plans::{Plans, Step};

use crate::plan::Planned;

/// What was published last, so that what is done disappears.
#[derive(Debug, Default)]
pub(crate) struct Published(BTreeSet<String>);

const ROUTE: &str = "Route";

impl Published {
    /// Publishes the changes of a plan.
    pub(crate) fn routes(&mut self, plans: &Plans, changes: &[Planned]) {
        let mut now = BTreeSet::new();
        for planned in changes {
            let name = planned.change.destination().to_string();
            let step = Step {
                step: planned.kind(),
                changes: vec![planned.words()],
                reason: planned.why.clone(),
                held: planned.held.as_ref().map(ToString::to_string),
            };
            let object = ObjectRef { kind: ROUTE, name: name.clone(), ..ObjectRef::default() };
            plans.set(&object, vec![step]);
            now.insert(name);
        }
        for done in self.0.difference(&now) {
            plans.clear(ROUTE, done);
        }
        self.0 = now;
    }
}
